"""The connections to nodes over SSH: verbs of the agent, streams, files.

A channel may be lost at any time, and the request is then repeated. Commands that must outlive a
connection are started by the agent as supervised runs.
"""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import asyncssh

from activities.transport import pinned, shell
from activities.transport.agent_archive import agent_archive
from activities.transport.endpoint import NodeEndpoint
from activities.transport.errors import (
    AgentBroke,
    LoginRefused,
    NodeUnreachable,
    OutcomeUnknown,
    ProtocolViolation,
)
from activities.transport.pool import IDLE_S, Link, LinkPool
from activities.transport.stream import (
    MOST_BANNER_BYTES,
    READ_BYTES,
    STDERR_BYTES,
    NodeStream,
    check_end,
    encode,
    paced,
)

FILE_CHUNK_BYTES = 4 << 20
SURVEY_S = 30.0
OPEN_S = 60.0
CHANNEL_TRIES = 3
CLOSED = "SSH connection closed"
"""The message of asyncssh; a server without free sessions has the same code, not the message."""
CHANNEL_NEVER_OPENED = (
    asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED,
    asyncssh.OPEN_CONNECT_FAILED,
    asyncssh.OPEN_RESOURCE_SHORTAGE,
)
WINDOW_BYTES = 4 << 20
MOST_ANSWER_BYTES = 1 << 20
"""The most bytes of an answer; what runs on a node is some hundred bytes each in it."""
MOST_LINE_BYTES = 64 << 10
MOST_PROGRESS_BYTES = 1000
MOST_PROGRESS_LINES = 10
"""Of what is read at once: the latest is what counts, and a machine may say nothing but lines."""
MOST_PATH_BYTES = 4096

Progress = Callable[[str], None]
Source = Path | Iterable[bytes] | AsyncIterable[bytes]
Answer = TypeVar("Answer")


