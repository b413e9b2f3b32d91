"""This host as a market: one machine at a time, free of charge. There is no double: what is seen of
its machines is in their folder."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from activities.providers.local.processes import descendants_of
from activities.providers.local.records import Asked, MachineFolder, machines_in
from tests.chaos.cloud.markets.market import (
    HOST_DIES,
    HOST_STANDS_STILL,
    Charge,
    Enabled,
    Machine,
    Market,
)
from tests.e2e.platform import Platform

LOOK_S = 0.01
"""A machine is there for longer than that."""


class ThisHost(Market):
    """A machine is a process of this host, with all that it has begun."""

    kind = "local"
    kinds = (HOST_DIES, HOST_STANDS_STILL)
    most_at_once = 1

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="baseload-local-market-"))
        self._folder.chmod(0o755)  # The accounts of jobs pass through.
        self.settings = {
            "trusted_local": "true",
            "local_folder": str(self._folder),
            "node_networks": "127.0.0.0/8",
            "job_network_wall": "false",
        }
        self.environment: dict[str, str] = {}
        self.violations: list[str] = []
        self._charges: dict[tuple[str, str], Charge] = {}
        self._closing = threading.Event()
        self._meter = threading.Thread(target=self._watch, daemon=True)
        self._meter.start()

    def close(self) -> None:
        self._closing.set()
        self._meter.join()
        for machine, _ in machines_in(self._folder):
            self._signal(machine, signal.SIGKILL)
        shutil.rmtree(self._folder, ignore_errors=True)

    def enable(self, owner: Platform) -> Enabled:
        provider_id = owner.post("/v1/providers", {"kind": "local"})["id"]
        owner.until_status(f"/v1/providers/{provider_id}", "ready")
        return Enabled(provider_id)

    def job(self, enabled: Enabled) -> dict[str, Any]:
        return {
            "resources": {"gpus": "cpu", "cpu_count": 1, "memory_gib": 1},
            "placement": {"providers": [enabled.provider_id]},
        }

    def machines(self) -> list[Machine]:
        return [
            Machine(asked.machine_name, _number(asked), _state(machine))
            for machine, asked in machines_in(self._folder)
        ]

    def charges(self) -> list[Charge]:
        return list(self._charges.values())

    def lose(self, name: str) -> bool:
        """The process of the machine is killed; what it has begun goes on without it."""
        server = MachineFolder(self._folder / name).server
        if server is None or not server.is_alive:
            return False
        with suppress(ProcessLookupError):
            os.kill(server.pid, signal.SIGKILL)
        return True

    def stand_still(self, name: str) -> bool:
        return self._signal(MachineFolder(self._folder / name), signal.SIGSTOP)

    def go_on(self, name: str) -> None:
        self._signal(MachineFolder(self._folder / name), signal.SIGCONT)

    def _signal(self, machine: MachineFolder, number: signal.Signals) -> bool:
        """Send a signal to the process of a machine and to all that it has begun."""
        server = machine.server
        if server is None or not server.is_alive:
            return False
        for pid in (server.pid, *(each.pid for each in descendants_of([server.pid]))):
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        return True

    def _watch(self) -> None:
        """Note from when to when each machine is there; nothing is charged for it."""
        while not self._closing.wait(LOOK_S):
            here = {(asked.machine_name, _number(asked)): asked for _, asked in self._asked()}
            for key, asked in here.items():
                began_at = asked.began_at.timestamp()
                self._charges.setdefault(key, Charge(*key, price=0, started_at=began_at))
            for key, charge in list(self._charges.items()):
                if charge.ended_at is None and key not in here:
                    self._charges[key] = Charge(*key, 0, charge.started_at, time.time())

    def _asked(self) -> list[tuple[MachineFolder, Asked]]:
        try:
            return list(machines_in(self._folder))
        except FileNotFoundError:  # One was removed just now.
            return []


def _number(asked: Asked) -> str:
    """What tells two machines of one name apart."""
    return asked.began_at.isoformat()


def _state(machine: MachineFolder) -> str:
    server = machine.server
    if server is None:
        return "making"
    return "running" if server.is_alive else "dead"
