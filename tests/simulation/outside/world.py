"""The world outside: everything behind the queues of sites and clouds."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import Protocol

from activities.storage.names import output_name
from tests.simulation.behaviour import Behaviour
from tests.simulation.contracts import CloudMachine, Handler, Process, Rows, Temporal
from tests.simulation.outside.collection import Collection
from tests.simulation.outside.deliveries import Deliveries
from tests.simulation.outside.faults import LASTS_S, MachineFaults
from tests.simulation.outside.machine import Machine
from tests.simulation.outside.machines import Machines, host_key
from tests.simulation.outside.node_effects import NodeEffects
from tests.simulation.outside.run_effects import RunEffects
from tests.simulation.outside.store import Discarded, RunSpecs, Store
from tests.simulation.outside.transfers import Transfers
from tests.simulation.outside.watches import Watches
from workflows.contracts.jobs import parse_run_id

JOINS_AFTER_S = (30.0, 600.0)


class CloudSide(Protocol):
    """What the world asks of `clouds/`."""

    effects: Mapping[str, Handler]
    faults: Sequence[str]

    def connect(self, rows: Rows) -> None: ...
    def strike(self, what: str, target: str = "", *, seconds: float = 0.0) -> None: ...
    def cloud_machines(self) -> Iterable[CloudMachine]: ...
    def calm(self) -> None: ...
    def violations(self) -> list[str]: ...


def _clouds() -> Callable[[Temporal, Machines], CloudSide]:
    """The clouds of the simulator, imported for those who have no others."""
    found: Callable[[Temporal, Machines], CloudSide]
    found = import_module("tests.simulation.outside.clouds").Clouds
    return found


class World:
    """Machines, clouds and the object store, as `Outside` of contracts/.

    clouds: makes the clouds, which boot their machines in `machines`; None: those of `clouds/`.
    """

    def __init__(
        self, temporal: Temporal, clouds: Callable[[Temporal, Machines], CloudSide] | None = None
    ) -> None:
        self.temporal = temporal
        self.machines = Machines(temporal)
        self.store = Store()
        self.clouds = (clouds or _clouds())(temporal, self.machines)
        self.chances = 0.0
        """Of a signal of a watch to be late, and to come twice."""
        self._rows: Rows | None = None
        nodes = NodeEffects(self.machines, self.store)
        runs = RunEffects(self.machines, self.store)
        collection = Collection(self.machines, self.store)
        self.transfers = Transfers(temporal, self.store)
        self.deliveries = Deliveries(temporal, self.store)
        watches = Watches(self.machines, self.store, self._is_odd)
        self._faults = MachineFaults(self.machines, self.store, nodes, self._announce)
        self.faults: Sequence[str] = tuple(
            dict.fromkeys((*self._faults.names, *self.clouds.faults))
        )
        self.effects: Mapping[str, Handler] = {
            **self.clouds.effects,
            "check_site": nodes.check_site,
            "fill_cache": nodes.fill_cache,
            "check_datastore": nodes.check_datastore,
            "reach_node": nodes.reach_node,
            "inspect_node": nodes.inspect_node,
            "prepare_node": nodes.prepare_node,
            "reboot_node": nodes.reboot_node,
            "restore_logins": nodes.restore_logins,
            "switch_idle_workload": nodes.switch_idle_workload,
            "show_node_status": nodes.show_node_status,
            "list_runs": nodes.list_runs,
            "end_orphaned_runs": nodes.end_orphaned_runs,
            "watch_node": watches.watch_node,
            "stage_worker": runs.stage_worker,
            "start_worker": runs.start_worker,
            "get_run_status": runs.get_run_status,
            "end_worker": runs.end_worker,
            "clean_worker": runs.clean_worker,
            "open_trunk": runs.open_trunk,
            "collect_log": collection.collect_log,
            "store_output": collection.store_output,
            "save_snapshot": collection.save_snapshot,
            "store_volume": collection.store_volume,
            "deliver_output": self.deliveries.deliver_output,
            "transfer_artifact": self.transfers.transfer_artifact,
            "transfer_from_datastore": self.transfers.transfer_from_datastore,
        }

    def connect(self, rows: Rows) -> None:
        """The rows that cloud activities read, and to which machines announce themselves."""
        self._rows = self.transfers.rows = self.deliveries.rows = rows
        self.clouds.connect(rows)

    def behave(self, job_id: str, behaviour: Behaviour) -> None:
        """What the commands of this job will do on machines where they are not staged yet."""
        self.machines.commands.behaviours[job_id] = behaviour

    # ── machines of people ──────────────────────────────────────────────────────────────────

    def add_machine(
        self, *, gpus: int = 1, joins_at_once: bool = True, takes_guests: bool = False
    ) -> str:
        """An own machine; returns its minion id."""
        name = f"own-{len(self.machines.all) + 1}"
        machine = self.machines.boot(name, gpus=gpus, minion_id=host_key(name), is_leased=False)
        machine.has_joined, machine.takes_guests = False, takes_guests
        if joins_at_once:
            self.join(machine.minion_id)
        else:
            delay_s = self.temporal.random.uniform(*JOINS_AFTER_S)
            self.temporal.later(delay_s, lambda: self._join(machine))
        return machine.minion_id

    def join(self, minion_id: str) -> str | None:
        """The owner of a machine runs join.sh: it lets regions in, and announces itself."""
        machine = self.machines.by_minion[minion_id]
        self._join(machine)
        return None if machine.has_ended else machine.minion_id

    def _join(self, machine: Machine) -> None:
        machine.has_joined = True
        machine.left.clear()
        self._announce(machine)

    def _announce(self, machine: Machine) -> None:
        if self._rows is not None and machine.has_joined and not machine.has_ended:
            self._rows.announce(machine.minion_id, machine.host)

    # ── the object store ────────────────────────────────────────────────────────────────────

    def keep_run_specs(
        self,
        job_id: str,
        attempt: int,
        ports: Mapping[int, int] | None = None,
        idle_timeout_s: float | None = None,
    ) -> None:
        """Raises: ApplicationError, while the store is away."""
        self.store.keep_run_specs(job_id, attempt, RunSpecs(ports or {}, idle_timeout_s))

    def discard(self, job_id: str, what: Discarded, attempt: int | None = None) -> None:
        """Raises: ApplicationError, while the store is away."""
        self.store.discard(job_id, what, attempt)

    def discard_content(self, artifact_id: str) -> None:
        """Raises: ApplicationError, while the store is away."""
        self.store.discard_content(artifact_id)

    def contents(self) -> Mapping[str, int]:
        return self.store.contents

    def jobs_with_snapshots(self) -> Iterable[str]:
        """Raises: ApplicationError, while the store is away."""
        return self.store.jobs_with_snapshots()

    # ── what goes wrong ─────────────────────────────────────────────────────────────────────

    def strike(self, what: str, target: str = "", *, seconds: float = 0.0) -> None:
        """A fault of the world itself, for so many seconds; 0: for a while that is drawn."""
        if what in self._faults.names:
            self._faults.strike(what, target, seconds)
        if what in self.clouds.faults:
            lasts_s = seconds or self.temporal.random.choice(LASTS_S)
            self.clouds.strike(what, target, seconds=lasts_s)

    def calm(self) -> None:
        """Everything is well again, and stays so."""
        self.chances = 0.0
        self._faults.calm()
        self.clouds.calm()

    def _is_odd(self) -> bool:
        return self.chances > 0 and self.temporal.random.random() < self.chances

    # ── what there is ───────────────────────────────────────────────────────────────────────

    def processes(self) -> Iterable[Process]:
        """Of all runs that were ever started, also on machines that have gone."""
        return self.machines.processes()

    def folders(self) -> Iterable[tuple[str, str]]:
        """Those that hold anything: asking after a run that is not there makes an empty one."""
        return [
            (machine.minion_id, run.run_id)
            for machine in self.machines.all
            if machine.is_reachable and not machine.has_ended
            for run in machine.runs.values()
            if run.is_staged or run.is_started
        ]

    def stored(self) -> Mapping[str, Sequence[str]]:
        return self.store.kept()

    def stored_output_bytes(self, run_id: str) -> int | None:
        size: int | None = self.store.get(output_name(*parse_run_id(run_id)))
        return size

    def delivered_attempt(self, job_id: str) -> int | None:
        return self.deliveries.attempts.get(job_id)

    def longest_store_absence_s(self) -> float:
        return self.store.longest_absence_s

    def cloud_machines(self) -> Iterable[CloudMachine]:
        return self.clouds.cloud_machines()

    def violations(self) -> list[str]:
        return [*self.machines.violations(), *self.clouds.violations()]
