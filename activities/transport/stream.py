"""A verb that answers with bytes for as long as it runs."""

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
AGENT_REFUSED = 3
RUBBISH_BYTES = 1 << 20
"""The most that a login shell may print before our own command does."""


def encode(request: dict[str, Any]) -> bytes:
    """A request as the agent reads it: one line."""
    return json.dumps(request).encode() + b"\n"


class NodeStream:
    """Iterate over its chunks; `send` says more to the verb; `close` ends it.

    The iteration ends with the verb. Raises: OutcomeUnknown when the connection went before,
    AgentRefused, AgentBroke.
    """

    def __init__(
        self,
        process: asyncssh.SSHClientProcess[bytes],
        mark: str,
        let_go: Callable[[], None],
        words: str,
    ) -> None:
        self._process = process
        self._mark = mark
        self._let_go = let_go
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
        """Say one more line to the verb."""
        await self.write(encode(request))

    async def write(self, content: bytes) -> None:
        """Hand bytes to the verb, as fast as it takes them."""
        try:
            self._process.stdin.write(content)
            await self._process.stdin.drain()
        except (ConnectionError, asyncssh.Error) as error:
            await self._check_end()
            raise OutcomeUnknown(f"{self._words}: {error}") from error

    def write_eof(self) -> None:
        """There is nothing more to say."""
        self._process.stdin.write_eof()

    async def close(self) -> None:
        """End the verb's channel; doing it again changes nothing."""
        self._process.close()
        self._stderr.cancel()
        self._let_go()

    async def _read(self) -> AsyncIterator[bytes]:
        first = await self._skip_to_mark()
        if first:
            yield first
        while chunk := await self._next():
            yield chunk
        await self._check_end()

    async def _skip_to_mark(self) -> bytes:
        seen = b""
        while (rest := shell.after_mark(seen, self._mark)) is None:
            chunk = await self._next()
            if not chunk or len(seen) > RUBBISH_BYTES:
                await self._check_end()
                raise AgentBroke(f"{self._words}: ended without an answer")
            seen += chunk
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
    """Raise what the way in which a process ended means, if not well."""
    status = process.exit_status
    if status is None:
        raise OutcomeUnknown(f"{words}: the connection was lost before it had ended")
    if status == AGENT_REFUSED:
        with contextlib.suppress(ValueError, IndexError):
            refuse(json.loads(stderr.splitlines()[-1]))
    if status != 0:
        said = stderr.decode(errors="replace").strip()
        raise AgentBroke(f"{words}: exit status {status}: {said or 'it said nothing'}")


def refuse(answer: dict[str, Any]) -> None:
    """Raise AgentRefused unless the agent's answer is ok."""
    if not answer.get("ok"):
        error = answer.get("error") or {}
        raise AgentRefused(str(error.get("code")), str(error.get("message")))


async def _tail(reader: asyncssh.SSHReader[bytes]) -> bytes:
    kept = b""
    with contextlib.suppress(ConnectionError, asyncssh.Error):  # Its loss shows in stdout as well.
        while chunk := await reader.read(READ_BYTES):
            kept = (kept + chunk)[-STDERR_BYTES:]
    return kept
