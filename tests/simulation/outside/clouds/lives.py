"""What becomes of instances at Google, by itself or because it was asked for.

PROVISIONING ─► RUNNING ─► STOPPING ─► gone
     └─ stockout: gone └─ its host fails: TERMINATED ─► STOPPING ─► gone
"""

from datetime import timedelta

from tests.simulation.contracts import Temporal
from tests.simulation.outside.clouds.faults import Faults
from tests.simulation.outside.clouds.instances import (
    Body,
    Hosts,
    Instance,
    Operation,
    OperationError,
    boot,
)
from tests.simulation.outside.clouds.projects import Project, Projects
from workflows.rules.catalogue.providers import preemption_notices_s

SHOWS_KEY_S = (3.0, 40.0)
SHOWS_KEY_LATE_S = (300.0, 1500.0)
"""How long a machine takes to boot and to give Google its host key."""
DELETES_S = (4.0, 60.0)
COMES_LATE_S = (40.0, 900.0)
SHORT = OperationError("ZONE_RESOURCE_POOL_EXHAUSTED", "the zone does not have enough resources")
PREEMPTED = OperationError("UNSUPPORTED_OPERATION", "it was preempted while it was created")
DELETED = OperationError("RESOURCE_NOT_FOUND", "it was deleted while it was created")
PREEMPTION_NOTICE_S = preemption_notices_s()[0]
MUTE_HOST = "192.0.2.1"
"""Where nobody answers: an address of documentation (RFC 5737)."""
HOST_ERROR = "compute.instances.hostError"
PREEMPTION = "compute.instances.preempted"


