"""The commands `up`, `down` and `status` of a stack, from outside of the runner process."""

import fcntl
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import BaseModel

from workers.runner import probes, process_records
from workers.runner.process_records import Record
from workers.runner.stack import RUNNER, Program, Stack, log_path, make_folders, saved_stack
from workers.runner.supervisor import open_log

Tell = Callable[[str], None]
LEFTOVER_LIMIT_S = 12.0
DISK_NEEDED_MIB = 256
ATTACHED_POLL_S = 0.3


class StackError(Exception):
    """The stack did not start or did not end; the message says why, for a person."""


class ProgramState(BaseModel):
    name: str
    record: Record | None
    ready: bool


def bring_up(home: Path, plan: Callable[[], Stack], tell: Tell) -> bool:
    """Start the stack of `plan` in `home` and wait until it is ready; False if it was up already.

    Of two commands at once, one starts the stack; the other waits and finds it up. Processes that
    a killed runner has left are ended first.
    Raises: StackError, when a port is taken or a program is not ready within the stack's limit.
    """
    run = make_folders(home)
    with only_one(run, tell):
        stack = saved_stack(home)
        if stack and (runner := _live_runner(run)):
            if all(state.ready for state in program_states(stack)):
                return False
            tell(f"the runner (pid {runner.pid}) is running: waiting for its programs")
            if _await_ready(stack, LogReader(stack.log(RUNNER)), tell):
                return False
        _end_leftovers(home, tell)
        _check_disk(home)
        stack = plan()
        _check_ports(stack)
        log = LogReader(stack.log(RUNNER))
        _start_runner(stack)
        if not _await_ready(stack, log, tell):
            raise StackError("\n".join(["the runner has ended:", *_tail(stack.log(RUNNER))]))
        return True


def bring_down(home: Path, tell: Tell) -> None:
    """End the runner and all processes that it started, and verify their end.

    When nothing runs, the call does nothing.
    Raises: StackError, naming a process that could not be ended.
    """
    run = make_folders(home)
    with only_one(run, tell):
        if runner := _live_runner(run):
            stack = saved_stack(home)
            programs = stack.programs if stack else ()
            process_records.end(runner, sum(program.stop_limit_s for program in programs) + 10)
        _end_leftovers(home, tell)
        process_records.forget(run, RUNNER)


def program_states(stack: Stack) -> list[ProgramState]:
    """The state of each program now."""
    return [_program_state(stack, program) for program in stack.programs]


@contextmanager
def only_one(run: Path, tell: Tell) -> Iterator[None]:
    """Lock the stack with this folder of records: a second `up` or `down` waits for the first."""
    with (run / "up.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tell("another command is starting or ending this stack: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _program_state(stack: Stack, program: Program) -> ProgramState:
    record = process_records.read_record(stack.run, program.name)
    if record and not record.alive:
        record = None
    ready = record is not None and (program.ready is None or probes.answers(program.ready))
    return ProgramState(name=program.name, record=record, ready=ready)


def _live_runner(run: Path) -> Record | None:
    record = process_records.read_record(run, RUNNER)
    return record if record and record.alive else None


def _start_runner(stack: Stack) -> None:
    """Start the runner in the background of a shell that exits at once.

    The runner is then no child of this process.
    """
    serve = [sys.executable, "-m", "workers.runner.serve", str(stack.save())]
    with open_log(stack.log(RUNNER)) as log:
        subprocess.run(
            ["/bin/sh", "-c", '"$@" &', "sh", *serve],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=stack.working_directory,
            start_new_session=True,
            check=True,
        )
    # Python's own start takes a moment; a runner that writes no record has ended by an error.
    process_records.wait_until(lambda: _live_runner(stack.run) is not None, 10)


def _check_disk(home: Path) -> None:
    free_mib = shutil.disk_usage(home).free // 2**20
    if free_mib < DISK_NEEDED_MIB:
        raise StackError(
            f"{home} has {free_mib} MiB of free disk, {DISK_NEEDED_MIB} are needed: "
            "make room, or set BASELOAD_HOME to another folder"
        )


def _check_ports(stack: Stack) -> None:
    taken = [
        line
        for program in stack.programs
        for address in program.listens
        if (line := probes.taken(address))
    ]
    if taken:
        raise StackError("\n".join(taken))


def _await_ready(stack: Stack, log: "LogReader", tell: Tell) -> bool:
    """Wait until every program is ready; False when the runner has ended instead."""

    def settled() -> bool:
        for line in log.lines():
            tell(line)
        return (
            all(state.ready for state in program_states(stack)) or _live_runner(stack.run) is None
        )

    if not process_records.wait_until(settled, stack.ready_limit_s, every_s=0.25):
        raise StackError(_why_not_ready(stack))
    return _live_runner(stack.run) is not None


def _why_not_ready(stack: Stack) -> str:
    lines = [f"not ready after {stack.ready_limit_s:g} s:"]
    for program, state in zip(stack.programs, program_states(stack), strict=True):
        if not state.ready:
            problem = "does not answer" if state.record else "does not run"
            log = stack.log(program.name)
            lines += [f"{program.name} {problem} ({program.ready}); the end of {log}:", *_tail(log)]
    return "\n".join(lines)


def _tail(log: Path, count: int = 15) -> list[str]:
    if not log.exists():
        return ["  (no log)"]
    return [f"  {line}" for line in log.read_text(errors="replace").splitlines()[-count:]]


def _end_leftovers(home: Path, tell: Tell) -> None:
    """End the processes that a dead runner has left, by its records and by their environment."""
    run = home / "run"
    left = [record for name in _recorded(run) if (record := process_records.read_record(run, name))]
    for record in sorted(left, key=lambda each: each.started_at, reverse=True):
        if record.members():
            tell(f"ending {record.name} (pid {record.pid}), which was left running")
            _end(record)
        process_records.forget(run, record.name)
    for orphan in process_records.orphaned_processes(str(home)):
        tell(f"ending pid {orphan.pid}, which was left running")
        _end(orphan)


def _recorded(run: Path) -> list[str]:
    return [path.stem for path in run.glob("*.json") if path.stem not in {RUNNER, "stack"}]


def _end(record: Record) -> None:
    if not process_records.end(record, LEFTOVER_LIMIT_S):
        raise StackError(f"{record.name} (pid {record.pid}) cannot be ended; is it another user's?")


@contextmanager
def attached(home: Path, tell: Tell) -> Iterator[None]:
    """Within the block, also show the runner's log lines, such as the restart of a program."""
    log = LogReader(log_path(home, RUNNER))
    done = threading.Event()

    def follow() -> None:
        while not done.wait(ATTACHED_POLL_S):
            for line in log.lines():
                tell(f"runner: {line}")

    thread = threading.Thread(target=follow, name="attached", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


class LogReader:
    """The reader of a log, which returns the lines that were added since the last call."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = path.stat().st_size if path.exists() else 0

    def lines(self) -> list[str]:
        if not self._path.exists():
            return []
        with self._path.open("rb") as log:
            log.seek(self._offset)
            whole = log.read().rpartition(b"\n")[0]
        self._offset += len(whole) + bool(whole)
        return whole.decode(errors="replace").splitlines()
