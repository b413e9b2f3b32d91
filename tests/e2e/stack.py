"""The stack as users run it: the real runner and its processes, with free ports and an own home."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.lab.waiting import wait_until
from tests.temporal_server import FEW_PARTITIONS, FRUGAL
from workers.runner.lifecycle import program_states
from workers.runner.probes import free_port
from workers.runner.process_records import orphaned_processes, read_record
from workers.runner.programs import default_stack
from workers.runner.settings import CHECKOUT, RunnerSettings
from workers.runner.stack import Backoff, Program, Stack, make_folders

SSH_PROGRAM, TEMPORAL_PROGRAM = "sshd", "temporal"


def frugal(temporal: Program) -> Program:
    """The same server, as the tests' own ones are, with schedules."""
    settings = (word for one in FEW_PARTITIONS for word in ("--dynamic-config-value", one))
    return temporal.model_copy(
        update={"command": (*temporal.command, *settings), "environment": FRUGAL}
    )


class RunningStack:
    """Temporal, the API and both workers; it ends with `close`, or with the thread that made it.

    host: where the API listens, so that machines can announce themselves.
    """

    def __init__(self, home: Path, host: str, **settings: str) -> None:
        self.home = home
        self._runner_settings = RunnerSettings(
            home=home,
            api=f"{host}:{free_port()}",
            temporal_port=free_port(),
            ui_port=free_port(),
        )
        self._environment = {f"BASELOAD_{name.upper()}": of for name, of in settings.items()}
        self._stack = self._plan(self._environment)
        make_folders(home)
        self._runner = self._start_runner()

    def _plan(self, environment: dict[str, str]) -> Stack:
        """What `make up` runs, less the SSH server: the lab's machines have their own."""
        usual = default_stack(self._runner_settings)
        programs = [
            program.model_copy(update={"environment": {**program.environment, **environment}})
            for program in usual.programs
            if program.name not in (SSH_PROGRAM, TEMPORAL_PROGRAM)
        ]
        temporal = next(one for one in usual.programs if one.name == TEMPORAL_PROGRAM)
        return usual.model_copy(
            update={"programs": (frugal(temporal), *programs), "backoff": Backoff(first_s=0.1)}
        )

    def _start_runner(self) -> subprocess.Popen[bytes]:
        with self._stack.log("runner").open("ab") as log:
            return subprocess.Popen(
                ["setpriv", "--pdeathsig", "TERM", sys.executable, "-m", "workers.runner.serve",
                 str(self._stack.save())],
                cwd=CHECKOUT, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    @property
    def url(self) -> str:
        return self._runner_settings.api_url

    @property
    def temporal_address(self) -> str:
        return f"127.0.0.1:{self._runner_settings.temporal_port}"

    @property
    def administrator_key(self) -> str:
        return (self.home / "admin.key").read_text().strip()

    def wait_until_ready(self, limit_s: float = 240.0) -> None:
        """Until every program runs and answers. Raises: TimeoutError with the ends of the logs."""
        try:
            wait_until(self._is_ready, "stack: ready", limit_s)
        except TimeoutError as cause:
            raise TimeoutError(f"{cause}\n{self.logs()}") from cause

    def _is_ready(self) -> bool:
        if self._runner.poll() is not None:
            raise RuntimeError(f"the runner has ended: {self._runner.returncode}\n{self.logs()}")
        return all(program.ready for program in program_states(self._stack))

    def logs(self, lines: int = 20) -> str:
        """The end of each program's log."""
        told = []
        for name in ["runner", *(program.name for program in self._stack.programs)]:
            log = self._stack.log(name)
            tail = log.read_text(errors="replace").splitlines()[-lines:] if log.exists() else []
            told.append("\n".join([f"--- {name}", *(line[:400] for line in tail)]))
        return "\n".join(told)

    def kill(self, *names: str) -> None:
        """kill -9 programs, and wait until the runner has started each again."""
        before = {name: self.pid(name) for name in names}
        for name, pid in before.items():
            assert pid is not None, f"{name} does not run"
            os.kill(pid, signal.SIGKILL)
        wait_until(
            lambda: all(self.pid(name) not in (None, pid) for name, pid in before.items()),
            f"{', '.join(names)}: run again",
            120,
        )

    def pid(self, name: str) -> int | None:
        record = read_record(self._stack.run, name)
        return record.pid if record is not None and record.alive else None

    def close(self) -> None:
        """End it as `make down` does. Raises: AssertionError when something of it is left."""
        self._runner.terminate()
        status = self._runner.wait(60)
        left = [orphan.pid for orphan in orphaned_processes(str(self.home))]
        assert (status, left) == (0, []), f"runner: exit {status}, left running: {left}"
