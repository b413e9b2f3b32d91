"""One start of a revision's command, by a supervisor that is a child of the keeper."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from typing import Any

from ..folders import DEVICES
from ..host import containers, device_files, job_accounts, process_tree, processes, run_gpus
from ..loading import load
from ..runs import exits, supervisor
from ..runs.log import Log
from . import log
from .state import ENDED, Revision

NOTES = "supervisor.log"
OF_ONE_START = ("process.json", "end.json", "beat.json", ENDED)
MARGIN_S = 25.0
POLL_S = 0.05
MOST_REASON = 1900
MOST_MESSAGE = 600


class DeviceSupervisor(supervisor.Supervisor):
    """The supervisor of one start; what it writes at the end does not end the revision."""

    def _open_log(self) -> Log:
        return log.BoundedLog(self.run, self.spec)

    def _write_exit(self, document: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # A full disk: the keeper then knows less of it.
            self.run.write(ENDED, document)


class Start:
    """A revision whose command was started by this process."""

    def __init__(self, revision: Revision, pid: int) -> None:
        self.revision = revision
        self.pid = pid
        self.started_s = processes.monotonic_s()
        self.has_ended = False

    def is_up(self) -> bool:
        """Whether the first process of the command runs."""
        if self.reap():
            return False
        process = self.revision.read("process.json")
        return process is not None and bool(process.get("pid"))

    def reap(self) -> bool:
        """Whether the supervisor, with all that it had started, has ended."""
        if not self.has_ended:
            try:
                self.has_ended = os.waitpid(self.pid, os.WNOHANG)[0] == self.pid
            except ChildProcessError:
                self.has_ended = True
            if self.has_ended:
                end_left(self.revision)
        return self.has_ended

    def how_it_ended(self) -> tuple[int | None, str]:
        """Its exit code, and in words why it does not run, with the last lines of its log."""
        ended = self.revision.read(ENDED)
        if ended is None:
            notes = _notes(self.revision)
            return None, with_lines("its supervisor was lost: %s" % notes, self.revision)
        return ended.get("exit_code"), with_lines(str(ended["message"]), self.revision)

    def end(self) -> None:
        """End it with all that it has started, within a limit."""
        if self.reap():
            return
        spec = self.revision.read("spec.json") or {}
        grace_s = float(spec.get("grace_s") or 0)
        with contextlib.suppress(OSError):  # A full disk: it is then ended with the same grace.
            self.revision.write("end.json", {"grace_s": grace_s}, durable=False)
        _signal(self.pid, signal.SIGTERM)
        deadline = time.monotonic() + grace_s + MARGIN_S
        while not self.reap():
            if time.monotonic() > deadline:
                _signal(self.pid, signal.SIGKILL)
                deadline += MARGIN_S
            time.sleep(POLL_S)


def start(revision: Revision) -> Start:
    """Start the command of a staged revision.

    What cannot be started is a start that has ended, with the reason.
    """
    for name in OF_ONE_START:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(revision.at(name))
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return Start(revision, pid)
    try:
        os.setsid()
        notes = os.open(revision.at(NOTES), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(notes, 1)
        os.dup2(notes, 2)
        os.closerange(3, 256)
        signal.set_wakeup_fd(-1)
        os.chdir(revision.path)
        _supervise(revision)
        os._exit(0)
    except BaseException as error:  # noqa: BLE001 - the forked child must never return
        _note_failure(revision, error)
    finally:
        os._exit(1)


def _note_failure(revision: Revision, error: BaseException) -> None:
    sys.excepthook(type(error), error, error.__traceback__)
    sys.stderr.flush()
    document = exits.not_run("start-failed", "could not be started: %s" % error)
    with contextlib.suppress(OSError):
        revision.write(ENDED, document)


def _supervise(revision: Revision) -> None:
    spec = revision.read("spec.json")
    if spec is None:
        raise OSError("%s: it is not staged" % revision.run_id)
    load("runs.start:check_contents")(revision, spec)
    names = device_files.of_run(spec)
    if spec.get("runtime") == "podman":
        run_gpus.options(spec)
    if names is not None:
        revision.write(DEVICES, {"names": names}, durable=False)
    DeviceSupervisor(revision, spec).main()


def end_left(revision: Revision) -> None:
    """End what a supervisor that is gone has left of a revision; silent when that is nothing."""
    process = revision.read("process.json")
    if process is None:
        return
    spec = revision.read("spec.json") or {}
    if processes.is_of_this_boot(process):
        process_tree.end_orphaned_runs(revision.run_id, process, 0.0)
        if spec.get("runtime") == "podman":
            containers.remove(revision.run_id)
        left = supervisor.end_rest(revision, spec)
        if left:
            sys.stderr.write("%s: still alive: %s\n" % (revision.run_id, left))
        job_accounts.forget_ipc(spec.get("user"))
    with contextlib.suppress(FileNotFoundError):
        os.unlink(revision.at("process.json"))


def with_lines(message: str, revision: Revision) -> str:
    """A reason with the last lines of the log, in which all secrets of the revision are masked."""
    spec = revision.read("spec.json") or {}
    longest = max((len(one.encode()) for one in exits.secrets_of(spec)), default=0)
    message = exits.masked(message, spec)[:MOST_MESSAGE]
    # So much of the log that no secret which ends in the last lines begins before it.
    least_bytes = exits.MASKED_TAIL_BYTES + longest
    mask = lambda text: exits.masked(text, spec)  # noqa: E731
    lines = log.last_lines(revision, MOST_REASON - len(message), mask, least_bytes)
    return "%s\n%s" % (message, lines) if lines else message


def _notes(revision: Revision) -> str:
    try:
        with open(revision.at(NOTES), errors="replace") as file:
            return file.read()[-300:].strip() or "it said nothing"
    except OSError as error:
        return str(error)


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
