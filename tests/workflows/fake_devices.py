"""The devices of the fake world: what each is to run, what it runs, and how rollouts go."""

import asyncio
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from temporalio import activity
from temporalio.exceptions import ApplicationError

from tests.workflows.fake_machines import Machine
from workflows.contracts import errors
from workflows.contracts.base import Done
from workflows.contracts.deployments import RolloutCounts, TargetState
from workflows.contracts.devices import DeviceAssignment, DeviceRun, DeviceStatus, InferenceStatus
from workflows.contracts.lifecycles import DeviceChanges, Record
from workflows.contracts.nodes import Gpu, Hardware, Jetson, NodeAddress
from workflows.effects import deployments, devices
from workflows.rules.devices.rollout import next_to_ask

JETSON = Hardware(
    cpu_count=8,
    memory_bytes=32 << 30,
    is_root=True,
    gpus=(Gpu(index=0, name="Orin (nvgpu)", uuid="GPU-orin"),),
    jetson=Jetson(
        model_text="NVIDIA Jetson AGX Orin Developer Kit", compatible=("nvidia,tegra234",)
    ),
)
"""The hardware of a device that the platform knows."""


@dataclass
class OnDevice:
    """What a device has and does, whoever still knows of it."""

    staged: set[int] = field(default_factory=set)
    run: DeviceRun = field(default_factory=DeviceRun)
    ran: list[int] = field(default_factory=list)
    """The numbers of the assignments that it was switched to, in their order."""
    bad: set[int] = field(default_factory=set)
    """The numbers of the assignments whose revisions fail their health check."""
    is_cleared: bool = False


@dataclass
class Rollout:
    """The devices of one deployment, each with its state and whether it is away."""

    states: dict[str, TargetState] = field(default_factory=dict)
    away: set[str] = field(default_factory=set)
    bad: set[str] = field(default_factory=set)
    at_once: int = 0
    """The most devices that were asked and present at once."""
    is_back: bool = False
    """Whether its devices were asked to run what they ran before."""

    def settle(self) -> None:
        """Let every device that is asked and present come to an end."""
        for name, state in self.states.items():
            if state is TargetState.ASKED and name not in self.away:
                failed = name in self.bad
                self.states[name] = TargetState.FAILED if failed else TargetState.RUNNING

    def counts(self) -> RolloutCounts:
        counted = Counter(state.value for state in self.states.values())
        waiting = [name for name, state in self.states.items() if state is TargetState.WAITING]
        return RolloutCounts(away=len(self.away.intersection(waiting)), **counted)


