"""The stream of a verb that answers with bytes for as long as the verb runs."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Any, Self

import asyncssh

from activities.transport import shell
from activities.transport.errors import AgentBroke, AgentRefused, OutcomeUnknown

READ_BYTES = 1 << 18
STDERR_BYTES = 4000
STDERR_AT_ONCE_BYTES = 16 << 20
STDERR_BYTES_PER_S = 1 << 20
"""The rate at which the rest of a verb's stderr is read."""
AGENT_REFUSED = 3
MOST_BANNER_BYTES = 1 << 20
"""The most bytes that a login shell may print before our command does."""


def encode(request: dict[str, Any]) -> bytes:
    """A request in the form that the agent reads: one line of JSON."""
    return json.dumps(request).encode() + b"\n"


class NodeStream:
    """The running verb: iterate over its chunks, `send` it more lines, `close` it.

    The iteration ends when the verb ends.
    Raises: OutcomeUnknown when the connection is lost before; AgentRefused, AgentBroke.
    """

    def __init__(
        self,
        process: asyncssh.SSHClientProcess[bytes],
        marker: str,
        release: Callable[[], None],
        words: str,
    ) -> None:
        self._process = process
        self._marker = marker
        self._release = release
        self._words = words
        self._stderr = asyncio.ensure_future(_tail(process.stderr))
        self._chunks = self._read()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._chunks

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def send(self, request: dict[str, Any]) -> None:
        """Send one more line to the verb. Raises: as `write`."""
        await self.write(encode(request))

    async def write(self, content: bytes) -> None:
        """Send bytes to the verb, as fast as the verb reads them.

        Raises: OutcomeUnknown when the connection is lost; AgentRefused or AgentBroke when the verb
        has ended.
        """
        try:
            self._process.stdin.write(content)
            await self._process.stdin.drain()
        except (ConnectionError, asyncssh.Error) as error:
            await self._check_end()
            raise OutcomeUnknown(f"{self._words}: {error}") from error

    def write_eof(self) -> None:
        """Close the verb's input."""
        self._process.stdin.write_eof()

    async def close(self) -> None:
        """Close the verb's channel; a repeat changes nothing."""
        self._process.close()
        self._stderr.cancel()
        self._release()

    async def _read(self) -> AsyncIterator[bytes]:
        first = await self._skip_to_marker()
        if first:
            yield first
        while chunk := await self._next():
            yield chunk
        await self._check_end()

    async def _skip_to_marker(self) -> bytes:
        read = b""
        while (rest := shell.after_marker(read, self._marker)) is None:
            chunk = await self._next()
            if not chunk or len(read) > MOST_BANNER_BYTES:
                await self._check_end()
                raise AgentBroke(f"{self._words}: ended without an answer")
            read += chunk
        return rest

    async def _next(self) -> bytes:
        try:
            return await self._process.stdout.read(READ_BYTES)
        except (ConnectionError, asyncssh.Error) as error:
            raise OutcomeUnknown(f"{self._words}: {error}") from error

    async def _check_end(self) -> None:
        await self._process.wait_closed()
        check_end(self._process, await self._stderr, self._words)


def check_end(process: asyncssh.SSHClientProcess[bytes], stderr: bytes, words: str) -> None:
    """Check that a verb's process has ended with success.

    Raises: OutcomeUnknown when the connection was lost before its end; AgentRefused when the agent
    refused the request of a stream; AgentBroke for any other exit status.
    """
    status = process.exit_status
    if status is None:
        raise OutcomeUnknown(f"{words}: the connection was lost before the verb ended")
    if status == AGENT_REFUSED and stderr.strip():
        raise AgentRefused(words, stderr.strip().rpartition(b"\n")[2])
    if status != 0:
        output = stderr.decode(errors="replace").strip()
        raise AgentBroke(f"{words}: exit status {status}: {output or 'no message'}")


async def paced(reader: asyncssh.SSHReader[bytes], most_bytes: int) -> AsyncIterator[bytes]:
    """The chunks of stderr, at most so many bytes each: slowly, once they are more than our agent
    ever says, so that a machine that says nothing else takes no time from others."""
    read = 0
    while chunk := await reader.read(most_bytes):
        yield chunk
        read += len(chunk)
        if read > STDERR_AT_ONCE_BYTES:
            await asyncio.sleep(len(chunk) / STDERR_BYTES_PER_S)


async def _tail(reader: asyncssh.SSHReader[bytes]) -> bytes:
    kept = b""
    with contextlib.suppress(ConnectionError, asyncssh.Error):  # Reading stdout raises the loss.
        async for chunk in paced(reader, READ_BYTES):
            kept = (kept + chunk)[-STDERR_BYTES:]
    return kept
