"""The commands that reach a running job: exec, ssh, forward, link."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import sys
import threading
from collections.abc import Generator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from baseload.commands.app import new_app
from baseload.commands.command_index import INTERRUPTED
from baseload.commands.lookup import find_open_job
from baseload.commands.session import MistakeError, NegativeError, Session, command

if TYPE_CHECKING:
    from baseload.sessions import Session as JobSession

app = new_app()
Reference = Annotated[str, typer.Argument(help="id or name")]
Worker = Annotated[int, typer.Option(help="of a job with several workers")]
READ_BYTES = 64 << 10
KILLED = 128
LEAVING_S = 1.0
"""How soon after the end of its session a client of SSH closes its streams, if it has left."""
HOST = ".baseload"
"""The end of a host name for ssh that stands for a job."""


@command(app, "exec")
def exec_(
    session: Session,
    job: Reference,
    arguments: Annotated[list[str], typer.Argument(help="after --: the command", metavar="-- CMD")],
    worker: Worker = 0,
    tty: Annotated[bool, typer.Option("--tty", "-t", help="with a terminal")] = False,
) -> None:
    """Run a command in a running job, as its own command; its exit code is that of the command."""
    request = {"kind": "command", "arguments": arguments, "terminal": _terminal() if tty else None}
    _run(session, job, worker, request)


@command(app)
def ssh(
    session: Session,
    job: Reference,
    worker: Worker = 0,
    stdio: Annotated[
        bool, typer.Option("--stdio", help="speak SSH on stdin and stdout: a ProxyCommand of ssh")
    ] = False,
) -> None:
    """A shell in a running job, or with --stdio the way in for ssh, scp, sftp and editors."""
    if stdio:
        _run(session, job.removesuffix(HOST), worker, {"kind": "ssh"})
        return
    terminal = _terminal() if sys.stdin.isatty() else None
    _run(session, job, worker, {"kind": "command", "arguments": [], "terminal": terminal})


@command(app)
def forward(
    session: Session,
    job: Reference,
    ports: Annotated[str, typer.Argument(help="PORT[:LOCAL]; default: the job's own port")] = "",
    worker: Worker = 0,
) -> None:
    """Listen on 127.0.0.1 and carry each connection to a port of a running job; Ctrl-C ends it."""
    found = find_open_job(session, job)
    port, local = _ports(ports, found.get("port"))
    asyncio.run(_forward(session, found["id"], worker, (port, local)))


@command(app)
def link(session: Session, job: Reference, worker: Worker = 0) -> None:
    """Print a link for a browser to what a job serves at its port.

    It is good once, and for two minutes.
    """
    found = find_open_job(session, job)
    made = session.post(f"/v1/jobs/{found['id']}/link", worker=worker)
    if session.screen.as_json:
        session.screen.json(made)
        return
    session.screen.result(made["url"])
    if not made["ready"]:
        session.screen.say(f"{found['name']} does not answer at its port {found['port']} yet")


def _ports(text: str, own: int | None) -> tuple[int, int]:
    remote, _, local = text.partition(":")
    try:
        port = int(remote or own or 0)
        at = int(local) if local else port
    except ValueError:
        port = at = 0
    if not (0 < port < 65536 and 0 <= at < 65536):
        raise MistakeError(f"{text or 'PORT'}: want PORT or PORT:LOCAL, each up to 65535")
    return port, at


def _terminal() -> dict[str, Any]:
    rows, columns = _size()
    return {"rows": rows, "columns": columns, "type": os.environ.get("TERM") or "xterm"}


def _size() -> tuple[int, int]:
    with contextlib.suppress(OSError):
        size = os.get_terminal_size(sys.stdin.fileno())
        return size.lines or 24, size.columns or 80
    return 24, 80


def _run(session: Session, job: str, worker: int, request: dict[str, Any]) -> None:
    found = find_open_job(session, job)
    has_terminal = request.get("terminal") is not None and sys.stdin.isatty()
    with _raw() if has_terminal else contextlib.nullcontext():
        last = asyncio.run(_session(session, found["id"], worker, request))
    raise typer.Exit(_status(last))


def _status(last: dict[str, Any]) -> int:
    from baseload.sessions import refused

    if last.get("type") == "refused":
        raise refused(last)
    if last.get("reason") == "run-ended":
        raise NegativeError("the job has ended, and the session with it")
    if last.get("signal") is not None:
        return KILLED + int(last["signal"])
    return int(last.get("exit_code") or 0)


async def _session(
    session: Session, job_id: str, worker: int, request: dict[str, Any]
) -> dict[str, Any]:
    from baseload.sessions import open_session

    configuration = session.transport.configuration
    async with open_session(configuration, job_id, request, worker) as opened:
        sending = asyncio.create_task(_send_stdin(opened))
        _pass_signals(opened, has_terminal=request.get("terminal") is not None)
        try:
            last = await _print(opened)
            if request["kind"] == "ssh" and last.get("code") == "session-lost":
                await asyncio.wait((sending,), timeout=LEAVING_S)
                if sending.done() and sending.result():  # The client of SSH left: nothing is lost.
                    return {"type": "exited", "exit_code": 0}
            return last
        finally:
            sending.cancel()


async def _print(opened: JobSession) -> dict[str, Any]:
    """Print what the job says until its last message, which is the answer."""
    while True:
        received = await opened.receive()
        if isinstance(received, tuple):
            number, content = received
            await asyncio.to_thread(_write_all, 2 if number == 2 else 1, content)
        elif received.get("type") in ("exited", "refused"):
            return received


def _write_all(descriptor: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]


async def _send_stdin(opened: JobSession) -> bool:
    """Send what comes on stdin, read by a thread: it may be a file, a pipe or a terminal.

    Answers whether stdin has ended; else the session has.
    """
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[bytes] = asyncio.Queue()
    room = threading.Semaphore(16)

    def read() -> None:
        content = b"-"
        while content:
            room.acquire()
            try:
                content = os.read(0, READ_BYTES)
            except OSError:
                content = b""
            try:
                loop.call_soon_threadsafe(pieces.put_nowait, content)
            except RuntimeError:  # The session is over.
                return

    threading.Thread(target=read, daemon=True, name="stdin").start()
    try:
        while content := await pieces.get():
            await opened.send(content)
            room.release()
    except ConnectionError:
        return False
    await _said(opened, "eof")
    return True


def _pass_signals(opened: JobSession, *, has_terminal: bool) -> None:
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Task[None]] = set()
    interrupts: list[bool] = []

    def say(kind: str, **fields: Any) -> None:
        task = loop.create_task(_said(opened, kind, **fields))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    def resized() -> None:
        rows, columns = _size()
        say("resize", rows=rows, columns=columns)

    def interrupted() -> None:
        if interrupts:
            os._exit(INTERRUPTED)
        interrupts.append(True)
        say("signal", number=int(signal.SIGINT))

    with contextlib.suppress(NotImplementedError, AttributeError):  # Not on every system.
        if has_terminal:
            loop.add_signal_handler(signal.SIGWINCH, resized)
        else:
            loop.add_signal_handler(signal.SIGINT, interrupted)


async def _said(opened: JobSession, kind: str, **fields: Any) -> None:
    with contextlib.suppress(ConnectionError):
        await opened.say(kind, **fields)


@contextlib.contextmanager
def _raw() -> Generator[None]:
    """The terminal passes each key on; it is as it was afterwards."""
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setraw(descriptor)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


async def _forward(session: Session, job_id: str, worker: int, ports: tuple[int, int]) -> None:
    port, local = ports
    configuration = session.transport.configuration

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from baseload.errors import BaseloadError
        from baseload.sessions import open_session

        request = {"kind": "port", "port": port}
        try:
            async with open_session(configuration, job_id, request, worker) as opened:
                await _carry(opened, reader, writer)
        except BaseloadError as error:
            session.screen.say(f"baseload: {error}")
        except ConnectionError:
            pass
        finally:
            writer.close()

    try:
        server = await asyncio.start_server(connected, "127.0.0.1", local)
    except OSError as cause:
        if cause.errno == errno.EADDRINUSE:
            text = f"127.0.0.1:{local} is taken here; choose another: {port}:0 takes a free one"
            raise MistakeError(text) from cause
        raise MistakeError(f"127.0.0.1:{local}: {cause.strerror or cause}") from cause
    at = server.sockets[0].getsockname()[1]
    session.screen.say(f"127.0.0.1:{at} is port {port} of {job_id}; Ctrl-C ends it")
    async with server:
        await server.serve_forever()


async def _carry(
    opened: JobSession, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    sending = asyncio.create_task(_send_from(reader, opened))
    try:
        while True:
            received = await opened.receive()
            if isinstance(received, tuple):
                writer.write(received[1])
                await writer.drain()
            elif received.get("type") == "eof":
                writer.write_eof()
            else:
                return
    finally:
        sending.cancel()


async def _send_from(reader: asyncio.StreamReader, opened: JobSession) -> None:
    with contextlib.suppress(ConnectionError):
        while content := await reader.read(READ_BYTES):
            await opened.send(content)
        await opened.say("eof")