class NodeConnections:
    """All connections of one process to nodes, for one event loop and any number of calls at once.

    client_key: path of a private key, its text as OpenSSH writes it, or the key itself.
    own_key: the text of the private key of a machine that has one of its own, by its minion id; it
    is not kept here. None: no machine has one.
    """

    def __init__(
        self,
        client_key: Path | bytes | asyncssh.SSHKey,
        *,
        own_key: Callable[[str], bytes] | None = None,
        idle_s: float = IDLE_S,
    ) -> None:
        self._client_key = client_key
        self._own_key = own_key
        self._pool = LinkPool(self._open_link, idle_s)

    async def call(
        self,
        address: NodeEndpoint,
        verb: str,
        request: dict[str, Any],
        *,
        limit_s: float,
        on_progress: Progress | None = None,
    ) -> bytes:
        """Run one verb and return its answer, unread; `on_progress` gets the lines of its progress.

        Raises: NodeUnreachable, HostKeyMismatch, LoginRefused (nothing was done), OutcomeUnknown
        (lost connection or timeout: poll again), AgentBroke, ProtocolViolation.
        """
        words = f"node {address}: {verb}"

        async def use(link: Link) -> bytes:
            marker = shell.new_marker()
            process = await _open(link, verb, marker)
            async with contextlib.AsyncExitStack() as closing:
                closing.callback(process.close)
                with contextlib.suppress(BrokenPipeError):  # `check_end` raises the cause.
                    process.stdin.write(encode({"root": link.root, **request}))
                    process.stdin.write_eof()
                output, stderr = await _heard(process, on_progress)
                check_end(process, stderr, words)
            answer = (shell.after_marker(output, marker) or b"").strip()
            if not answer:
                raise AgentBroke(f"{words}: ended without an answer")
            return answer

        return await self._use(address, use, limit_s, words)

    async def stream(
        self, address: NodeEndpoint, verb: str, request: dict[str, Any], *, eof: bool = True
    ) -> NodeStream:
        """Start a verb that answers with bytes; the caller closes the stream.

        eof: whether to close the verb's input. `watch` takes further lines and needs False.
        Raises: as `call`, and AgentRefused; reading the stream may raise the same errors later.
        """
        words = f"node {address}: {verb}"

        async def use(link: Link) -> NodeStream:
            marker = shell.new_marker()
            process = await _open(link, verb, marker)
            stream = NodeStream(process, marker, self._pool.hold(address, link), words)
            try:
                await stream.send({"root": link.root, **request})
            except BaseException:  # Also when cancelled, because we must close the channel.
                await stream.close()
                raise
            if eof:
                stream.write_eof()
            return stream

        return await self._use(address, use, OPEN_S, words)

    async def feed(
        self,
        address: NodeEndpoint,
        verb: str,
        request: dict[str, Any],
        source: Source,
        *,
        limit_s: float,
    ) -> None:
        """Run a verb that takes bytes, such as `put_input`. Raises: as `stream`."""
        async with (
            _limited(limit_s, f"node {address}: {verb}"),
            await self.stream(address, verb, request, eof=False) as stream,
        ):
            async for chunk in _chunks(source):
                await stream.write(chunk)
            stream.write_eof()
            async for _ in stream:
                pass

    async def put_file(
        self,
        address: NodeEndpoint,
        source: Source,
        remote_path: str,
        *,
        limit_s: float = 3600.0,
        on_bytes: Callable[[int], None] | None = None,
    ) -> str:
        """Put a file on the node, whole or not at all, with mode 0600, and return its path there.

        remote_path: a relative path is under the agent's root; missing folders are made.
        on_bytes: called with the number of bytes sent so far.
        Raises: as `call`.
        """

        async def use(link: Link) -> str:
            path = remote_path if remote_path.startswith("/") else f"{link.root}/{remote_path}"
            async with link.connection.start_sftp_client() as sftp:
                await _put(sftp, source, path, on_bytes)
            return path

        return await self._use(address, use, limit_s, f"node {address}: put {remote_path}")

    async def close(self) -> None:
        """Close every connection; the runs on the nodes go on."""
        await self._pool.close()

    async def _use(
        self,
        address: NodeEndpoint,
        use: Callable[[Link], Awaitable[Answer]],
        limit_s: float,
        words: str,
    ) -> Answer:
        """Use a link; retry over another link when the server opens no channel.

        Without a channel nothing was done: the connection was lost unnoticed, or the server allows
        fewer sessions than we assumed.
        """
        async with _limited(limit_s, words):
            for _ in range(CHANNEL_TRIES):
                async with self._pool.link(address) as link:
                    try:
                        return await use(link)
                    except asyncssh.ChannelOpenError as error:
                        if error.code not in CHANNEL_NEVER_OPENED:
                            raise OutcomeUnknown(f"{words}: {error}") from error
                        link.note_refusal(is_gone=error.reason == CLOSED)
                        refused = error
                    except asyncssh.SFTPError as error:
                        if link.is_broken():
                            raise OutcomeUnknown(f"{words}: {error}") from error
                        raise AgentBroke(f"{words}: {error.reason}") from error
                    except (ConnectionError, asyncssh.Error) as error:
                        raise OutcomeUnknown(f"{words}: {error}") from error
            raise NodeUnreachable(address.host, address.port, str(refused)) from refused

    async def _open_link(self, endpoint: NodeEndpoint) -> Link:
        connection = await pinned.connect(endpoint, await self._key_of(endpoint))
        try:
            async with _limited(SURVEY_S, f"node {endpoint}: first contact"):
                return await _with_agent(connection, endpoint)
        except BaseException:  # Also when cancelled, because nothing else closes the connection.
            connection.abort()
            raise

    async def _key_of(self, endpoint: NodeEndpoint) -> asyncssh.SSHKey:
        if not endpoint.has_own_key:
            return await self._key()
        if self._own_key is None:
            raise LoginRefused(f"node {endpoint}: has a key of its own, which is not known here")
        return asyncssh.import_private_key(self._own_key(endpoint.minion_id))

    async def _key(self) -> asyncssh.SSHKey:
        if isinstance(self._client_key, Path):
            self._client_key = await asyncio.to_thread(asyncssh.read_private_key, self._client_key)
        elif isinstance(self._client_key, bytes):
            self._client_key = asyncssh.import_private_key(self._client_key)
        return self._client_key


