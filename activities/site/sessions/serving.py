"""One session served: the bytes between its line to the API and its place on the node."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from temporalio.exceptions import ApplicationError

from activities.secrets.session_keys import session_host_key
from activities.site.answers.reading import refusal_code
from activities.site.answers.session_frames import (
    SessionBytes,
    SessionEof,
    SessionExit,
    SessionFrame,
)
from activities.site.device_logs import LogBytes, device_log
from activities.site.sessions.lines import Line, LineClosedError
from activities.site.sessions.node_session import NodeSession, RunDoor
from activities.site.sessions.ssh import serve_ssh
from activities.temporal.first_of import first_of
from workflows.contracts.jobs import parse_run_id
from workflows.contracts.nodes import NodeAddress
from workflows.contracts.sessions import (
    STDERR,
    STDOUT,
    DeviceLogRequest,
    Eof,
    Exited,
    LogPlace,
    Opened,
    Refused,
    Resize,
    SessionKind,
    SessionRequest,
    Signal,
)

NODE_LOST = "node-lost"
REST_S = 10.0
"""How long what was said before the line has closed is passed on, to a job that may not read."""


async def serve_session(
    line: Line, node: NodeAddress, run_id: str, request: SessionRequest | DeviceLogRequest
) -> None:
    """Serve a session until either end of it closes; why it did not begin is said on the line.

    run_id: of the run; of a device whose log is read, its id.
    """
    try:
        if isinstance(request, DeviceLogRequest):
            async with device_log(node, request) as pieces:
                await line.say(Opened())
                await first_of(_carry_log(line, pieces), line.wait_closed())
            return
        door = RunDoor(node, run_id)
        if request.kind is SessionKind.SSH:
            key = session_host_key(node.region_id, parse_run_id(run_id)[0])
            await line.say(Opened())
            await serve_ssh(line, door, key)
        elif request.kind is SessionKind.PORT and request.port is not None:
            async with door.port(request.port) as session:
                await _carry(line, session)
        else:
            async with door.command(request.arguments, request.terminal) as session:
                await _carry(line, session)
    except ApplicationError as failure:
        with contextlib.suppress(LineClosedError):
            await line.say(_refused(failure))
    except LineClosedError:
        return


def _refused(failure: ApplicationError) -> Refused:
    code = refusal_code(failure) or NODE_LOST
    return Refused(code=code.replace("_", "-")[:64], detail=failure.message[:3000])


async def _carry(line: Line, session: NodeSession) -> None:
    await line.say(Opened())
    await first_of(_to_node(line, session), _from_node(line, session), _until_left(line))


async def _carry_log(line: Line, pieces: AsyncIterator[LogBytes]) -> None:
    """Carry a log to its end, with the place of all that does not follow on what was before."""
    end: LogPlace | None = None
    async for piece in pieces:
        if piece.place != end:
            await line.say(piece.place)
        await line.send(STDOUT, piece.payload)
        end = piece.end
    await line.say(Eof())


async def _until_left(line: Line) -> None:
    """Until the person has gone, of whom `_to_node` learns nothing while the job does not read."""
    await line.wait_closed()
    await asyncio.sleep(REST_S)


async def _to_node(line: Line, session: NodeSession) -> None:
    while True:
        match await line.receive():
            case bytes() as content:
                await session.data(content)
            case Eof():
                await session.eof()
            case Resize(rows=rows, columns=columns):
                await session.resize(rows, columns)
            case Signal(number=number):
                await session.signal(number)
            case _:
                raise LineClosedError("nothing that a person says")


async def _from_node(line: Line, session: NodeSession) -> None:
    async for frame in session.frames:
        await _tell(line, frame)
        if isinstance(frame, SessionExit):
            return


async def _tell(line: Line, frame: SessionFrame) -> None:
    match frame:
        case SessionBytes(is_error=is_error, payload=payload):
            await line.send(STDERR if is_error else STDOUT, payload)
        case SessionEof():
            await line.say(Eof())
        case SessionExit(exit_code=code, signal=number, reason=reason):
            await line.say(Exited(exit_code=code, signal=number, reason=reason))
        case _:
            return
