"""Devices that keep what they were brought, through cuts of their power as well."""

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from temporalio.exceptions import ApplicationError

from tests.simulation.contracts import Attempt, Event, Handler, Sleep, Steps, Temporal, Until
from tests.workflows.fake_devices import JETSON
from workflows.contracts import errors
from workflows.contracts.base import Contract, Done
from workflows.contracts.devices import DeviceRun, InferenceStatus
from workflows.contracts.nodes import NodeAddress, Preparation
from workflows.effects import devices, nodes
from workflows.effects.effect import SiteCommand

WATCH_S = 3600.0
HEALTHY_S = 10.0
BOOT_S = 40.0
LAST_WORDS = "CUDA error: an illegal memory access was encountered"


@dataclass
class Machine:
    """One device."""

    host: str
    boots: int = 1
    has_power: bool = True
    has_network: bool = True
    staged: set[int] = field(default_factory=set)
    run: DeviceRun = field(default_factory=DeviceRun)
    newest: int = 0
    """The number of the newest assignment that it was switched to or stopped for."""
    switching: int | None = None
    """The assignment that it is being switched to, which a cut of the power does not end."""
    came_to: dict[int, str | None] = field(default_factory=dict)
    """By assignment, why it does not run what was asked; None: it did."""
    bad: set[int] = field(default_factory=set)
    ran: list[int] = field(default_factory=list)
    changed: Event = field(default_factory=Event)
    has_left: bool = False

    @property
    def is_reachable(self) -> bool:
        return self.has_power and self.has_network


