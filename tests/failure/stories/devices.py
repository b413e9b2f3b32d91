"""The lives of a device and of a deployment: deployed to, lost, back, removed; rolled out, back."""

from typing import Any, ClassVar

from tests.failure.cases import Mode
from tests.failure.pairs import Pair
from tests.failure.stories.story import HARMLESS, Story
from tests.workflows.fake_devices import JETSON
from tests.workflows.fake_machines import Machine
from tests.workflows.fake_world import REGION
from workflows.contracts.deployments import (
    DeploymentAction,
    DeploymentOrder,
    DeploymentRequest,
    DeploymentStatus,
    RolloutPolicy,
    TargetState,
)
from workflows.contracts.devices import (
    DeviceAssignment,
    DeviceProgress,
    DeviceRequest,
    DeviceStatus,
    InferenceStatus,
)
from workflows.contracts.hosts import Announcement
from workflows.contracts.removals import Removal
from workflows.devices.deployment_lifecycle import DeploymentLifecycle
from workflows.devices.device_lifecycle import DeviceLifecycle

DEVICE = "dev-1"
HERE = Announcement(minion_id="SHA256:key", host="10.0.0.1", port=22)
IN_USE = (
    DeviceStatus.MAINTENANCE,
    DeviceStatus.ACTIVE,
    DeviceStatus.OFFLINE,
    DeviceStatus.REMOVING,
)
FIRST, STOP = 1, 2
"""The numbers of its assignments."""


class DeviceStory(Story):
    """Added, restarted, deployed to, stopped by a person, and removed."""

    lifecycle = "DeviceLifecycle"
    silent: ClassVar[dict[str, str]] = {
        "watch_device": "a broken watch says little: the device is probed, and watched anew",
        "inspect_again": "it is inspected again an hour later",
        "discard_device_specs": "its removal may interrupt it, and discards all",
    }
    is_to_be_lost: ClassVar[bool] = False
    restarts: ClassVar[bool] = True

    @property
    def workflow_id(self) -> str:
        return f"device/{self.name}"

    @property
    def status(self) -> str:
        return self.world.status_of(DEVICE)

    @property
    def request(self) -> DeviceRequest:
        row = self.world.rows.get(DEVICE)
        return DeviceRequest(
            device_id=DEVICE, account_id="acc-1", region_id=REGION, name="shop-1",
            minion_id="SHA256:key", sequence=row.sequence if row else 0,
        )  # fmt: skip

    async def begin(self) -> None:
        self.was_lost = False
        self.steps_taken: set[tuple[int, str]] = set()
        hardware = JETSON.model_copy(update={"reboot_required": self.restarts})
        self.world.machines[DEVICE] = Machine(hardware=hardware)
        await self.start(DeviceLifecycle, self.request, self.workflow_id)

    async def cancel(self) -> None:
        await self.signal(self.workflow_id, "remove", Removal(force=True))

    async def step(self) -> bool:
        if self.has_ended():
            if self.status == DeviceStatus.ARCHIVED:
                return True
            await self._adopted()
        row = self.world.rows.get(DEVICE)
        if row is None or self._has_yet_to_ask(row.status):
            return False
        if (row.sequence, row.status) in self.steps_taken:
            return False
        self.steps_taken.add((row.sequence, row.status))
        if row.status in (DeviceStatus.CONNECTING, DeviceStatus.FAILED):
            self.world.announcements[HERE.minion_id] = HERE
            await self.signal(self.workflow_id, "wake")
        elif row.status == DeviceStatus.ACTIVE:
            await self._while_active()
        elif row.status == DeviceStatus.OFFLINE:
            self.world.machines[DEVICE].reachable = True
        return False

    def _has_yet_to_ask(self, status: str) -> bool:
        asked = self.world.calls[Pair(self.lifecycle, "find_announcement")]
        return status == DeviceStatus.CONNECTING and not asked

    async def _while_active(self) -> None:
        """Deploy to it, then let it be lost, then stop it, then remove it."""
        ended = [number for number, _ in self.world.outcomes[DEVICE]]
        if DEVICE not in self.world.assignments:
            self.world.assignment(DEVICE, 7)
            await self.signal(self.workflow_id, "wake")
        elif FIRST not in ended:
            return
        elif self.is_to_be_lost and not self.was_lost:
            self.was_lost = True
            machine = self.world.machines[DEVICE]
            machine.reachable = False
            machine.changed.set()
        elif self.is_to_be_lost and not self._was_back():
            return
        elif self.world.assignments[DEVICE].number == FIRST:
            self._look_at_what_runs()
            self.world.assignment(DEVICE, None)
            await self.signal(self.workflow_id, "wake")
        elif STOP in ended and not self.asked:
            self.asked = True
            await self.cancel()

    def _was_back(self) -> bool:
        return "device.back" in self.world.events[DEVICE]

    def _look_at_what_runs(self) -> None:
        if self.mode in HARMLESS:
            run = self.world.on_devices[DEVICE].run
            self.expect(run.status is InferenceStatus.RUNNING, f"it was to run, is {run.status}")

    async def _adopted(self) -> None:
        """Ended from outside: the reconciliation starts it again from its row."""
        removal = self.status == DeviceStatus.REMOVING
        request = self.request.model_copy(update=self._resumed())
        await self.start(DeviceLifecycle, request, self.workflow_id)
        self.steps_taken.clear()
        self.asked = False
        if removal:
            await self.cancel()

    def _resumed(self) -> dict[str, Any]:
        if self.status not in IN_USE:
            return {}
        removal = self.status == DeviceStatus.REMOVING
        ended = self.world.outcomes[DEVICE]
        resumed_from = DeviceProgress(
            sequence=self.request.sequence,
            status=DeviceStatus(self.status),
            resume_status=DeviceStatus.ACTIVE,
            host="10.0.0.1", port=22, user="root", root=None,
            followed=DeviceAssignment(number=ended[-1][0]) if ended else None,
            removal=Removal() if removal else None,
            is_adopted=True,
        )  # fmt: skip
        return {"resumed_from": resumed_from}

    def look(self) -> None:
        world, here = self.world, self.world.on_devices[DEVICE]
        left = any("may still run there" in line for line in world.said)
        self.expect(here.run.status is not InferenceStatus.RUNNING or left, "it still runs")
        self.expect(len(here.ran) == len(set(here.ran)), f"was switched twice: {here.ran}")
        self.expect(world.machines[DEVICE].boot <= 2, "it was restarted twice")
        ends = [number for number, _ in world.outcomes[DEVICE]]
        self.expect(ends == sorted(set(ends)), f"its assignments came to an end twice: {ends}")
        if self.mode in HARMLESS:
            self.expect(world.outcomes[DEVICE] == [(FIRST, None), (STOP, None)], f"{ends} only")
            self.expect(here.is_cleared, "it was not cleared")
            self.expect(not world.device_specs, f"specs are left: {world.device_specs}")
            self.expect("device.failed" not in world.events[DEVICE], "its addition has failed")
        self.look_at_the_cause()


