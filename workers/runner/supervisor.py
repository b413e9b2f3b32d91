"""The runner process: one task for each program, which starts it again whenever it ends."""

import asyncio
import fcntl
import os
import shutil
import signal
import sys
import time
from contextlib import suppress
from datetime import datetime
from io import BufferedWriter
from pathlib import Path

from workers.runner import probes, process_records
from workers.runner.stack import RUNNER, Program, Stack, make_folders

LOG_LIMIT_BYTES = 20_000_000
MARKER_RETRY_S = 0.5


async def supervise(stack: Stack, stop: asyncio.Event) -> int:
    """Keep the stack's programs running until `stop` is set, end them, and return the status."""
    make_folders(stack.home)
    with (stack.run / "runner.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another runner is running here: nothing to do")
            return 0
        process_records.write_record(stack.run, RUNNER, os.getpid())
        return await _Supervisor(stack, stop).run()


def say(text: str) -> None:
    """Write one line to the runner's log, which `make up` and `make demo` also show.

    If the disk is full, the line is lost, so that no program ends because of a log line.
    """
    with suppress(OSError):
        sys.stdout.write(f"{datetime.now().astimezone():%H:%M:%S} {text}\n")
        sys.stdout.flush()


class _Supervisor:
    def __init__(self, stack: Stack, stop: asyncio.Event) -> None:
        self._stack = stack
        self._stop = stop
        self._ready = {program.name: asyncio.Event() for program in stack.programs}

    async def run(self) -> int:
        keepers = [asyncio.create_task(self._keep(program)) for program in self._stack.programs]
        await self._stop.wait()
        for keeper in keepers:
            keeper.cancel()
        await asyncio.gather(*keepers, return_exceptions=True)
        gone = await self._end_all()
        if gone:
            process_records.forget(self._stack.run, RUNNER)
        return 0 if gone else 1

    async def _keep(self, program: Program) -> None:
        await self._gate(program)
        failures = 0
        while not self._stop.is_set():
            started = time.monotonic()
            ended = await self._run_once(program)
            run_s = time.monotonic() - started
            failures = 1 if run_s >= self._stack.backoff.reset_s else failures + 1
            delay_s = self._stack.backoff.delay_s(failures)
            say(f"{program.name} {ended} after {run_s:.1f} s: starting it again in {delay_s:g} s")
            await asyncio.sleep(delay_s)

    async def _gate(self, program: Program) -> None:
        """Wait for the programs that this program needs, but at most `gate_s`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(program.gate_s):
                for name in program.after:
                    await self._ready[name].wait()

    async def _run_once(self, program: Program) -> str:
        """Run the program until it ends, and return how it ended, in words."""
        try:
            _discard_incomplete_files(program)
            process = await self._start(program)
        except OSError as error:
            return f"cannot be started ({program.command[0]}: {error.strerror})"
        try:
            record = process_records.write_record(self._stack.run, program.name, process.pid)
        except OSError as error:  # Without a record, `down` could not find it.
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
            return f"was ended: its record cannot be written ({error.strerror}: {self._stack.run})"
        watch = asyncio.create_task(self._watch_ready(program))
        try:
            status = await process.wait()
        finally:
            watch.cancel()
        if record:  # Processes that the program has left would hold its ports and files.
            await asyncio.to_thread(process_records.end, record, 1.0)
        with suppress(OSError):  # The record of an ended process does no harm.
            process_records.forget(self._stack.run, program.name)
        return f"ended by signal {-status}" if status < 0 else f"ended with status {status}"

    async def _start(self, program: Program) -> asyncio.subprocess.Process:
        with open_log(self._stack.log(program.name)) as log:
            return await asyncio.create_subprocess_exec(
                *program.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._stack.working_directory,
                env={
                    **os.environ,
                    **program.environment,
                    process_records.STACK_VARIABLE: str(self._stack.home),
                },
                start_new_session=True,
                umask=program.umask,
            )

    async def _watch_ready(self, program: Program) -> None:
        started = time.monotonic()
        probe = program.ready
        # Another process has no event to wait for: poll until it answers or has ended.
        while probe and not await asyncio.to_thread(probes.answers, probe):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        if program.bootstrap:
            await _write_marker(program.bootstrap.marker)
        self._ready[program.name].set()
        if probe:
            say(f"{program.name} is ready after {time.monotonic() - started:.1f} s")

    async def _end_all(self) -> bool:
        """End the programs, those that others need last; whether all have ended."""
        left = list(self._stack.programs)
        gone = True
        while left:
            needed = {name for program in left for name in program.after}
            leaves = [program for program in left if program.name not in needed] or left
            ended = await asyncio.gather(*(asyncio.to_thread(self._end, each) for each in leaves))
            gone = gone and all(ended)
            left = [program for program in left if program not in leaves]
        return gone

    def _end(self, program: Program) -> bool:
        record = process_records.read_record(self._stack.run, program.name)
        if record is None:
            return True
        gone = process_records.end(record, program.stop_limit_s)
        if gone:
            process_records.forget(self._stack.run, program.name)
        say(f"{program.name} {'ended' if gone else 'could not be ended'} (pid {record.pid})")
        return gone


async def _write_marker(marker: Path) -> None:
    """Retry until the marker is written: without it, the next start deletes the created files."""
    while True:
        try:
            await asyncio.to_thread(marker.touch)
        except OSError:  # The disk is full.
            await asyncio.sleep(MARKER_RETRY_S)
        else:
            return


def open_log(path: Path) -> BufferedWriter:
    """The log, open for appending; a log over 20 MB is renamed first."""
    with suppress(OSError):
        if path.stat().st_size > LOG_LIMIT_BYTES:
            path.replace(path.with_suffix(".log.1"))
    return path.open("ab")


def _discard_incomplete_files(program: Program) -> None:
    first = program.bootstrap
    if first is None or first.marker.exists():
        return
    for path in first.discard:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
