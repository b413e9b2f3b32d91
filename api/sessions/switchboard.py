"""The switchboard: connects this process with the sites of runs, which connect to it.

    open → a trunk to the site of the run's node, by Temporal → dial → a line for the session

A trunk stays for a while after its last session, so that the next one begins at once.
"""

import asyncio
import hmac
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeAlias

from starlette.websockets import WebSocket, WebSocketDisconnect
from temporalio.client import WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from activities.db.ids import new_id
from activities.secrets.session_keys import hash_of_token, new_token, seal_order
from activities.settings import settings
from activities.temporal.client import client, limited
from api.problems import Problem
from api.sessions.lines import SiteLine
from workflows.contracts import queues
from workflows.contracts.nodes import NodeAddress
from workflows.contracts.sessions import DeviceLogRequest, Dial, SessionRequest, TrunkOrder
from workflows.effects.sessions import OpenTrunk, TrunkOpened

OPEN_LIMIT_S = 15.0
DIAL_LIMIT_S = 15.0
TRUNK_REST_S = 120.0
"""How long a trunk stays without a session."""
TRUNK_OPENING = "TrunkOpening"
TRIES = 2
log = logging.getLogger("sessions")


@dataclass(frozen=True, slots=True)
class RunPlace:
    """A run that can be reached: where it is, and whose it is."""

    job_id: str
    account_id: str
    run_id: str
    node: NodeAddress
    port: int | None = None
    is_federated: bool = False
    """Whether the run is of a federated job, whose model nobody may see."""

    @property
    def name(self) -> str:
        """What a person has asked for."""
        return f"job {self.job_id}"

    @property
    def host(self) -> str:
        """The machine that its site reaches."""
        return f"node {self.node.node_id}"


@dataclass(frozen=True, slots=True)
class DevicePlace:
    """A device whose log can be read: where it is, and whose it is."""

    name: str
    account_id: str
    node: NodeAddress

    @property
    def run_id(self) -> str:
        """What a trunk is for: the device, whatever it runs."""
        return self.node.node_id

    @property
    def host(self) -> str:
        """The machine that its site reaches."""
        return f"device {self.node.node_id}"


Place: TypeAlias = RunPlace | DevicePlace


class TrunkLostError(Exception):
    """The trunk has closed meanwhile; another one may be opened."""


@dataclass
class _Dialed:
    token_sha256: bytes
    line: asyncio.Future[SiteLine]


@dataclass
class Trunk:
    """One trunk, from its first request to the loss of its site."""

    id: str
    place: Place
    token_sha256: bytes
    connected: asyncio.Future[WebSocket]
    dialed: dict[str, _Dialed] = field(default_factory=dict)
    sessions: int = 0
    opening: asyncio.Task[None] | None = None
    rest: asyncio.TimerHandle | None = None
    closed: asyncio.Event = field(default_factory=asyncio.Event)


Request: TypeAlias = SessionRequest | DeviceLogRequest
Ask = Callable[[OpenTrunk], Awaitable[TrunkOpened]]


