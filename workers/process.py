"""The shutdown of a process: the one module that handles SIGTERM and SIGINT and ends the process.

The Temporal SDK's native threads can crash an interpreter that finalises (exit 134 or 139), so no
process of ours finalises: it closes its resources in order, flushes its output, and ends by
`os._exit`.
"""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from types import FrameType
from typing import NoReturn

import structlog
import uvicorn
from uvicorn._types import ASGIApplication

from activities.settings import Settings, StartRefusedError, settings

SHUTDOWN_LIMIT_S = 10.0
HTTP_DRAIN_LIMIT_S = 2
FIRST_PORT_PAUSE_S, MOST_PORT_PAUSE_S = 1.0, 30.0
"""Between two attempts to listen at a port that another program has."""
PONG_LIMIT_S = 300
"""Long, because a person who pauses the output of a session answers no ping meanwhile."""
MOST_WEBSOCKET_BYTES = 64 << 20
"""The longest message, such as the picture of a notebook; those of sessions are far shorter."""
GRACE_S = 3
"""How long a Temporal worker that shuts down lets its activities end by themselves."""
EXIT_OVERRUN = 70
PRIVATE_UMASK = 0o077
"""Every file of ours is 0600 and every folder 0700, whoever starts the process."""
LOGIN_UMASK = 0o022
"""The umask of what serves logins, whose files other users of a machine must read."""

log = logging.getLogger("process")


def run_process(
    main: Callable[[asyncio.Event], Awaitable[int]],
    *,
    shutdown_limit_s: float = SHUTDOWN_LIMIT_S,
    set_up_logging: bool = True,
) -> NoReturn:
    """Run `main` until it returns its exit status, then end the process.

    main: gets the stop event, which the first SIGTERM or SIGINT sets; main must then return soon.
    The exit status is main's, 1 if main raised, 128 + signal after a second signal, and 70 if the
    shutdown took longer than `shutdown_limit_s`, counted from the signal and again from main's end.
    """
    os.umask(PRIVATE_UMASK)
    if set_up_logging:
        configure_logging(settings())
    status = _Departure(shutdown_limit_s).run(main)
    leave(status)


def leave(status: int) -> NoReturn:
    """Flush the output and end the process at once, without finalising the interpreter."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


def leave_pytest(session_status: int) -> NoReturn:
    """End a test session with its own status; call this last in `pytest_unconfigure`.

    By then the reports are written; only the interpreter's finalisation is skipped.
    """
    leave(int(session_status))


async def serve_http(app: ASGIApplication, host: str, port: int, stop: asyncio.Event) -> int:
    """Serve `app` until `stop` is set, and return the exit status.

    Streams that are still open are closed after two seconds. A port that is taken gives one
    clear line in the log and status 1.
    """
    try:
        listener = _listen(host, port)
    except OSError as error:
        log.error(  # noqa: TRY400 - the reason is the line; a traceback adds nothing
            "cannot listen on %s:%d: %s", host, port, error.strerror or error
        )
        return 1
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=HTTP_DRAIN_LIMIT_S,
        timeout_keep_alive=30,
        ws_max_size=MOST_WEBSOCKET_BYTES,
        ws_ping_timeout=PONG_LIMIT_S,
        ws_per_message_deflate=False,
    )
    server = _Server(config)
    log.info("serves http on %s:%d", host, listener.getsockname()[1])
    serving = asyncio.create_task(server.serve(sockets=[listener]), name="http")
    stopping = asyncio.create_task(stop.wait(), name="http-stop")
    await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
    server.should_exit = True
    stopping.cancel()
    await serving
    return 0 if server.started else 1


async def serve_http_once_free(
    app: ASGIApplication, host: str, port: int, stop: asyncio.Event
) -> int:
    """Serve `app` until `stop` is set, and return 0; while the port is taken, try it again."""
    pause_s = FIRST_PORT_PAUSE_S
    while await serve_http(app, host, port, stop) != 0 and not stop.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), pause_s)
        pause_s = min(2 * pause_s, MOST_PORT_PAUSE_S)
    return 0


def configure_logging(chosen: Settings) -> None:
    """Let structlog and logging write a line per record to stderr, as JSON if it is no terminal."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_renderers(chosen),
            ],
        )
    )
    logging.basicConfig(level=chosen.log_level, handlers=[handler], force=True)
    for chatty in ("alembic", "asyncssh", "httpx", "httpcore"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    # What goes wrong in a request is logged by the API itself, with the request's name.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)


def _renderers(chosen: Settings) -> list[structlog.typing.Processor]:
    as_json = not sys.stderr.isatty() if chosen.log_json is None else chosen.log_json
    if not as_json:
        return [structlog.dev.ConsoleRenderer()]
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]


def _listen(host: str, port: int) -> socket.socket:
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    # Named, for asyncio sends small answers at once only on sockets that say they are TCP.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(1024)
    except OSError:
        listener.close()
        raise
    return listener


class _Server(uvicorn.Server):
    """Uvicorn without its signal handling, which re-raises a signal after serving."""

    def capture_signals(self) -> contextlib.AbstractContextManager[None]:  # type: ignore[override]
        return contextlib.nullcontext()


@contextlib.contextmanager
def _woken_by_signals(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Let signals wake the loop: Python calls their handlers only once it has something to do.

    A signal that arrives just before the loop begins to wait would be handled after the wait.
    """
    woken, wakes = socket.socketpair()
    with woken, wakes:
        woken.setblocking(False)
        wakes.setblocking(False)
        loop.add_reader(woken, woken.recv, 4096)
        before = signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)
            loop.remove_reader(woken)


class _Departure:
    """The shutdown of one process: the stop event, the signals, and the limit on the shutdown."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._signals = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None

    def run(self, main: Callable[[asyncio.Event], Awaitable[int]]) -> int:
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            self._stop = asyncio.Event()
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, self._on_signal)
            with _woken_by_signals(self._loop):
                status = runner.run(self._guard(main, self._stop))
            # Closing the loop cancels the tasks that main left behind and joins its threads.
            self._limit("its tasks and threads are still running")
            runner.close()
        return status

    async def _guard(
        self, main: Callable[[asyncio.Event], Awaitable[int]], stop: asyncio.Event
    ) -> int:
        try:
            return await main(stop)
        except SystemExit as exit_asked:
            return exit_asked.code if isinstance(exit_asked.code, int) else 1
        except StartRefusedError as refused:
            log.error("does not start: %s", refused)  # noqa: TRY400 - the reason is the line
            return 1
        except Exception:  # Any error is logged, and the process ends as after any other end.
            log.exception("stopped by an error")
            return 1

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._signals += 1
        if self._signals > 1:
            self._leave_now(f"{signal.Signals(number).name} again: leaving at once", 128 + number)
        self._limit(f"still stopping after {signal.Signals(number).name}")
        if self._loop is not None and self._stop is not None:
            with contextlib.suppress(
                RuntimeError
            ):  # The loop is closed: the process is ending already.
                self._loop.call_soon_threadsafe(self._stop.set)

    def _limit(self, reason: str) -> None:
        """End the process after `limit_s`, whatever the event loop does then."""
        line = f"{reason} after {self._limit_s:g} s: leaving at once"
        timer = threading.Timer(self._limit_s, self._leave_now, args=(line, EXIT_OVERRUN))
        timer.daemon = True
        timer.start()

    def _leave_now(self, line: str, status: int) -> NoReturn:
        os.write(2, f"process {os.getpid()}: {line}\n".encode())
        os._exit(status)
