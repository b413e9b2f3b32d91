"""Leaving a process: its status, its signals, its limit, and no crash with Temporal's threads."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from workers.runner.probes import answers, free_port
from workers.runner.process_records import wait_until
from workers.runner.programs import LOOPBACK, temporal_program
from workers.runner.settings import CHECKOUT, RunnerSettings
from workers.runner.stack import Probe

STARTS_AND_STOPS = 4


class Process:
    """A Python program under test, with its output line by line."""

    def __init__(self, program: str, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(program), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=CHECKOUT,
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def end(self) -> tuple[int, str]:
        output, _ = self.process.communicate(timeout=30)
        return self.process.returncode, output


def test_the_status_of_main_is_the_status_of_the_process_and_output_is_flushed() -> None:
    process = Process("""
        import sys
        from workers.process import run_process
        async def main(stop):
            sys.stdout.write("no newline, no flush")
            return 7
        run_process(main)
    """)
    assert process.end() == (7, "no newline, no flush")


def test_an_error_in_main_is_logged_and_gives_status_1() -> None:
    status, output = Process("""
        from workers.process import run_process
        async def main(stop):
            raise ValueError("the cause")
        run_process(main)
    """).end()
    assert status == 1
    assert "the cause" in output


WAITS = """
    import asyncio, sys
    from workers.process import run_process
    async def main(stop):
        print("ready", flush=True)
        await stop.wait()
        print("stopping", flush=True)
        {then}
        return 0
    run_process(main, shutdown_limit_s=1)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_asks_main_to_stop(number: signal.Signals) -> None:
    process = Process(WAITS.format(then="print('closed in order')"))
    assert process.line() == "ready"
    process.process.send_signal(number)
    assert process.end() == (0, "stopping\nclosed in order\n")


def test_a_signal_wakes_a_loop_that_has_nothing_to_do() -> None:
    process = Process("""
        import asyncio, pathlib, signal, threading
        from workers.process import run_process
        state = pathlib.Path(f"/proc/self/task/{threading.get_native_id()}/syscall")
        def signal_another_thread():
            waits = ("232", "281", "22")  # epoll_wait and epoll_pwait of x86_64 and aarch64
            while state.read_text().split()[0] not in waits:
                pass
            signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
        async def main(stop):
            threading.Thread(target=signal_another_thread).start()
            asyncio.get_running_loop().call_later(20, print, "woke by itself")
            await stop.wait()
            return 0
        run_process(main)
    """)
    assert process.end() == (0, "")


def test_a_second_signal_leaves_at_once() -> None:
    process = Process(WAITS.format(then="await asyncio.sleep(60)").replace("_s=1", "_s=60"))
    assert process.line() == "ready"
    process.process.terminate()
    assert process.line() == "stopping"
    process.process.send_signal(signal.SIGINT)
    status, output = process.end()
    assert status == 128 + signal.SIGINT
    assert "SIGINT again: leaving at once" in output


@pytest.mark.parametrize("then", ["await asyncio.sleep(60)", "__import__('time').sleep(60)"])
def test_a_shutdown_that_takes_too_long_is_cut_with_a_clear_line(then: str) -> None:
    process = Process(WAITS.format(then=then))
    assert process.line() == "ready"
    process.process.terminate()
    started = time.monotonic()
    status, output = process.end()
    assert status == 70
    assert "still stopping after SIGTERM after 1 s: leaving at once" in output
    assert time.monotonic() - started < 30, "the 60 s were not waited for"


def test_a_thread_that_never_ends_does_not_keep_the_process() -> None:
    status, output = Process("""
        import asyncio, time
        from workers.process import run_process
        async def main(stop):
            asyncio.get_running_loop().run_in_executor(None, time.sleep, 60)
            return 0
        run_process(main, shutdown_limit_s=1)
    """).end()
    assert status == 70
    assert "threads are still running" in output


SERVES = """
    import asyncio, sys
    from workers.process import run_process, serve_http
    async def app(scope, receive, send):
        if scope["type"] == "lifespan":
            while True:
                kind = (await receive())["type"]
                await send({"type": kind + ".complete"})
                if kind == "lifespan.shutdown":
                    print("lifespan ended", flush=True)
                    return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"data: 1\\n\\n", "more_body": True})
        await asyncio.sleep(600)
    run_process(lambda stop: serve_http(app, "127.0.0.1", int(sys.argv[1]), stop))
"""