async def _with_agent(connection: asyncssh.SSHClientConnection, endpoint: NodeEndpoint) -> Link:
    """A link over the connection, with this version of the agent installed on the node."""
    agent = agent_archive()
    marker = shell.new_marker()
    words = f"node {endpoint}: first contact"
    try:
        command = shell.survey(endpoint, marker, agent)
        process = await connection.create_process(command, encoding=None)
        async with contextlib.AsyncExitStack() as closing:
            closing.callback(process.close)
            output, stderr = await _heard(process, None)
    except (ConnectionError, asyncssh.Error) as error:
        raise OutcomeUnknown(f"{words}: {error}") from error
    if process.exit_status is None:
        raise OutcomeUnknown(f"{words}: the connection was lost")
    said = (shell.after_marker(output, marker) or b"")[: 3 * MOST_PATH_BYTES]
    lines = said.decode(errors="replace").splitlines()
    if process.exit_status != 0 or len(lines) != 3:
        raise AgentBroke(f"{words}: {stderr.decode(errors='replace').strip()}")
    root, python, sha256 = lines
    link = Link(connection, root, f"{root}/agent/{agent.name}", python)
    if sha256 != agent.sha256:
        await _put_agent(link, words)
    return link


async def _put_agent(link: Link, words: str) -> None:
    try:
        async with link.connection.start_sftp_client() as sftp:
            await _put(sftp, [agent_archive().content], link.archive, None)
    except asyncssh.SFTPError as error:
        raise AgentBroke(f"{words}: {link.archive}: {error.reason}") from error
    except (ConnectionError, asyncssh.Error) as error:
        raise OutcomeUnknown(f"{words}: {error}") from error


async def _open(link: Link, verb: str, marker: str) -> asyncssh.SSHClientProcess[bytes]:
    command = shell.verb(link.python, link.archive, verb, marker)
    return await link.connection.create_process(command, encoding=None, window=WINDOW_BYTES)


@contextlib.asynccontextmanager
async def _limited(limit_s: float, words: str) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(limit_s) as limit:
            yield
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise OutcomeUnknown(f"{words}: no answer within {limit_s:g} s") from error


async def _follow(reader: asyncssh.SSHReader[bytes], on_progress: Progress | None) -> bytes:
    """Pass lines to `on_progress`, its end alone of a long one; return the last bytes of all.

    Of many lines at once the latest are passed. A line that never ends is not kept.
    """
    kept = line = b""
    async for chunk in paced(reader, MOST_LINE_BYTES):
        kept = (kept + chunk)[-STDERR_BYTES:]
        *lines, line = (line + chunk).split(b"\n")
        line = line[-MOST_LINE_BYTES:]
        for each in lines[-MOST_PROGRESS_LINES:]:
            if on_progress is not None:
                on_progress(each[-MOST_PROGRESS_BYTES:].decode(errors="replace"))
    return kept


async def _heard(
    process: asyncssh.SSHClientProcess[bytes], on_progress: Progress | None
) -> tuple[bytes, bytes]:
    """All that a process says until its end, and the last bytes that it says on stderr.

    Raises: ProtocolViolation, when it says more than any answer of the agent has.
    """
    output, stderr = await asyncio.gather(
        _read_all(process.stdout), _follow(process.stderr, on_progress)
    )
    await process.wait_closed()
    return output, stderr


async def _read_all(reader: asyncssh.SSHReader[bytes]) -> bytes:
    output = bytearray()
    while chunk := await reader.read(READ_BYTES):
        output += chunk
        if len(output) > MOST_BANNER_BYTES + MOST_ANSWER_BYTES:
            raise ProtocolViolation("answer", f"has at most {MOST_ANSWER_BYTES} bytes", "more")
    return bytes(output)


async def _put(
    sftp: asyncssh.SFTPClient,
    source: Source,
    path: str,
    on_bytes: Callable[[int], None] | None,
) -> None:
    part = f"{path}.part-{secrets.token_hex(6)}"
    await sftp.makedirs(path.rpartition("/")[0], exist_ok=True)
    sent = 0
    try:
        async with sftp.open(part, "wb", asyncssh.SFTPAttrs(permissions=0o600)) as file:
            async for chunk in _chunks(source):
                await file.write(chunk)
                sent += len(chunk)
                if on_bytes is not None:
                    on_bytes(sent)
        await sftp.posix_rename(part, path)
    except BaseException:  # Also when cancelled: remove the incomplete file.
        with contextlib.suppress(OSError, asyncssh.Error):
            await asyncio.wait_for(sftp.remove(part), 5)
        raise


async def _chunks(source: Source) -> AsyncIterator[bytes]:
    if isinstance(source, Path):
        with await asyncio.to_thread(source.open, "rb") as file:
            while chunk := await asyncio.to_thread(file.read, FILE_CHUNK_BYTES):
                yield chunk
    elif isinstance(source, AsyncIterable):
        async for chunk in source:
            yield chunk
    else:
        for chunk in source:
            yield chunk
