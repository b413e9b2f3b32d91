"""The trunks of this process: for each run that somebody reaches, a line to the API that asked.

    TrunkOpening → open_trunk → a trunk → dial → a line of its own for each session

A trunk ends with its line; its sessions end with theirs, with the node, or with this process.
"""

import asyncio
import contextlib

import structlog
from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.secrets.sealing import MasterKeyError, SealBrokenError
from activities.secrets.session_keys import open_order
from activities.site.sessions.lines import UNREACHED, Line, LineClosedError, open_line
from activities.site.sessions.serving import serve_session
from workflows.contracts import errors
from workflows.contracts.sessions import Dial, TrunkOrder, read_dial
from workflows.effects.sessions import OpenTrunk, TrunkOpened

MOST_SESSIONS = 200
"""How many one trunk serves at once; the API asks for fewer."""

log = structlog.get_logger("sessions")
_serving: set[asyncio.Task[None]] = set()


@activity.defn
async def open_trunk(command: OpenTrunk) -> TrunkOpened:
    """Connect to the API process that asks, and serve the run's sessions after the answer.

    Raises: ApplicationError, REFUSED, when the order is not for this site, run and node.
    """
    about = (command.trunk_id, command.run_id, command.node.node_id)
    try:
        order = open_order(command.node.region_id, about, command.sealed)
    except (SealBrokenError, MasterKeyError, ValueError) as error:
        raise ApplicationError(
            f"{command.run_id}: the worker of region {command.node.region_id} cannot open the "
            f"order of trunk {command.trunk_id}",
            type=errors.REFUSED,
        ) from error
    try:
        line = await open_line(f"{order.url}/v1/trunks/{command.trunk_id}", order.token)
    except UNREACHED as error:
        return TrunkOpened(
            reason=f"the worker of the node's site cannot reach the API at {order.url}: {error}; "
            "check BASELOAD_SESSIONS_URL of the API"
        )
    _keep(asyncio.create_task(_serve(line, command, order), name=command.trunk_id))
    return TrunkOpened()


async def close_trunks() -> None:
    """End every session of this process, before it ends; what runs on the nodes goes on."""
    for task in list(_serving):
        task.cancel()
    await asyncio.gather(*_serving, return_exceptions=True)


def _keep(task: asyncio.Task[None]) -> None:
    _serving.add(task)
    task.add_done_callback(_done)


def _done(task: asyncio.Task[None]) -> None:
    _serving.discard(task)
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("a session broke", what=task.get_name(), exc_info=error)


async def _serve(trunk: Line, command: OpenTrunk, order: TrunkOrder) -> None:
    sessions: set[asyncio.Task[None]] = set()
    async with trunk:
        with contextlib.suppress(LineClosedError, ValueError):
            while True:
                dial = read_dial(await trunk.receive_text())
                if len(sessions) >= MOST_SESSIONS:
                    continue
                session = asyncio.create_task(_dial(command, order, dial), name=dial.session_id)
                sessions.add(session)
                session.add_done_callback(sessions.discard)
                _keep(session)


async def _dial(command: OpenTrunk, order: TrunkOrder, dial: Dial) -> None:
    url = f"{order.url}/v1/trunks/{command.trunk_id}/sessions/{dial.session_id}"
    try:
        line = await open_line(url, dial.token)
    except UNREACHED as error:
        log.warning("a session was not served", session=dial.session_id, why=str(error))
        return
    async with line:
        await serve_session(line, command.node, command.run_id, dial.request)