def test_an_open_stream_does_not_keep_the_api() -> None:
    port = free_port()
    process = Process(SERVES, str(port))
    assert wait_until(lambda: answers(Probe(kind="port", host=LOOPBACK, port=port)), 60)
    with httpx.stream("GET", f"http://{LOOPBACK}:{port}/", timeout=30) as answer:
        lines = answer.iter_lines()
        assert next(lines) == "data: 1"
        process.process.terminate()
        started = time.monotonic()
        with contextlib.suppress(httpx.RemoteProtocolError):
            assert list(lines) == [""]
    status, output = process.end()
    assert status == 0, output
    assert time.monotonic() - started < 60, "the stream would last 600 s"
    assert "lifespan ended" in output


def test_a_port_in_use_is_one_clear_line() -> None:
    with socket.create_server((LOOPBACK, 0)) as holder:
        port = holder.getsockname()[1]
        status, output = Process(SERVES, str(port)).end()
    assert status == 1
    assert f"cannot listen on {LOOPBACK}:{port}: Address already in use" in output
    assert "Traceback" not in output


def test_what_waits_for_its_port_serves_once_it_is_free() -> None:
    waits = SERVES.replace("serve_http", "serve_http_once_free")
    with socket.create_server((LOOPBACK, 0)) as holder:
        port = holder.getsockname()[1]
        process = Process(waits, str(port))
        assert "cannot listen" in process.line()
    assert wait_until(lambda: answers(Probe(kind="port", host=LOOPBACK, port=port)), 60)
    process.process.terminate()
    status, output = process.end()
    assert status == 0, output


@pytest.fixture(scope="module")
def temporal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real dev server, as the runner starts it."""
    folder = tmp_path_factory.mktemp("temporal")
    settings = RunnerSettings(temporal_port=free_port(), ui_port=free_port())
    program = temporal_program(settings, folder)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(program.command, stdout=log, stderr=log)
    assert program.ready is not None
    probe = program.ready
    assert wait_until(lambda: answers(probe), 30), (folder / "log").read_text()
    yield f"127.0.0.1:{settings.temporal_port}"
    process.terminate()
    process.wait(15)


WORKER = """
    import asyncio, sys
    from concurrent.futures import ThreadPoolExecutor
    from temporalio import activity
    from temporalio.client import Client
    from temporalio.worker import Worker
    from workers.process import run_process

    @activity.defn
    def look() -> None: ...

    async def main(stop):
        client = await Client.connect(sys.argv[1])
        with ThreadPoolExecutor(4) as threads:
            worker = Worker(client, task_queue="q", activities=[look], activity_executor=threads)
            async with worker:
                print("ready", flush=True)
                await stop.wait()
        return 0
    run_process(main)
"""


async def test_worker_processes_never_crash_while_they_leave(temporal: str) -> None:
    limit = asyncio.Semaphore(4)

    async def start_and_stop() -> int:
        async with limit:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", textwrap.dedent(WORKER), temporal,
                stdout=asyncio.subprocess.PIPE, cwd=CHECKOUT,
            )  # fmt: skip
            assert process.stdout is not None
            assert await process.stdout.readline() == b"ready\n"
            process.terminate()
            return await process.wait()

    statuses = await asyncio.gather(*(start_and_stop() for _ in range(STARTS_AND_STOPS)))
    assert statuses == [0] * STARTS_AND_STOPS


def test_a_test_session_keeps_its_status_and_its_report(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        textwrap.dedent("""
        import pytest
        from workers.process import leave_pytest
        status = 0
        def pytest_sessionfinish(exitstatus):
            global status
            status = int(exitstatus)
        @pytest.hookimpl(trylast=True)
        def pytest_unconfigure():
            leave_pytest(status)
    """)
    )
    (tmp_path / "test_it.py").write_text(
        "def test_it() -> None:\n    raise AssertionError('why')\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--junitxml=report.xml"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "1 failed" in done.stdout
    assert "why" in (tmp_path / "report.xml").read_text()
