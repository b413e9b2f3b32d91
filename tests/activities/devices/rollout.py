"""A deployment to a few devices, in rows, as its steps and those of its devices change it."""

from dataclasses import dataclass
from datetime import datetime

from sqlmodel import select

from activities.db import tables
from activities.db.session import Database
from activities.devices.assignments import find_assignment, next_number
from activities.devices.rollouts import advance_rollout
from activities.lifecycles.record import record
from tests.activities.devices.rows import (
    add_deployment,
    device_of,
    states_of,
)
from tests.activities.rows import NOW
from workflows.contracts.deployments import RolloutPolicy
from workflows.contracts.devices import (
    AssignmentOutcome,
    DeviceAssignment,
    DeviceEvent,
    DeviceRun,
    InferenceStatus,
)
from workflows.contracts.events import Event
from workflows.contracts.lifecycles import DeviceChanges, Record
from workflows.effects.deployments import AdvanceRollout, RolloutState
from workflows.effects.devices import FindAssignment

NAMES = ("a", "b", "c", "d")
FIRST = next_number(0, NOW)
"""The number of the first assignment of a device."""


@dataclass
class Rollout:
    """Four devices, of which the last is away, and a deployment of revision 1 to them."""

    database: Database
    configuration: tables.DeviceConfiguration
    devices: dict[str, tables.Device]
    deployment: tables.DeviceDeployment

    def advance(
        self,
        *,
        asks: bool = True,
        leaves: bool = False,
        accepted: int = 0,
        at: datetime = NOW,
        **policy: object,
    ) -> RolloutState:
        return advance_rollout(
            AdvanceRollout(
                deployment_id=self.deployment.id,
                policy=RolloutPolicy.model_validate(policy),
                asks=asks,
                leaves_absent=leaves,
                accepted_lost=accepted,
                at=at,
            )
        )

    def deploy(self, revision: int) -> "Rollout":
        """A newer deployment to the same devices."""
        with self.database.write() as session:
            devices = list(self.devices.values())
            newer = add_deployment(session, self.configuration, devices, revision)
        return Rollout(self.database, self.configuration, self.devices, newer)

    def assignment(self, name: str) -> DeviceAssignment:
        found = find_assignment(FindAssignment(device_id=self.devices[name].id)).assignment
        assert found is not None
        return found

    def ends(self, name: str, failed: str | None = None) -> None:
        """The device comes to an end with its assignment."""
        assignment, row = self.assignment(name), device_of(self.database, self.devices[name].id)
        run = DeviceRun(number=assignment.number, status=InferenceStatus.RUNNING)
        outcome = AssignmentOutcome(assignment=assignment, failed=failed)
        self.record(row, "active", DeviceChanges(run=run, outcome=outcome))

    def becomes(self, name: str, status: str) -> None:
        """The device is offline, in maintenance, or back."""
        row = device_of(self.database, self.devices[name].id)
        kind = DeviceEvent.BACK if status == "active" else DeviceEvent.OFFLINE
        self.record(row, status, DeviceChanges(), Event(type=kind, message=status))

    def record(
        self, row: tables.Device, status: str, changes: DeviceChanges, *events: Event
    ) -> None:
        step = Record(
            resource_id=row.id,
            account_id=row.account_id,
            sequence=row.sequence + 1,
            at=NOW,
            status=status,
            changes=changes,
            events=events,
        )
        assert record(step).applied

    @property
    def states(self) -> dict[str, str]:
        return states_of(self.database, self.deployment.id)

    def woken(self) -> set[str]:
        """What the outbox wakes."""
        with self.database.read() as session:
            rows = session.exec(select(tables.OutboxRow).where(tables.OutboxRow.verb == "wake"))
            return {row.resource_id for row in rows}