class Lives:
    """The instances of all projects, from the acceptance of an insert until they are gone.

    hosts: boots and ends their machines.
    """

    def __init__(
        self, temporal: Temporal, hosts: Hosts, faults: Faults, projects: Projects
    ) -> None:
        self._temporal = temporal
        self._hosts = hosts
        self._faults = faults
        self._projects = projects
        self._number = 1000

    # ── an insert ───────────────────────────────────────────────────────────────────────────

    def make(self, body: Body, seconds: float, *, came_late: bool = False) -> Operation:
        """Create an instance, which runs after so many seconds."""
        instance, operation = self._add(body, came_late=came_late)
        self._temporal.later(seconds, lambda: self._run(instance, operation))
        return operation

    def fail(self, body: Body, seconds: float) -> Operation:
        """Show an instance until Google says, after so many seconds, that it has no capacity."""
        instance, operation = self._add(body)

        def fail() -> None:
            if instance.status == "PROVISIONING":
                operation.end(self._temporal.now(), SHORT, 503)
                self._be_gone(instance)

        self._temporal.later(seconds, fail)
        return operation

    def make_later(self, body: Body) -> None:
        """Create an instance minutes after the one who has asked for it had its answer, or none."""

        def make() -> None:
            if self._projects.of(body.provider_id).instance(body.name, body.zone) is None:
                self._temporal.note("Google", f"makes {body.name} in {body.zone} late")
                self.make(body, 1.0, came_late=True)

        self._temporal.later(self._temporal.random.uniform(*COMES_LATE_S), make)

    # ── its end ─────────────────────────────────────────────────────────────────────────────

    def delete(self, instance: Instance) -> None:
        """Begin to delete an instance, which costs until it is gone."""
        if instance.status == "STOPPING" or instance.gone_at is not None:
            return
        project, random = self._project(instance), self._temporal.random
        self._begin_end(instance, DELETED)
        operation = project.operation(instance, "delete")
        project.log(instance, "delete")
        seconds = random.uniform(*DELETES_S)

        def gone() -> None:
            self._be_gone(instance)
            operation.end(self._temporal.now())
            project.log(instance, "delete")

        self._temporal.later(random.uniform(0, seconds), lambda: self._end_machine(instance))
        self._temporal.later(seconds, gone)

    def preempt(self, instance: Instance) -> None:
        """Google takes a spot machine, after its notice; on demand, its host fails.

        A machine that Google would move or restart then stays as it is.
        """
        if instance.status == "PROVISIONING" and instance.body.offer.spot:
            self._begin_end(instance, PREEMPTED)
            self._be_gone(instance)
        elif instance.status == "RUNNING" and instance.body.offer.spot:
            self._take(instance)
        elif instance.status == "RUNNING" and not instance.body.returns:
            self._stop(instance)

    def reach_deadline(self, instance: Instance) -> None:
        """Google deletes a machine that has run for as long as it may."""
        if instance.status == "RUNNING" and instance.body.run_limit_s is not None:
            self._temporal.note("Google", f"ends {instance.name}, which has run for long enough")
            self.delete(instance)

    def _take(self, instance: Instance) -> None:
        project = self._project(instance)
        operation = project.operation(instance, PREEMPTION)
        self._begin_end(instance)
        project.log(instance, PREEMPTION)

        def end() -> None:
            self._end_machine(instance)
            instance.stopped_at = self._temporal.now()
            operation.end(self._temporal.now())
            seconds = self._temporal.random.uniform(*DELETES_S)
            self._temporal.later(seconds, lambda: self._be_gone(instance))

        self._temporal.later(PREEMPTION_NOTICE_S, end)

    def _stop(self, instance: Instance) -> None:
        """The host of a machine fails. The machine stays stopped, and its disk costs."""
        project, now = self._project(instance), self._temporal.now()
        self._begin_end(instance)
        self._end_machine(instance)
        instance.status, instance.stopped_at = "TERMINATED", now
        project.operation(instance, HOST_ERROR).end(now)
        project.log(instance, HOST_ERROR)

    # ── in between ──────────────────────────────────────────────────────────────────────────

    def _add(self, body: Body, *, came_late: bool = False) -> tuple[Instance, Operation]:
        self._number += 1
        instance = Instance(body, self._number, self._temporal.now(), came_late=came_late)
        project = self._projects.of(body.provider_id)
        project.add(instance)
        project.log(instance, "insert")
        instance.inserted = project.operation(instance, "insert")
        return instance, instance.inserted

    def _run(self, instance: Instance, inserted: Operation) -> None:
        """The insert is done: the machine boots, and begins to cost."""
        if instance.status != "PROVISIONING":
            return
        now, where = self._temporal.now(), (instance.provider_id, instance.zone)
        instance.status, instance.started_at = "RUNNING", now
        if self._faults.meets("boots_mute", *where):
            instance.host = MUTE_HOST
        else:
            instance.machine = boot(instance, self._hosts)
            instance.host = instance.machine.host
        is_late = self._faults.meets("key_late", *where)
        shows_s = self._temporal.random.uniform(*(SHOWS_KEY_LATE_S if is_late else SHOWS_KEY_S))
        instance.shows_key_at = now + timedelta(seconds=shows_s)
        if instance.body.run_limit_s is not None:
            instance.until_deadline = self._temporal.later(
                instance.body.run_limit_s, lambda: self.reach_deadline(instance)
            )
        inserted.end(now)
        self._project(instance).log(instance, "insert")

    def _begin_end(self, instance: Instance, error: OperationError | None = None) -> None:
        """error: of the insert, if it still runs."""
        if instance.inserted is not None:
            instance.inserted.end(self._temporal.now(), error, 400)
        instance.status = "STOPPING"
        instance.ending_at = instance.ending_at or self._temporal.now()
        instance.cancel_deadline()

    def _end_machine(self, instance: Instance) -> None:
        machine, instance.machine = instance.machine, None
        if machine is not None:
            self._hosts.end(machine)

    def _be_gone(self, instance: Instance) -> None:
        self._end_machine(instance)
        instance.gone_at = self._temporal.now()
        self._project(instance).drop(instance)

    def _project(self, instance: Instance) -> Project:
        return self._projects.of(instance.provider_id)