@dataclass
class Devices:
    """Each device is the machine of its id."""

    machines: dict[str, Machine]
    wanted: dict[str, tuple[str, int]]
    seen_revisions: dict[str, int]
    assignments: dict[str, DeviceAssignment] = field(default_factory=dict)
    """The newest assignment in the row of each device."""
    device_specs: set[tuple[str, int]] = field(default_factory=set)
    on_devices: dict[str, OnDevice] = field(default_factory=lambda: defaultdict(OnDevice))
    outcomes: dict[str, list[tuple[int, str | None]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """By device, the recorded ends of assignments."""
    rollouts: dict[str, Rollout] = field(default_factory=lambda: defaultdict(Rollout))

    def machine(self, address: NodeAddress) -> Machine:
        """The machine at an address. Raises as the real effects do."""
        raise NotImplementedError

    def assignment(self, device_id: str, revision: int | None) -> DeviceAssignment:
        """Write an assignment into a device's row, as a deployment does; the wake is sent apart."""
        before = self.assignments.get(device_id)
        assignment = DeviceAssignment(
            number=before.number + 1 if before else 1,
            configuration_id=None if revision is None else "dcf-1",
            revision=revision,
            requested_by="ada",
        )
        self.assignments[device_id] = assignment
        return assignment

    def record_device(self, step: Record, changes: DeviceChanges) -> None:
        """What a step of a device leaves in its row."""
        if changes.seen_revision is not None:
            self.seen_revisions[step.resource_id] = changes.seen_revision
        if changes.outcome is not None:
            ended = (changes.outcome.assignment.number, changes.outcome.failed)
            self.outcomes[step.resource_id].append(ended)

    def find_assignment(self, asked: devices.FindAssignment) -> devices.AssignmentFound:
        status, revision = self.wanted.get(asked.device_id, ("", 0))
        is_new = revision > self.seen_revisions.get(asked.device_id, 0)
        return devices.AssignmentFound(
            status=DeviceStatus(status) if is_new else None,
            revision=revision,
            assignment=self.assignments.get(asked.device_id),
        )

    def seal_device_spec(self, asked: devices.SealDeviceSpec) -> devices.DeviceSpecSealed:
        self.device_specs.add((asked.device_id, asked.assignment.number))
        return devices.DeviceSpecSealed(reference=f"{asked.device_id}/{asked.assignment.number}")

    def discard_device_specs(self, asked: devices.DiscardDeviceSpecs) -> Done:
        kept = {(who, n) for who, n in self.device_specs if who != asked.device_id}
        newest = asked.number
        newer = {(who, n) for who, n in self.device_specs - kept if newest and n > newest}
        self.device_specs = kept | newer
        return Done()

    def stage_on_device(self, asked: devices.StageOnDevice) -> devices.StagedOnDevice:
        self.machine(asked.node)
        if (asked.node.node_id, asked.number) not in self.device_specs:
            raise ApplicationError(f"{asked.spec}: is not in the store", type=errors.NOT_FOUND)
        self.on_devices[asked.node.node_id].staged.add(asked.number)
        return devices.StagedOnDevice()

    def switch_device(self, asked: devices.SwitchDevice) -> devices.DeviceSwitched:
        machine, here = self.machine(asked.node), self.on_devices[asked.node.node_id]
        if asked.number not in here.staged:
            raise ApplicationError(f"{asked.number}: not staged", type=errors.NODE_REFUSED)
        if asked.number < here.run.number:
            return devices.DeviceSwitched(run=here.run, failed="a newer one runs")
        if asked.number in here.bad:
            return devices.DeviceSwitched(run=here.run, failed="its health check failed")
        if here.run.number != asked.number:
            here.ran.append(asked.number)
        here.run = DeviceRun(number=asked.number, status=InferenceStatus.RUNNING)
        machine.changed.set()
        return devices.DeviceSwitched(run=here.run)

    def stop_device(self, asked: devices.StopDevice) -> devices.DeviceSwitched:
        machine, here = self.machine(asked.node), self.on_devices[asked.node.node_id]
        here.run = DeviceRun(number=asked.number, status=InferenceStatus.STOPPED)
        machine.changed.set()
        return devices.DeviceSwitched(run=here.run)

    async def watch_device(self, asked: devices.WatchDevice) -> devices.DeviceObserved:
        while True:
            machine, here = self.machine(asked.node), self.on_devices[asked.node.node_id]
            if asked.boot_id not in ("", str(machine.boot)):
                raise ApplicationError("it has restarted", type=errors.OUTCOME_UNKNOWN)
            if here.run != asked.known:
                return devices.DeviceObserved(run=here.run)
            if activity.in_activity():
                activity.heartbeat()
            machine.changed.clear()
            try:
                await asyncio.wait_for(machine.changed.wait(), 0.5)
            except TimeoutError:
                continue

    def clear_device(self, asked: devices.ClearDevice) -> devices.DeviceCleared:
        machine, here = self.machine(asked.node), self.on_devices[asked.node.node_id]
        here.run, here.staged, here.is_cleared = DeviceRun(), set(), True
        machine.changed.set()
        return devices.DeviceCleared()

    # ── rollouts ────────────────────────────────────────────────────────────────────────────

    def advance_rollout(self, asked: deployments.AdvanceRollout) -> deployments.RolloutState:
        rollout = self.rollouts[asked.deployment_id]
        rollout.settle()
        if asked.asks:
            waiting = [n for n, s in rollout.states.items() if s is TargetState.WAITING]
            away = [name for name in waiting if name in rollout.away]
            present = [name for name in waiting if name not in rollout.away]
            present = present[: next_to_ask(asked.policy, rollout.counts(), asked.accepted_lost)]
            rollout.at_once = max(rollout.at_once, len(present))
            state = TargetState.LEFT if asked.leaves_absent else TargetState.ASKED
            for name in away if asked.leaves_absent else present:
                rollout.states[name] = state
        return self._rollout_state(rollout)

    def end_rollout(self, asked: deployments.EndRollout) -> deployments.RolloutState:
        rollout = self.rollouts[asked.deployment_id]
        for name, state in rollout.states.items():
            if state is TargetState.ASKED:
                rollout.states[name] = TargetState.LEFT
            elif state is TargetState.WAITING:
                rollout.states[name] = TargetState.WITHDRAWN
        return self._rollout_state(rollout)

    def roll_back(self, asked: deployments.RollBack) -> deployments.RolloutState:
        rollout = self.rollouts[asked.deployment_id]
        rollout.is_back = True
        rollout.states = dict.fromkeys(rollout.states, TargetState.WITHDRAWN)
        return self._rollout_state(rollout)

    def _rollout_state(self, rollout: Rollout) -> deployments.RolloutState:
        failed = [name for name, state in rollout.states.items() if state is TargetState.FAILED]
        return deployments.RolloutState(
            counts=rollout.counts(), failures=tuple(f"{name}: bad" for name in failed[:3])
        )
