"""Google Cloud behind the effects of the cloud queues, with all that may go wrong there."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from temporalio.exceptions import ApplicationError

from tests.simulation.contracts import (
    Attempt,
    CloudMachine,
    CutOff,
    Handler,
    Rows,
    Sleep,
    Steps,
    Temporal,
    Until,
)
from tests.simulation.outside.clouds.checks import Checks
from tests.simulation.outside.clouds.compute import Compute
from tests.simulation.outside.clouds.faults import FAULTS, Call, Faults, Requests
from tests.simulation.outside.clouds.feeds import Feeds
from tests.simulation.outside.clouds.instances import Body, Hosts, Instance
from tests.simulation.outside.clouds.lives import Lives
from tests.simulation.outside.clouds.machine_effects import MachineEffects
from tests.simulation.outside.clouds.projects import Projects
from tests.simulation.outside.clouds.reconciliation import Reconciliation
from tests.simulation.outside.clouds.resources import Resources
from workflows.contracts.base import Contract
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
        calls: Mapping[str, Call] = {
            **self._machines.effects,
            **self._checks.effects,
            **Resources(self._requests, self._projects).effects,
            "reconcile_machines": Reconciliation(temporal, self._machines).reconcile_machines,
        }
        self.effects: Mapping[str, Handler] = {
            **{name: _done_to_the_end(temporal, call) for name, call in calls.items()},
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


def _done_to_the_end(temporal: Temporal, call: Call) -> Handler:
    """The effect, which on cancellation goes on to its end, and is cancelled only then.

    As activities/providers/calls.py:call_provider, because a machine that is made after we stopped
    waiting would escape its termination.
    """

    def handle(attempt: Attempt, command: Any) -> Steps:
        steps, cut = call(attempt, command), None
        sent: bool | None = None
        try:
            while True:
                step = steps.send(sent)
                began_at = temporal.now()
                try:
                    sent = yield step
                except CutOff as thrown:
                    cut = thrown
                    sent = yield _left(step, (temporal.now() - began_at).total_seconds())
        except StopIteration as end:
            answer: Contract = end.value
        except ApplicationError:
            if cut is None:
                raise
        finally:
            steps.close()
        if cut is not None:
            raise cut
        return answer

    return handle


def _left(step: Sleep | Until, passed_s: float) -> Sleep | Until:
    """What is left of a wait of which so many seconds have passed."""
    if isinstance(step, Sleep):
        return Sleep(max(0.0, step.seconds - passed_s))
    return Until(step.event, max(0.0, step.limit_s - passed_s))
