"""What goes wrong with machines, sites and the object store, and its mending."""

from collections.abc import Callable, Hashable, Mapping
from datetime import datetime, timedelta
from functools import partial

from tests.simulation.outside.machine import Machine
from tests.simulation.outside.machines import Machines
from tests.simulation.outside.node_effects import NodeEffects
from tests.simulation.outside.runs import Run
from tests.simulation.outside.store import Store

LASTS_S = (3.0, 20.0, 120.0, 900.0, 4000.0, 10_000.0)
"""How long a fault lasts of which nobody has said it."""
BOOT_S = (20.0, 200.0)
JUMPS_DAYS = (-4000.0, -0.5, 0.04, 1.0, 4000.0)
CALM_S = 3000.0
"""Once all is well, no command takes longer, but for services, which are ended."""
CALM_HANG_S = 9000.0
"""Nor is one in uninterruptible sleep for longer, which is more than jobs wait for its end."""


class MachineFaults:
    """Faults of machines, sites and the store, by their names.

    announce: a machine of a person says where it is.
    """

    def __init__(
        self,
        machines: Machines,
        store: Store,
        nodes: NodeEffects,
        announce: Callable[[Machine], None],
    ) -> None:
        self._machines = machines
        self._store = store
        self._nodes = nodes
        self._announce = announce
        self._temporal = machines.temporal
        self._until: dict[Hashable, datetime] = {}
        """When a fault that lasts is mended."""
        self._random = machines.temporal.random
        self._of_machine: Mapping[str, Callable[[Machine, float], None]] = {
            "machine_unreachable": lambda machine, seconds: machine.be_unreachable(seconds),
            "machine_suspends": lambda machine, seconds: machine.suspend(seconds),
            "machine_reboots": self._reboot,
            "machine_moves": self._move,
            "machine_lost": lambda machine, _: self._machines.end(machine),
            "machine_wiped": lambda machine, _: self._machines.wipe(machine),
            "machine_lies": self._lie,
            "clock_jumps": self._jump,
            "disk_full": self._fill_disk,
        }
        self._of_run: Mapping[str, Callable[[Run, float], None]] = {
            "process_crashes": lambda run, _: run.command.crash() if run.command else None,
            "process_hangs": lambda run, seconds: (
                run.command.hang(seconds) if run.command else None
            ),
            "supervisor_killed": lambda run, _: run.lose_supervisor(),
        }
        self.names = (
            *self._of_machine,
            *self._of_run,
            "store_away",
            "site_away",
            "share_away",
            "heal",
        )

    def strike(self, what: str, target: str, seconds: float) -> None:
        """One fault; an unknown target changes nothing.

        target: of a machine its name, minion id, node or address, or a job that runs on it; of a
        process its job or run; of a site its region; empty: one that is drawn, or all.
        """
        seconds = seconds or self._random.choice(LASTS_S) * self._random.uniform(0.5, 1.5)
        if what == "heal":
            self.heal()
        elif what == "store_away":
            self._lose_store(seconds)
        elif what == "site_away":
            self._lose_site(target, seconds)
        elif what == "share_away":
            self._nodes.shares_away.add(target)
            mend = partial(self._nodes.shares_away.discard, target)
            self._mend_later(("share", target), seconds, mend)
        elif what in self._of_machine:
            machine = self._machine(target)
            if machine is not None and not machine.has_ended:
                self._of_machine[what](machine, seconds)
        elif what in self._of_run:
            run = self._run(target)
            if run is not None:
                self._of_run[what](run, seconds)

    def heal(self) -> None:
        """All is well again, but for what has gone for ever."""
        self._until.clear()
        self._store.is_away = False
        self._nodes.sites_away.clear()
        self._nodes.shares_away.clear()
        for machine in self._machines.all:
            machine.is_disk_full = machine.is_lying = False
            machine.end_outages()
            machine.resume()

    def calm(self) -> None:
        """All is well, and commands that still run end within an hour, or when they wake."""
        self.heal()
        self._machines.commands.most_s = CALM_S
        self._machines.commands.most_hang_s = CALM_HANG_S
        for machine in self._machines.all:
            for run in tuple(machine.live):
                if run.command is not None:
                    run.command.shorten(CALM_S, CALM_HANG_S)

    # ── targets ─────────────────────────────────────────────────────────────────────────────

    def _machine(self, target: str) -> Machine | None:
        machines = self._machines
        if not target:
            there = [one for one in machines.all if not one.has_ended]
            return self._random.choice(there) if there else None
        for known in (machines.by_minion, machines.by_name, machines.by_node, machines.by_host):
            if target in known:
                return known[target]
        run = self._run(target)
        return run.machine if run else None

    def _run(self, target: str) -> Run | None:
        """A live run of this job, with this id, or on this machine."""
        live = [run for machine in self._machines.all for run in machine.live]
        names = [
            run
            for run in live
            if target in ("", run.job_id, run.run_id, run.node_id, run.machine.minion_id)
        ]
        return self._random.choice(names) if names else None

    # ── single faults ───────────────────────────────────────────────────────────────────────

    def _reboot(self, machine: Machine, _: float) -> None:
        """With a shutdown, or by a loss of power."""
        boot_s = self._random.uniform(*BOOT_S)
        if self._random.random() < 0.5:
            machine.restart(boot_s)
        else:
            machine.crash(boot_s)

    def _move(self, machine: Machine, seconds: float) -> None:
        if not machine.is_leased:
            self._machines.move(machine)
            self._temporal.later(min(seconds, 60.0), lambda: self._announce(machine))

    def _lie(self, machine: Machine, seconds: float) -> None:
        machine.is_lying = True
        machine.tell()
        self._mend_later(("lies", machine), seconds, lambda: setattr(machine, "is_lying", False))

    def _jump(self, machine: Machine, _: float) -> None:
        machine.jump(self._random.choice(JUMPS_DAYS) * self._random.uniform(0.5, 1.5))

    def _fill_disk(self, machine: Machine, seconds: float) -> None:
        machine.is_disk_full = True
        self._mend_later(
            ("disk", machine), seconds, lambda: setattr(machine, "is_disk_full", False)
        )

    def _lose_store(self, seconds: float) -> None:
        now = self._temporal.now()
        self._store.lose(now, now + timedelta(seconds=seconds))
        self._mend_later("store", seconds, lambda: setattr(self._store, "is_away", False))

    def _lose_site(self, region_id: str, seconds: float) -> None:
        """The site of a region, or of all, reaches nothing, and does not answer."""
        for one in [region_id] if region_id else list(self._nodes.regions):
            self._nodes.sites_away.add(one)
            self._mend_later(("site", one), seconds, partial(self._nodes.sites_away.discard, one))
        for machine in self._machines.all:
            if not machine.has_ended and (not region_id or region_id in machine.regions):
                machine.be_unreachable(seconds)

    def _mend_later(self, what: Hashable, seconds: float, mend: Callable[[], None]) -> None:
        """Mend it after so long, unless the same has happened again meanwhile and lasts longer."""
        until = self._temporal.now() + timedelta(seconds=seconds)
        self._until[what] = max(until, self._until.get(what, until))

        def act() -> None:
            if self._temporal.now() >= self._until.get(what, until):
                mend()

        self._temporal.later(seconds, act)
