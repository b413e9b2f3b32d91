"""Google Cloud behind the effects of the cloud queues, with all that may go wrong there."""

from collections.abc import Iterable, Mapping, Sequence

from tests.simulation.contracts import CloudMachine, Handler, Rows, Temporal
from tests.simulation.outside.clouds.checks import Checks
from tests.simulation.outside.clouds.compute import Compute
from tests.simulation.outside.clouds.faults import FAULTS, Faults, Requests
from tests.simulation.outside.clouds.feeds import Feeds
from tests.simulation.outside.clouds.instances import Body, Hosts, Instance
from tests.simulation.outside.clouds.lives import Lives
from tests.simulation.outside.clouds.machine_effects import MachineEffects
from tests.simulation.outside.clouds.projects import Projects
from tests.simulation.outside.clouds.reconciliation import Reconciliation
from tests.simulation.outside.clouds.resources import Resources
from workflows.contracts.machines import MachineOffer, MachineSpec


class Clouds:
    """The projects of all providers at Google.

    machines: boots and ends the machines of instances, as `Machines` of `outside/machines.py`.
    """

    faults: Sequence[str] = (*FAULTS, "preempted", "deadline", "heal")

    def __init__(self, temporal: Temporal, machines: Hosts) -> None:
        self._faults = Faults(temporal)
        self._projects = Projects(temporal, self._faults)
        self._requests = Requests(temporal, self._faults)
        self._lives = Lives(temporal, machines, self._faults, self._projects)
        self._compute = Compute(temporal, self._faults, self._projects, self._lives)
        self._machines = MachineEffects(temporal, self._requests, self._compute)
        self._feeds = Feeds(temporal, self._faults, self._requests, self._projects)
        self._checks = Checks(temporal, self._requests)
        self.effects: Mapping[str, Handler] = {
            **self._machines.effects,
            **self._checks.effects,
            **Resources(self._requests, self._projects).effects,
            "reconcile_machines": Reconciliation(temporal, self._machines).reconcile_machines,
            "receive_notifications": self._feeds.receive_notifications,
        }

    def connect(self, rows: Rows) -> None:
        """The rows that cloud activities read. Called once, before any effect."""
        self._requests.rows = self._machines.rows = self._feeds.rows = self._checks.rows = rows

    def strike(self, what: str, target: str = "", *, seconds: float = 0.0) -> None:
        """Begin a fault, or let a machine be preempted or reach its deadline.

        target: of what lasts, a provider, a zone, or empty for all; else a machine's name, its
        minion id, or empty for the oldest that runs; seconds: how long it lasts, 0 until `heal`.
        """
        if what == "heal":
            self.calm()
        elif what == "preempted" and (found := self._running(target)):
            self._lives.preempt(found)
        elif what == "deadline" and (found := self._running(target)):
            self._lives.reach_deadline(found)
        elif what in FAULTS:
            self._faults.strike(what, target, seconds)
            self._feeds.wake()

    def calm(self) -> None:
        self._faults.heal()
        self._feeds.wake()

    def add_orphan(
        self, provider_id: str, name: str, offer: MachineOffer, spec: MachineSpec
    ) -> None:
        """A machine with a provider's label that no lease has asked for."""
        self._lives.make(Body(provider_id, name, offer, spec), 1.0, came_late=True)

    def cloud_machines(self) -> Iterable[CloudMachine]:
        return self._compute.machines()

    def violations(self) -> list[str]:
        return list(self._compute.violations)

    def _running(self, target: str) -> Instance | None:
        """The instance that a strike means, if it is not ending."""
        return next(
            (
                one
                for project in self._projects
                for zones in project.there.values()
                for one in zones.values()
                if target in ("", one.name, one.minion_id)
                and one.status in ("PROVISIONING", "RUNNING")
            ),
            None,
        )
