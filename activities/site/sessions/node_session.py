"""One session on a node: the frames of the agent's verb, and what is said to it."""

import asyncio
import contextlib
import struct
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from typing import Any

from temporalio.exceptions import ApplicationError

from activities.site.answers.reading import Speaker, violation
from activities.site.answers.session_frames import (
    HEADER,
    MOST_FRAME_BYTES,
    SessionFrame,
    SessionStarted,
    session_frames,
)
from activities.site.node_client import NodeClient
from activities.site.run_names import RunNames
from activities.transport.stream import NodeStream
from workflows.contracts import errors
from workflows.contracts.nodes import NodeAddress
from workflows.contracts.sessions import Port, Terminal

BEGIN_LIMIT_S = 45.0
"""How long the agent may take to enter a run, or to connect to a port of it."""
BEAT_INTERVAL_S = 15.0
"""Less than the silence after which the agent ends a session whose site has gone."""
MOST_OF_RUN = 128
"""How many sessions one run has on its node at once, whatever lines and channels they come by: each
is a process of root's there, which counts for no limit of the run."""
TOO_MANY = "too-many-sessions"
_open: Counter[tuple[str, str]] = Counter()
_DATA, _EOF, _RESIZE, _SIGNAL, _BEAT = range(5)


class NodeSession:
    """A command or a connection in a run's isolation, as the agent serves it."""

    def __init__(self, stream: NodeStream, frames: AsyncIterator[SessionFrame]) -> None:
        self._stream = stream
        self.frames = frames

    async def data(self, content: bytes) -> None:
        """Send bytes, as fast as the job reads them."""
        for start in range(0, len(content), MOST_FRAME_BYTES):
            await self._say(_DATA, content[start : start + MOST_FRAME_BYTES])

    async def eof(self) -> None:
        """Send no more bytes."""
        await self._say(_EOF)

    async def resize(self, rows: int, columns: int) -> None:
        await self._say(_RESIZE, struct.pack(">HH", rows, columns))

    async def signal(self, number: int) -> None:
        """Send a signal to the command's process group."""
        await self._say(_SIGNAL, bytes([number]))

    async def beat(self) -> None:
        """Tell the agent again and again that the site is there."""
        while True:
            await asyncio.sleep(BEAT_INTERVAL_S)
            await self._say(_BEAT)

    async def _say(self, kind: int, payload: bytes = b"") -> None:
        await self._stream.write(HEADER.pack(kind, len(payload)) + payload)


class RunDoor:
    """The way into the isolation of one run on its node."""

    def __init__(self, node: NodeAddress, run_id: str) -> None:
        self._client = NodeClient(node)
        self._counted = (node.node_id, run_id)
        self._run_name = RunNames(node).of(run_id)

    @contextlib.asynccontextmanager
    async def command(
        self, arguments: tuple[str, ...], terminal: Terminal | None
    ) -> AsyncGenerator[NodeSession]:
        """A command, or a shell without arguments, for as long as the block runs.

        Raises: ApplicationError, as `NodeClient`.
        """
        asked = {
            "arguments": list(arguments) or None,
            "terminal": terminal.model_dump() if terminal else None,
        }
        async with self._session("run_command", asked) as session:
            yield session

    @contextlib.asynccontextmanager
    async def port(self, port: Port) -> AsyncGenerator[NodeSession]:
        """A connection to a port of the run, for as long as the block runs.

        Raises: ApplicationError, as `NodeClient`.
        """
        async with self._session("connect_port", {"port": port}) as session:
            yield session

    @contextlib.asynccontextmanager
    async def _session(self, verb: str, asked: dict[str, Any]) -> AsyncGenerator[NodeSession]:
        request, by = {"run_id": self._run_name, **asked}, self._client.speaker(verb)
        with _counting(self._counted):
            async with self._opened(verb, request, by) as session:
                yield session

    @contextlib.asynccontextmanager
    async def _opened(
        self, verb: str, request: dict[str, Any], by: Speaker
    ) -> AsyncGenerator[NodeSession]:
        async with self._client.stream(verb, request, eof=False) as stream:
            frames = session_frames(stream, by)
            first = await _first(frames, verb)
            if not isinstance(first, SessionStarted):
                found = None if first is None else type(first).__name__
                raise violation(by, "frame", "says first that the session has begun", found)
            session = NodeSession(stream, frames)
            heartbeats = asyncio.create_task(session.beat(), name="session-beat")
            try:
                yield session
            finally:
                heartbeats.cancel()
                with contextlib.suppress(BaseException):
                    await heartbeats


@contextlib.contextmanager
def _counting(run: tuple[str, str]) -> Generator[None]:
    """Count a session while the block runs. Raises: ApplicationError, `too-many-sessions`."""
    if _open[run] >= MOST_OF_RUN:
        words = f"{run[1]}: has {MOST_OF_RUN} sessions open, which is the limit"
        raise ApplicationError(words, {"code": TOO_MANY}, type=errors.REFUSED)
    _open[run] += 1
    try:
        yield
    finally:
        _open[run] -= 1
        if not _open[run]:
            del _open[run]


async def _first(frames: AsyncIterator[SessionFrame], verb: str) -> SessionFrame | None:
    """The first frame; None: there is none. Raises: ApplicationError, when none comes in time."""
    try:
        async with asyncio.timeout(BEGIN_LIMIT_S):
            return await anext(frames, None)
    except TimeoutError:
        words = f"{verb}: no answer of the node within {BEGIN_LIMIT_S:g} s"
        raise ApplicationError(words, type=errors.NODE_UNREACHABLE) from None