class Switchboard:
    """The trunks of this process, and the sessions on them. `ask` reaches the sites."""

    def __init__(self, ask: Ask | None = None) -> None:
        self._ask = ask or ask_site
        self._trunks: dict[str, Trunk] = {}
        self._of_runs: dict[tuple[str, NodeAddress], Trunk] = {}

    async def open(self, place: Place, request: Request) -> SiteLine:
        """The line of a new session; whoever gets it closes it.

        Raises: Problem `unavailable`, when no site connects.
        """
        for _ in range(TRIES):
            trunk = await self._trunk(place)
            try:
                return await self._dial(trunk, request)
            except TrunkLostError:
                self._forget(trunk)
        raise Problem("unavailable", f"{place.name}: the site of {place.host} was lost")

    async def serve_trunk(self, socket: WebSocket, trunk_id: str, token: str) -> bool:
        """Serve the connection of a site as this trunk until it closes; whether it was awaited."""
        trunk = self._trunks.get(trunk_id)
        if trunk is None or trunk.connected.done() or not _is_right(token, trunk.token_sha256):
            return False
        await socket.accept()
        trunk.connected.set_result(socket)
        closing = asyncio.create_task(trunk.closed.wait())
        receiving = asyncio.create_task(_until_disconnected(socket))
        await asyncio.wait((closing, receiving), return_when=asyncio.FIRST_COMPLETED)
        self._forget(trunk)
        closing.cancel()
        if not receiving.done():
            receiving.cancel()
            await socket.close()
        return True

    async def serve_line(
        self, socket: WebSocket, trunk_id: str, session_id: str, token: str
    ) -> bool:
        """Serve the connection of a site for this session; whether it was awaited."""
        trunk = self._trunks.get(trunk_id)
        dialed = trunk.dialed.get(session_id) if trunk is not None else None
        if trunk is None or dialed is None or not _is_right(token, dialed.token_sha256):
            return False
        del trunk.dialed[session_id]
        if dialed.line.done():
            return False
        await socket.accept()
        line = SiteLine(socket)
        self._begin(trunk)
        dialed.line.set_result(line)
        try:
            await line.wait_closed()
        finally:
            line.close()
            self._end(trunk)
        return True

    def close(self) -> None:
        """Close every trunk."""
        for trunk in list(self._trunks.values()):
            self._forget(trunk)

    async def _trunk(self, place: Place) -> Trunk:
        key = (place.run_id, place.node)
        trunk = self._of_runs.get(key)
        if trunk is None:
            trunk_id, token = new_id("trk"), new_token()
            connected = asyncio.get_running_loop().create_future()
            trunk = Trunk(trunk_id, place, hash_of_token(token), connected)
            self._trunks[trunk_id] = self._of_runs[key] = trunk
            trunk.opening = asyncio.create_task(self._open(trunk, token), name=trunk_id)
            trunk.opening.add_done_callback(lambda task: task.cancelled() or task.exception())
        if trunk.opening is not None:
            await asyncio.shield(trunk.opening)
        return trunk

    async def _open(self, trunk: Trunk, token: str) -> None:
        try:
            async with asyncio.timeout(OPEN_LIMIT_S):
                reason = await self._asked(trunk, token)
        except TimeoutError:
            reason = f"no answer within {OPEN_LIMIT_S:g} s"
        except BaseException:  # Also when it is cancelled, else it stays among those on their way.
            self._forget(trunk)
            raise
        if reason is not None:
            self._forget(trunk)
            raise _unreached(trunk, reason)
        self._rest(trunk)

    async def _asked(self, trunk: Trunk, token: str) -> str | None:
        """Wait for the site; why it does not come, if it says so."""
        asking = asyncio.ensure_future(self._ask(_command(trunk, token)))
        asking.add_done_callback(lambda task: task.cancelled() or task.exception())
        await asyncio.wait((asking, trunk.connected), return_when=asyncio.FIRST_COMPLETED)
        if not trunk.connected.done() and (reason := (await asking).reason) is not None:
            return reason
        await asyncio.shield(trunk.connected)
        return None

    async def _dial(self, trunk: Trunk, request: Request) -> SiteLine:
        session_id, token = new_id("ses"), new_token()
        dialed = _Dialed(hash_of_token(token), asyncio.get_running_loop().create_future())
        trunk.dialed[session_id] = dialed
        dial = Dial(session_id=session_id, token=token, request=request)
        line = None
        try:
            await (await asyncio.shield(trunk.connected)).send_text(dial.model_dump_json())
            async with asyncio.timeout(DIAL_LIMIT_S):
                line = await dialed.line
        except TimeoutError:
            raise _unreached(trunk, "it opens no session") from None
        except (WebSocketDisconnect, RuntimeError, asyncio.CancelledError) as error:
            if trunk.closed.is_set():
                raise TrunkLostError(trunk.id) from error
            raise
        else:
            return line
        finally:
            trunk.dialed.pop(session_id, None)
            if line is None and dialed.line.done() and not dialed.line.cancelled():
                dialed.line.result().close()  # It came just when nobody waited any more.

    def _begin(self, trunk: Trunk) -> None:
        trunk.sessions += 1
        if trunk.rest is not None:
            trunk.rest.cancel()
            trunk.rest = None

    def _end(self, trunk: Trunk) -> None:
        trunk.sessions -= 1
        self._rest(trunk)

    def _rest(self, trunk: Trunk) -> None:
        if trunk.sessions == 0 and trunk.rest is None and not trunk.closed.is_set():
            loop = asyncio.get_running_loop()
            trunk.rest = loop.call_later(TRUNK_REST_S, self._forget, trunk)

    def _forget(self, trunk: Trunk) -> None:
        self._trunks.pop(trunk.id, None)
        key = (trunk.place.run_id, trunk.place.node)
        if self._of_runs.get(key) is trunk:
            del self._of_runs[key]
        trunk.closed.set()
        if trunk.rest is not None:
            trunk.rest.cancel()
        for dialed in trunk.dialed.values():
            dialed.line.cancel()
        if not trunk.connected.done():
            trunk.connected.cancel()


async def ask_site(command: OpenTrunk) -> TrunkOpened:
    """Ask the site of the node by a workflow. Raises: Problem `unavailable`."""
    try:
        handle: WorkflowHandle[object, TrunkOpened] = await limited(
            client().start_workflow(
                TRUNK_OPENING,
                command,
                id=f"trunk/{command.trunk_id}",
                task_queue=queues.MAIN,
                result_type=TrunkOpened,
                execution_timeout=timedelta(seconds=2 * OPEN_LIMIT_S),
                static_summary=f"sessions of {command.run_id}",
            ),
            f"trunk/{command.trunk_id}",
        )
        return await handle.result()
    except (RPCError, ApplicationError, WorkflowFailureError) as error:
        log.warning("no trunk to the site of %s: %s", command.run_id, error)
        raise Problem("unavailable", f"{command.run_id}: Temporal does not answer") from error


def _command(trunk: Trunk, token: str) -> OpenTrunk:
    place = trunk.place
    about = (trunk.id, place.run_id, place.node.node_id)
    order = TrunkOrder(url=settings().own_sessions_url, token=token)
    sealed = seal_order(place.node.region_id, about, order)
    return OpenTrunk(node=place.node, trunk_id=trunk.id, run_id=place.run_id, sealed=sealed)


def _unreached(trunk: Trunk, reason: str) -> Problem:
    place = trunk.place
    return Problem(
        "unavailable",
        f"{place.name}: the site of {place.host} does not connect: {reason}",
    )


def _is_right(token: str, sha256: bytes) -> bool:
    return hmac.compare_digest(hash_of_token(token), sha256)


async def _until_disconnected(socket: WebSocket) -> None:
    while (await socket.receive())["type"] != "websocket.disconnect":
        continue
