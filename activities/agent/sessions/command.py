"""A command in the isolation of a run, with or without a terminal, for somebody who is there.

peer ⇄ frames ⇄ pipes or a terminal ⇄ the command. When the peer goes, the command and what shares
its session get HUP, and KILL soon after; what has left that session stays in the run, as on any
machine, and ends with it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import struct
import termios
import time
from typing import Any

from ..errors import RefusedError
from ..federated import terms
from ..folders import Folders
from ..host import process_tree, processes, spawn
from ..host.isolation import Isolation, own_variables
from . import frames
from .session import Session

DRAIN_S = 0.5
"""How long no output may come, after the command has ended, from what it has left behind."""
HANGUP_S = 3.0
REST_S = 30.0
SUPERVISOR_S = 2.0
MARK = "BASELOAD_SESSION"
SHELL = ["/bin/sh", "-c", "if [ -x /bin/bash ]; then exec /bin/bash; else exec /bin/sh; fi"]
SIGNALS = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGKILL,
                     signal.SIGUSR1, signal.SIGUSR2})  # fmt: skip


def run_command(request: dict[str, Any]) -> None:
    """Run a command in a run: `arguments`, none for a shell; `terminal` with `rows`, `columns` and
    `type`, or None.

    Raises: RefusedError `not-running`, `no-account`, `session-failed`; `federated`, for a run of a
    federated job: what its model is, nobody sees.
    """
    isolation = Isolation(Folders(request.get("root", "")).run(request["run_id"]))
    terms.keep_out(isolation.run, "nobody runs commands in it")
    command = Command(isolation, request)
    try:
        command.start()
    except OSError as error:
        raise RefusedError("session-failed", "the command was not started: %s" % error) from error
    command.serve()


class Command(Session):
    """One command and its peer."""

    def __init__(self, isolation: Isolation, request: dict[str, Any]) -> None:
        super().__init__(isolation)
        self.arguments = list(request.get("arguments") or SHELL)
        self.terminal: dict[str, Any] | None = request.get("terminal")
        self.mark = os.urandom(8).hex()
        self.pid = 0
        self.status: int | None = None
        self.master = -1
        self.wake = -1

    def start(self) -> None:
        """Start the command. Raises: OSError."""
        ours, theirs = self._ends()
        self.wake, wake = os.pipe()
        os.set_blocking(self.wake, False)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.peer.say(frames.STARTED)
        self.pid = self.isolation.fork(lambda: self._become(theirs))
        for descriptor in set(theirs):
            os.close(descriptor)
        self.inlet = frames.Outlet(ours[0])
        self.sources = {ours[1]: frames.OUT}
        if ours[2] >= 0:
            self.sources[ours[2]] = frames.ERR

    def serve(self) -> None:
        """Carry bytes until the command has ended, or its peer or its run."""
        with contextlib.suppress(frames.BrokenFrameError):
            while self.status is None and self.goes_on():
                if self.step([self.wake]):
                    self._reap()
            ended_at = self.carried_at = time.monotonic()
            while self.sources and self.goes_on() and self._is_draining(ended_at):
                self.step([], DRAIN_S)
        if self.status is None:
            self._hang_up()
        self.peer.say(frames.EXIT, json.dumps(self._ended()).encode())
        self.carry_rest(REST_S)

    def _is_draining(self, ended_at: float) -> bool:
        now = time.monotonic()
        return now - self.carried_at < DRAIN_S and now - ended_at < REST_S

    def hear(self, kind: int, payload: bytes) -> None:
        if kind == frames.RESIZE and self.master >= 0 and len(payload) == 4:
            self._resize(*struct.unpack(">HH", payload))
        elif kind == frames.SIGNAL and len(payload) == 1 and payload[0] in SIGNALS:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, payload[0])
        else:
            super().hear(kind, payload)

    def end_input(self) -> None:
        """The end of input of a terminal is a character."""
        if self.inlet is not None and self.master >= 0:
            self.inlet.add(b"\x04")
            self.inlet.flush()
        else:
            super().end_input()

    def _ends(self) -> tuple[list[int], list[int]]:
        """Our ends of stdin, stdout and stderr, and those of the command, which are its account's.

        In a container they are podman's, which gives the command others.
        """
        user = None if self.isolation.is_contained else self.isolation.spec.get("user")
        if self.terminal is None:
            pairs = [os.pipe() for _ in range(3)]
            (stdin, ours), (out, stdout), (err, stderr) = pairs
            spawn.give_streams(user, [stdin, stdout, stderr])
            for outlet in (out, err):  # The run may read its own pipes, and take all of it.
                os.set_blocking(outlet, False)
            return [ours, out, err], [stdin, stdout, stderr]
        self.master, slave = os.openpty()
        self._resize(int(self.terminal.get("rows") or 24), int(self.terminal.get("columns") or 80))
        spawn.give_streams(user, [slave])
        return [os.dup(self.master), self.master, -1], [slave, slave, slave]

    def _resize(self, rows: int, columns: int) -> None:
        with contextlib.suppress(OSError):
            fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def _become(self, theirs: list[int]) -> None:
        """In the child: become the command."""
        isolation, more = self.isolation, {MARK: self.mark}
        if self.terminal is not None:
            more["TERM"] = str(self.terminal.get("type") or "xterm")
        os.setsid()
        spawn.take_streams(*theirs)
        if self.terminal is not None:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        if isolation.is_contained:
            arguments = isolation.contained(self.arguments, more, self.terminal is not None)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.chdir("/")
            os.execvpe(arguments[0], arguments, own_variables())
        variables = {**isolation.variables(), **more, "SHELL": "/bin/bash"}
        identity = isolation.identity(variables)
        isolation.enter_groups()
        isolation.enter_mounts()
        isolation.become(isolation.run.at("work"), identity)
        try:
            os.execvpe(self.arguments[0], self.arguments, variables)
        except FileNotFoundError:
            os.write(2, ("baseload: %s: not found\n" % self.arguments[0]).encode())
            os._exit(127)

    def _reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self.wake, 4096)
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid:
            self.status = status

    def _hang_up(self) -> None:
        """End the command and all of its session, also in a container."""
        for number in (signal.SIGHUP, signal.SIGKILL):
            until = time.monotonic() + HANGUP_S
            while left := self._left():
                process_tree.send(left, number)
                if time.monotonic() > until:
                    break
                time.sleep(0.05)
                pid, status = os.waitpid(self.pid, os.WNOHANG) if self.status is None else (0, 0)
                if pid:
                    self.status = status

    def _left(self) -> list[processes.Process]:
        """The living processes of the command's session here, and of that in the container."""
        sessions = {self.pid}
        if self.isolation.is_contained:
            marked = [one for one in processes.everything() if self._is_marked(one.pid)]
            inside = [one for one in marked if one.session != self.pid]
            if inside:
                sessions.add(min(inside, key=lambda one: one.start_ticks).session)
        return [
            one
            for one in processes.everything()
            if one.session in sessions and one.session and not one.has_ended
        ]

    def _is_marked(self, pid: int) -> bool:
        try:
            with open("/proc/%d/environ" % pid, "rb") as file:
                return b"%s=%s" % (MARK.encode(), self.mark.encode()) in file.read().split(b"\0")
        except OSError:
            return False

    def _ended(self) -> dict[str, Any]:
        is_killed = self.status is not None and self.status == signal.SIGKILL
        until = time.monotonic() + (SUPERVISOR_S if is_killed else 0.0)
        while self.isolation.is_running() and time.monotonic() < until:
            time.sleep(0.05)  # Its supervisor may just be ending it, from the outside in.
        if not self.isolation.is_running():
            return {"reason": "run-ended"}
        if self.status is None:
            return {"reason": "hung-up"}
        if os.WIFSIGNALED(self.status):
            return {"reason": "exited", "signal": os.WTERMSIG(self.status)}
        return {"reason": "exited", "exit_code": os.WEXITSTATUS(self.status)}