class Machines:
    """All devices, and the effects on them."""

    def __init__(self, temporal: Temporal, specs: AbstractSet[tuple[str, int]]) -> None:
        self.all: dict[str, Machine] = {}
        """By device."""
        self._specs = specs
        """What is sealed, by device and assignment."""
        self._temporal = temporal

    def add(self, device_id: str) -> Machine:
        machine = Machine(host=f"10.9.0.{len(self.all) + 1}")
        self.all[device_id] = machine
        return machine

    # ── what happens to them ────────────────────────────────────────────────────────────────

    def cut_power(self, machine: Machine) -> None:
        """What it has kept is there when it starts again, and what it ran starts with it."""
        if machine.has_power:
            machine.has_power = False
            machine.changed.set()
            self._temporal.later(BOOT_S, lambda: self._boot(machine))

    def _boot(self, machine: Machine) -> None:
        machine.has_power = True
        machine.boots += 1
        if machine.switching is not None:
            self._finish_later(machine, machine.switching)

    def lose(self, machine: Machine, seconds: float) -> None:
        machine.has_network = False
        machine.changed.set()

        def is_back() -> None:
            machine.has_network = True

        self._temporal.later(seconds, is_back)

    def exit(self, machine: Machine) -> None:
        """The command of its inference ends by itself."""
        if machine.run.status is InferenceStatus.RUNNING and machine.switching is None:
            failed = {"status": InferenceStatus.FAILED, "exit_code": 1, "reason": LAST_WORDS}
            machine.run = machine.run.model_copy(update=failed)
            machine.changed.set()

    # ── the effects ─────────────────────────────────────────────────────────────────────────

    def effects(self) -> dict[str, Handler]:
        return {
            "reach_node": lambda _, asked: nodes.NodeReached(boot_id=self._boot_id(asked.node)),
            "inspect_node": self._at_once(lambda _, __: nodes.NodeInspected(hardware=JETSON)),
            "prepare_node": self._at_once(
                lambda _, __: nodes.NodePrepared(preparation=Preparation())
            ),
            "reboot_node": self._at_once(self._reboot),
            "restore_logins": self._at_once(self._leave),
            "stage_on_device": self._stage,
            "switch_device": self._switch,
            "stop_device": self._at_once(self._stop),
            "watch_device": self._watch,
            "clear_device": self._at_once(self._clear),
        }

    def _reach(self, node: NodeAddress) -> Machine:
        machine = self.all[node.node_id]
        if not machine.is_reachable:
            raise ApplicationError(f"{node.node_id}: no route", type=errors.NODE_UNREACHABLE)
        return machine

    def _boot_id(self, node: NodeAddress) -> str:
        return str(self._reach(node).boots)

    def _at_once(self, act: Callable[[Machine, SiteCommand], Contract]) -> Handler:
        def handle(_: Attempt, asked: SiteCommand) -> Contract:
            return act(self._reach(asked.node), asked)

        return handle

    def _reboot(self, machine: Machine, asked: SiteCommand) -> Contract:
        assert isinstance(asked, nodes.RebootNode)
        if asked.boot_id == str(machine.boots):
            self.cut_power(machine)
        return Done()

    def _leave(self, machine: Machine, _: SiteCommand) -> Contract:
        machine.has_left = True
        return Done()

    def _waits(self, node: NodeAddress, seconds: float) -> Steps:
        """Let so much time pass. Raises: OutcomeUnknown, when the device is lost meanwhile."""
        boots = self._reach(node).boots
        while seconds > 0:
            yield Sleep(min(2.0, seconds))
            seconds -= 2.0
            machine = self.all[node.node_id]
            if not machine.is_reachable or machine.boots != boots:
                raise ApplicationError("the connection broke", type=errors.OUTCOME_UNKNOWN)
        return Done()

    def _stage(self, _: Attempt, asked: devices.StageOnDevice) -> Steps:
        machine = self._reach(asked.node)
        has_come_to_it = asked.number <= machine.newest and machine.switching is None
        if asked.number not in machine.staged and not has_come_to_it:
            if (asked.node.node_id, asked.number) not in self._specs:
                raise ApplicationError(f"{asked.spec}: is not stored", type=errors.NOT_FOUND)
            yield from self._waits(asked.node, self._temporal.random.choice((1, 20, 120, 600)))
            machine.staged.add(asked.number)
        return devices.StagedOnDevice()

    def _switch(self, _: Attempt, asked: devices.SwitchDevice) -> Steps:
        machine, number = self._reach(asked.node), asked.number
        if number < machine.newest:
            return devices.DeviceSwitched(run=machine.run, failed="a newer one was asked for")
        if number not in machine.came_to and machine.switching != number:
            if number not in machine.staged:
                raise ApplicationError(f"{number}: is not staged", type=errors.NODE_REFUSED)
            machine.newest = machine.switching = number
            self._finish_later(machine, number)
        while number not in machine.came_to:
            yield from self._waits(asked.node, 2)
            if machine.newest != number:
                raise ApplicationError("a newer one is there", type=errors.NODE_REFUSED)
        return devices.DeviceSwitched(run=machine.run, failed=machine.came_to[number])

    def _finish_later(self, machine: Machine, number: int) -> None:
        """As the unit of the device does it, whether anybody is connected or not."""
        boots = machine.boots

        def finish() -> None:
            if machine.switching != number or machine.boots != boots or not machine.has_power:
                return
            machine.switching = None
            if number in machine.bad:
                machine.came_to[number] = "its health check failed"
                return
            machine.came_to[number] = None
            machine.ran.append(number)
            machine.run = DeviceRun(number=number, status=InferenceStatus.RUNNING)
            machine.changed.set()

        self._temporal.later(HEALTHY_S, finish)

    def _stop(self, machine: Machine, asked: SiteCommand) -> Contract:
        assert isinstance(asked, devices.StopDevice)
        if asked.number < machine.newest:
            return devices.DeviceSwitched(run=machine.run, failed="a newer one was asked for")
        machine.newest, machine.switching = asked.number, None
        machine.run = DeviceRun(number=asked.number)
        machine.changed.set()
        return devices.DeviceSwitched(run=machine.run)

    def _watch(self, _: Attempt, asked: devices.WatchDevice) -> Steps:
        while True:
            machine = self._reach(asked.node)
            if asked.boot_id not in ("", str(machine.boots)):
                raise ApplicationError("it has restarted", type=errors.OUTCOME_UNKNOWN)
            if machine.run != asked.known:
                return devices.DeviceObserved(run=machine.run)
            machine.changed.clear()
            yield Until(machine.changed, WATCH_S)

    def _clear(self, machine: Machine, _: SiteCommand) -> Contract:
        machine.run, machine.staged, machine.switching = DeviceRun(), set(), None
        machine.changed.set()
        return devices.DeviceCleared()
