"""The rows of devices and deployments, as activities/devices/ keep them."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from temporalio.exceptions import ApplicationError

from tests.simulation.contracts import Attempt, Handler, NotFound, Temporal, Unavailable
from workflows.contracts import errors
from workflows.contracts.base import Contract, Done
from workflows.contracts.deployments import (
    DeploymentOrder,
    DeploymentRequest,
    DeploymentStatus,
    RolloutCounts,
    RolloutPolicy,
    TargetState,
)
from workflows.contracts.devices import (
    DeviceAssignment,
    DeviceProgress,
    DeviceRequest,
    DeviceRun,
    DeviceStatus,
)
from workflows.contracts.lifecycles import DeploymentChanges, DeviceChanges, Record, Recorded
from workflows.contracts.removals import Removal
from workflows.effects import deployments, devices, nodes
from workflows.rules.devices.rollout import LOST_LIMIT, may_ask, next_to_ask

REDELIVERY_S = 5.0
LEFT_ALONE = ("removing", "archived")
BACK = ("device.active", "device.back", "device.prepared")


@dataclass
class Row:
    """One device or deployment."""

    id: str
    status: str = "new"
    reason: str | None = None
    sequence: int = 0
    run_id: str = ""
    history_length: int = 0
    events: list[tuple[str, str]] = field(default_factory=list)


@dataclass
class DeviceRow(Row):
    host: str = ""
    assignment: DeviceAssignment | None = None
    wanted: DeviceStatus | None = None
    wanted_revision: int = 0
    seen_revision: int = 0
    followed: int = 0
    runs_revision: int | None = None
    run: DeviceRun = field(default_factory=DeviceRun)
    removal: Removal | None = None
    ends: list[tuple[int, str | None]] = field(default_factory=list)
    """The recorded ends of its assignments, with why each has failed."""


@dataclass
class Target:
    state: TargetState = TargetState.WAITING
    number: int = 0
    earlier: int | None = None
    """The revision that it was to run before."""
    away_since: datetime | None = None
    """When it was first found away since it was asked."""

    def takes(self, number: int | None) -> bool:
        """Whether an end of this assignment counts for it; None: the device is gone."""
        was_given_up = self.state is TargetState.FAILED and self.away_since is not None
        is_expected = self.state.is_open or self.state is TargetState.LEFT
        return is_expected if number is None else (is_expected or was_given_up)


@dataclass
class DeploymentRow(Row):
    revision: int = 0
    policy: RolloutPolicy = field(default_factory=RolloutPolicy)
    deadline: datetime | None = None
    targets: dict[str, Target] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)


class Rows:
    """All rows, and the effects that read and write them; messages are repeated until delivered."""

    def __init__(self, temporal: Temporal) -> None:
        self.devices: dict[str, DeviceRow] = {}
        self.deployments: dict[str, DeploymentRow] = {}
        self.specs: set[tuple[str, int]] = set()
        self._temporal = temporal

    @property
    def all(self) -> dict[str, Row]:
        return {**self.devices, **self.deployments}

    def tell(self, row: Row, signal: str, argument: Contract | None = None) -> None:
        noun = "device" if isinstance(row, DeviceRow) else "deployment"
        try:
            self._temporal.signal(f"{noun}/{row.id}", signal, argument)
        except NotFound:
            return  # It reads its row when it is started from it.
        except Unavailable:
            self._temporal.later(REDELIVERY_S, partial(self.tell, row, signal, argument))

    # ── what people ask ─────────────────────────────────────────────────────────────────────

    def ask(self, row: DeviceRow, revision: int | None, deployment_id: str | None = None) -> int:
        """The number of a new assignment."""
        number = row.assignment.number + 1 if row.assignment else 1
        row.assignment = DeviceAssignment(
            number=number,
            configuration_id=None if revision is None else "dcf-1",
            revision=revision,
            deployment_id=deployment_id,
            requested_by="ada",
        )
        for deployment in self.deployments.values():
            target = deployment.targets.get(row.id)
            if target is not None and target.state is TargetState.LEFT:
                target.state = TargetState.SUPERSEDED
        self._temporal.later(0.05, lambda: self.tell(row, "wake"))
        return number

    def supersede_waiting(self, device_ids: Collection[str]) -> None:
        """Let devices leave deployments that have not asked them yet: something newer is asked."""
        for row in self.deployments.values():
            waiting = [
                row.targets[name]
                for name in sorted(row.targets.keys() & set(device_ids))
                if row.targets[name].state is TargetState.WAITING
            ]
            for target in waiting:
                target.state = TargetState.SUPERSEDED
            if waiting:
                self.tell(row, "wake")

    def want(self, row: DeviceRow, status: DeviceStatus) -> None:
        row.wanted, row.wanted_revision = status, row.wanted_revision + 1
        self.tell(row, "wake")

    def remove(self, row: DeviceRow) -> None:
        if row.status not in LEFT_ALONE:
            row.removal = Removal(force=True)
            self.tell(row, "remove", row.removal)

    def order(self, row: DeploymentRow, order: DeploymentOrder) -> None:
        self.tell(row, "order", order)

    def start(self, row: Row) -> None:
        """Start the workflow of a row, from its last step."""
        if isinstance(row, DeviceRow):
            request = self._device_request(row)
            self._temporal.start("DeviceLifecycle", f"device/{row.id}", request)
            if row.removal is not None and row.status != "removing":
                self.tell(row, "remove", row.removal)
        elif isinstance(row, DeploymentRow):
            resumed = DeploymentStatus(row.status) if row.sequence else None
            request_ = DeploymentRequest(
                deployment_id=row.id, account_id="acc-1", region_id="reg-1", name=row.id,
                policy=row.policy, deadline=row.deadline, sequence=row.sequence,
                resumed_status=resumed, resumed_reason=row.reason,
            )  # fmt: skip
            self._temporal.start("DeploymentLifecycle", f"deployment/{row.id}", request_)

    def _device_request(self, row: DeviceRow) -> DeviceRequest:
        request = DeviceRequest(
            device_id=row.id, account_id="acc-1", region_id="reg-1", name=row.id,
            minion_id=f"SHA256:{row.id}", host=row.host, sequence=row.sequence,
        )  # fmt: skip
        if row.sequence == 0:
            return request
        kinds = ("device.active", "device.maintenance")
        decisive = [kind for kind, _ in row.events if kind in kinds]
        resumes = DeviceStatus.ACTIVE
        if row.status == "maintenance" or decisive[-1:] == ["device.maintenance"]:
            resumes = DeviceStatus.MAINTENANCE
        progress = DeviceProgress(
            sequence=row.sequence, status=DeviceStatus(row.status), resume_status=resumes,
            host=row.host, port=22, user="root", root=None, reason=row.reason, is_adopted=True,
            removal=row.removal if row.status == "removing" else None, run=row.run,
            followed=DeviceAssignment(number=row.followed) if row.followed else None,
        )  # fmt: skip
        return request.model_copy(update={"resumed_from": progress})

    # ── effects ─────────────────────────────────────────────────────────────────────────────

    def effects(self) -> dict[str, Handler]:
        return {
            "record": self._record,
            "find_announcement": lambda _, __: nodes.AnnouncementFound(),
            "find_peers": lambda _, __: nodes.PeersFound(),
            "find_assignment": self._find,
            "seal_device_spec": self._seal,
            "discard_device_specs": self._discard,
            "advance_rollout": self._advance,
            "end_rollout": self._end,
            "roll_back": self._roll_back,
        }

    def _record(self, _: Attempt, step: Record) -> Recorded:
        row = self.all[step.resource_id]
        if row.sequence >= step.sequence:
            is_own = row.run_id == step.run_id and row.history_length <= step.history_length
            return Recorded(applied=False, sequence=row.sequence, is_stale=not is_own)
        row.status, row.reason, row.sequence = step.status, step.status_reason, step.sequence
        row.run_id, row.history_length = step.run_id, step.history_length
        row.events += [(str(event.type), event.message) for event in step.events]
        if isinstance(row, DeviceRow) and isinstance(step.changes, DeviceChanges):
            self._keep(row, step.changes)
        elif isinstance(row, DeploymentRow) and isinstance(step.changes, DeploymentChanges):
            row.deadline = step.changes.deadline or row.deadline
        return Recorded(applied=True, sequence=step.sequence)

    def _keep(self, row: DeviceRow, changes: DeviceChanges) -> None:
        row.seen_revision = changes.seen_revision or row.seen_revision
        row.run, row.removal = changes.run or row.run, changes.removal or row.removal
        if row.status == "archived":
            self._close(row.id, None, TargetState.SUPERSEDED)
        if row.status == "active" and row.events[-1:] and row.events[-1][0] in BACK:
            for deployment in self.deployments.values():
                if row.id in deployment.targets and deployment.targets[row.id].state.is_open:
                    self.tell(deployment, "wake")
        if (outcome := changes.outcome) is None:
            return
        row.followed = outcome.assignment.number
        row.ends.append((outcome.assignment.number, outcome.failed))
        if outcome.failed is None:
            row.runs_revision = outcome.assignment.revision
        state = TargetState.RUNNING if outcome.failed is None else TargetState.FAILED
        self._close(row.id, outcome.assignment.number, state)

    def _close(self, device_id: str, number: int | None, state: TargetState) -> None:
        for deployment in self.deployments.values():
            target = deployment.targets.get(device_id)
            is_meant = target is not None and number in (None, target.number)
            if target is not None and is_meant and target.takes(number):
                target.state, target.away_since = state, None
                later = partial(self.tell, deployment, "wake")
                self._temporal.later(0.05, later)

    def _find(self, _: Attempt, asked: devices.FindAssignment) -> Contract:
        row = self.devices[asked.device_id]
        is_new = row.wanted_revision > row.seen_revision
        return devices.AssignmentFound(
            status=row.wanted if is_new else None,
            revision=row.wanted_revision,
            assignment=row.assignment,
            sequence=row.sequence,
        )

    def _seal(self, _: Attempt, asked: devices.SealDeviceSpec) -> Contract:
        self.specs.add((asked.device_id, asked.assignment.number))
        return devices.DeviceSpecSealed(reference=f"{asked.device_id}/{asked.assignment.number}")

    def _discard(self, _: Attempt, asked: devices.DiscardDeviceSpecs) -> Contract:
        ended = {
            (device_id, number)
            for device_id, number in self.specs
            if device_id == asked.device_id and (asked.number is None or number <= asked.number)
        }
        self.specs -= ended
        return Done()

    # ── rollouts ────────────────────────────────────────────────────────────────────────────

    def _deployment(self, deployment_id: str) -> DeploymentRow:
        row = self.deployments.get(deployment_id)
        if row is None:
            raise ApplicationError(f"{deployment_id}: is not there", type=errors.NOT_FOUND)
        for name, target in row.targets.items():
            device = self.devices[name]
            is_newer = device.assignment is not None and device.assignment.number > target.number
            if (target.state is TargetState.ASKED and is_newer) or (
                target.state.is_open and device.status in LEFT_ALONE
            ):
                target.state = TargetState.SUPERSEDED
            elif target.state is TargetState.ASKED:
                self._wait_for(target, device)
        return row

    def _wait_for(self, target: Target, device: DeviceRow) -> None:
        """Give an asked device up that has been away for too long."""
        if device.status == "active":
            target.away_since = None
        elif target.away_since is None:
            target.away_since = self._temporal.now()
        elif self._temporal.now() >= target.away_since + LOST_LIMIT:
            is_held = device.status == "maintenance"
            target.state = TargetState.LEFT if is_held else TargetState.FAILED
            target.away_since = None if is_held else target.away_since

    def counts(self, row: DeploymentRow) -> RolloutCounts:
        counted = Counter(target.state.value for target in row.targets.values())
        waiting = [name for name, t in row.targets.items() if t.state is TargetState.WAITING]
        away = sum(self.devices[name].status != "active" for name in waiting)
        lost = sum(
            t.state is TargetState.FAILED and t.away_since is not None for t in row.targets.values()
        )
        return RolloutCounts(away=away, lost=lost, **counted)

    def _advance(self, _: Attempt, asked: deployments.AdvanceRollout) -> Contract:
        row = self._deployment(asked.deployment_id)
        before = self.counts(row)
        if asked.asks and may_ask(asked.policy, before, asked.accepted_lost):
            waiting = [name for name, t in row.targets.items() if t.state is TargetState.WAITING]
            present = [name for name in waiting if self.devices[name].status == "active"]
            absent = [name for name in waiting if name not in present]
            present = present[: next_to_ask(asked.policy, before, asked.accepted_lost)]
            is_left = asked.leaves_absent
            for name in absent if is_left else present:
                target, device = row.targets[name], self.devices[name]
                target.earlier = device.assignment.revision if device.assignment else None
                target.number = self.ask(device, row.revision, row.id)
                target.state = TargetState.LEFT if is_left else TargetState.ASKED
            if (
                not is_left
                and present
                and before.asked + len(present) > asked.policy.max_unavailable
            ):
                row.violations.append(f"{row.id} asks more devices than it may")
        return self._state(row)

    def _end(self, _: Attempt, asked: deployments.EndRollout) -> Contract:
        row = self._deployment(asked.deployment_id)
        for target in row.targets.values():
            if target.state.is_open:
                is_asked = target.state is TargetState.ASKED
                target.state = TargetState.LEFT if is_asked else TargetState.WITHDRAWN
        return self._state(row)

    def _roll_back(self, _: Attempt, asked: deployments.RollBack) -> Contract:
        row = self._deployment(asked.deployment_id)
        for name, target in row.targets.items():
            if target.state in (TargetState.SUPERSEDED, TargetState.WITHDRAWN):
                continue
            device, was_asked = self.devices[name], target.number > 0
            target.state = TargetState.WITHDRAWN
            newest = device.assignment.number if device.assignment else 0
            if was_asked and device.status not in LEFT_ALONE and newest == target.number:
                self.ask(device, target.earlier)
        return self._state(row)

    def _state(self, row: DeploymentRow) -> deployments.RolloutState:
        return deployments.RolloutState(counts=self.counts(row), sequence=row.sequence)
