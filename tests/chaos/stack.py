"""The stack of the room: as users run it, on a small disk, with a runner that never tires."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

from tests.e2e.platform import Platform, Refused
from tests.e2e.stack import RunningStack
from tests.lab.host import execute
from workers.runner.probes import free_port
from workers.runner.process_records import STACK_VARIABLE
from workers.runner.settings import CHECKOUT
from workers.runner.stack import Backoff, Program, Stack

PROGRAMS = ("temporal", "api", "worker", "planning")
HOME_MIB = 1500
PATIENCE_S = 780.0
ENDED_S = 30.0
CLONE_NEWNS, MS_PRIVATE, MS_REC = 0x20000, 1 << 18, 1 << 14


def own_mounts() -> None:
    """What this process mounts from now on is gone with it. Call before any thread is started."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS) or libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None):
        raise OSError(ctypes.get_errno(), "no mounts of its own for the room")


def small_home(home: Path) -> None:
    """A disk for the stack alone, which can be filled."""
    home.mkdir()
    execute("mount", "-t", "tmpfs", "-o", f"size={HOME_MIB}m,mode=700", "tmpfs", home)


class RoomStack(RunningStack):
    """Its programs are killed all the time, so they are started again at once, every time."""

    def _plan(self, environment: dict[str, str]) -> Stack:
        backoff = Backoff(first_s=0.1, longest_s=0.3)
        return super()._plan(environment).model_copy(update={"backoff": backoff})

    def move_temporal(self, namespace: str) -> None:
        """Stop all of it, and start it with other settings: an empty Temporal at another address,
        whose only namespace is this one."""
        self.close()
        (self.home / "temporal").rename(self.home / f"temporal-before-{namespace}")
        ports = {"temporal_port": free_port(), "ui_port": free_port()}
        self._runner_settings = self._runner_settings.model_copy(update=ports)
        self._environment |= {"BASELOAD_TEMPORAL_NAMESPACE": namespace}
        plan = self._plan(self._environment)
        programs = tuple(_in_namespace(program, namespace) for program in plan.programs)
        self._stack = plan.model_copy(update={"programs": programs})
        self._runner = self._start_runner()

    def lose_temporal(self) -> None:
        """Kill Temporal and delete its files: it starts with nothing. Raises: TimeoutError."""
        deadline = time.monotonic() + ENDED_S
        with self.left_alone():
            self.send("temporal", signal.SIGKILL)
            while self.pid("temporal") is not None:
                if time.monotonic() > deadline:
                    raise TimeoutError("Temporal has not ended")
                time.sleep(0.02)
            shutil.rmtree(self.home / "temporal")
            (self.home / "temporal").mkdir()

    def send(self, name: str, number: int) -> int | None:
        """Send a signal to a program, if it runs just now: the process id that it had."""
        pid = self.pid(name)
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        return pid

    def is_ready(self) -> bool:
        """Whether all of it runs and answers."""
        return self._is_ready()

    def second_runner(self) -> str:
        """Start the runner once more, by mistake; what it says."""
        again = subprocess.run(
            self._runner.args, cwd=CHECKOUT, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, check=False, timeout=60,
        )  # fmt: skip
        assert again.returncode == 0, again
        return again.stdout

    @contextmanager
    def left_alone(self) -> Iterator[None]:
        """Its runner stands still, and starts nothing."""
        self._runner.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._runner.send_signal(signal.SIGCONT)

    @contextmanager
    def second_worker(self) -> Iterator[None]:
        """One more worker beside the stack's own."""
        program = next(one for one in self._stack.programs if one.name == "worker")
        with self._stack.log("second").open("ab") as log:
            process = subprocess.Popen(
                program.command, cwd=CHECKOUT, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={**os.environ, **program.environment, STACK_VARIABLE: str(self.home)},
                start_new_session=True,
            )  # fmt: skip
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def _in_namespace(program: Program, namespace: str) -> Program:
    """Temporal's dev server with this namespace; every other program as it is."""
    if program.name != "temporal":
        return program
    at = program.command.index("--namespace") + 1
    command = (*program.command[:at], namespace, *program.command[at + 1 :])
    return program.model_copy(update={"command": command})


class PatientPlatform(Platform):
    """Asks again while the API is away or says that it cannot: what a client should do."""

    patience_s = PATIENCE_S

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        """As before; a POST goes out with the same key each time. Raises: Refused."""
        began = time.monotonic()
        while True:
            try:
                return super().ask(method, path, **options)
            except (httpx.TransportError, Refused) as away:
                final = isinstance(away, Refused) and away.status < 500
                if final or time.monotonic() > began + self.patience_s:
                    raise
            time.sleep(0.3)


def lose_patience(room: object) -> None:
    """Who still asks on behalf of this room, which closes, will not be answered; others may be."""
    for asks in vars(room).values():
        if isinstance(asks, PatientPlatform):
            asks.patience_s = 0.0