class LostDeviceStory(DeviceStory):
    """Deployed to, lost and back: what it runs is left alone, and its watch begins anew."""

    only = frozenset({"find_node_again", "probe_node", "watch_device", "inspect_again"})
    nth: ClassVar[dict[str, int]] = {"inspect_again": 1}
    is_to_be_lost = True
    restarts = False

    async def _while_active(self) -> None:
        machine = self.world.machines[DEVICE]
        if self._was_back() and machine.boot == 1:
            machine.boot += 1  # Its power was cut: it is inspected again.
            machine.changed.set()
        elif machine.boot == 1 or self.world.calls[Pair(self.lifecycle, "inspect_again")]:
            await super()._while_active()


class DeploymentStory(Story):
    """Three devices one by one, of which the last is away until a person stops waiting."""

    lifecycle = "DeploymentLifecycle"
    status_at_end = DeploymentStatus.STOPPED
    policy: ClassVar[RolloutPolicy] = RolloutPolicy(max_unavailable=1)
    bad: ClassVar[frozenset[str]] = frozenset()

    @property
    def workflow_id(self) -> str:
        return f"deployment/{self.name}"

    @property
    def status(self) -> str:
        return self.world.status_of("dpl-1")

    async def begin(self) -> None:
        self.steps_taken: set[int] = set()
        rollout = self.world.rollouts["dpl-1"]
        rollout.states = dict.fromkeys(("dev-1", "dev-2", "dev-3"), TargetState.WAITING)
        rollout.away, rollout.bad = {"dev-3"}, set(self.bad)
        await self._start()

    async def _start(self) -> None:
        row = self.world.rows.get("dpl-1")
        request = DeploymentRequest(
            deployment_id="dpl-1", account_id="acc-1", region_id=REGION, name="detector",
            policy=self.policy,
            sequence=row.sequence if row else 0,
            resumed_status=DeploymentStatus(self.status) if self.status else None,
            resumed_reason=row.status_reason if row else None,
        )  # fmt: skip
        await self.start(DeploymentLifecycle, request, self.workflow_id)

    async def cancel(self) -> None:
        order = DeploymentOrder(action=DeploymentAction.STOP, requested_by="ada")
        await self.signal(self.workflow_id, "order", order)

    async def step(self) -> bool:
        if self.has_ended():
            if self.status and DeploymentStatus(self.status).is_final:
                return True
            self.asked = False
            await self._start()
        row = self.world.rows.get("dpl-1")
        if row is None or row.status != DeploymentStatus.ROLLING_OUT:
            return False
        if row.sequence not in self.steps_taken:
            self.steps_taken.add(row.sequence)
            await self.signal(self.workflow_id, "wake")
        states = self.world.rollouts["dpl-1"].states
        if states["dev-2"] is TargetState.RUNNING and not self.asked:
            self.asked = True
            await self.cancel()
        return False

    def look(self) -> None:
        rollout = self.world.rollouts["dpl-1"]
        self.expect(rollout.at_once <= 1, f"{rollout.at_once} devices were asked at once")
        still = [name for name, state in rollout.states.items() if state.is_open]
        self.expect(not still, f"nobody says what became of {still}")
        if self.mode in HARMLESS:
            self.expect(self.status == self.status_at_end, f"it is {self.status}")
        self.look_at_the_cause()


class RolledBackStory(DeploymentStory):
    """The second device fails, and all are asked to run what they ran before."""

    only = frozenset({"roll_back"})
    status_at_end = DeploymentStatus.ROLLED_BACK
    policy = RolloutPolicy(max_unavailable=1, max_failures=1, rolls_back=True)
    bad = frozenset({"dev-2"})

    def look(self) -> None:
        super().look()
        if self.mode is not Mode.CANCELED:
            self.expect(self.world.rollouts["dpl-1"].is_back, "nobody was asked to go back")


DEVICE_STORIES = (DeviceStory, LostDeviceStory, DeploymentStory, RolledBackStory)
