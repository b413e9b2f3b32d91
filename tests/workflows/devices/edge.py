"""One device in virtual time: its row, its machine, and its lifecycle."""

from collections.abc import Callable
from typing import Any

from temporalio.exceptions import ApplicationError

from tests.simulation.contracts import Attempt, Event, Handler, Sleep, Steps, Until
from tests.simulation.engine.engine import Engine, Limits
from tests.workflows.fake_devices import JETSON
from workflows.contracts import errors
from workflows.contracts.base import Contract, Done
from workflows.contracts.devices import (
    AssignmentOutcome,
    DeviceAssignment,
    DeviceProgress,
    DeviceRequest,
    DeviceRun,
    DeviceStatus,
    InferenceStatus,
    OutputBacklog,
)
from workflows.contracts.lifecycles import DeviceChanges, Record, Recorded
from workflows.contracts.nodes import Preparation
from workflows.devices.device_lifecycle import DeviceLifecycle
from workflows.effects import devices, nodes
from workflows.effects.devices import DeviceObserved

DEVICE, ID = "dev-1", "device/dev-1"
WATCH_S = 3600.0
"""After so long a watch looks by itself."""
LOST = "no route"


class Edge:
    """A device that keeps what it was brought, and does by itself what it was asked to do."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.engine = Engine(7, workflows=[DeviceLifecycle], limits=limits)
        self.engine.serve(self._effects())
        # In the row.
        self.steps: list[Record] = []
        self.assignment: DeviceAssignment | None = None
        self.wanted: tuple[DeviceStatus | None, int] = (None, 0)
        self.sequence = 0
        # On the device.
        self.hardware = JETSON
        self.is_reachable = True
        self.is_there = True
        self.boot = 1
        self.staged: set[int] = set()
        self.unstored_files = 0
        """What of the output is lost when the device is removed."""
        self.run = DeviceRun()
        self.ran: list[int] = []
        """The numbers of the assignments that it was switched to."""
        self.bad: set[int] = set()
        """The numbers of the assignments whose revision fails its health check."""
        self.stage_s = self.switch_s = 1.0
        self.record_s = 0.0
        self.failures: dict[str, list[ApplicationError]] = {}
        self.calls: list[str] = []
        self.at_once = 0
        self.specs: set[int] = set()
        self._acting: set[str] = set()
        self._changed = Event()

    # ── what people do ──────────────────────────────────────────────────────────────────────

    def begin(self, progress: DeviceProgress | None = None, **changes: Any) -> "Edge":
        """Start its lifecycle, from its row if it has come so far already."""
        request = DeviceRequest(
            device_id=DEVICE, account_id="acc-1", region_id="reg-1", name="shop-1",
            minion_id="SHA256:key", host="10.0.0.1", resumed_from=progress, **changes,
        )  # fmt: skip
        self.engine.start("DeviceLifecycle", ID, request)
        return self

    def active(self) -> "Edge":
        """One that was onboarded."""
        self.begin().until(lambda: self.status == "active")
        return self

    def deploy(self, revision: int | None, *, wakes: bool = True) -> DeviceAssignment:
        """A deployment writes its assignment into the row; None: a person stops the inference."""
        self.assignment = DeviceAssignment(
            number=self.assignment.number + 1 if self.assignment else 1,
            configuration_id=None if revision is None else "dcf-1",
            revision=revision,
            requested_by="ada",
        )
        if wakes:
            self.tell("wake")
        return self.assignment

    def want(self, status: DeviceStatus) -> None:
        self.wanted = (status, self.wanted[1] + 1)
        self.tell("wake")

    def tell(self, signal: str, argument: Contract | None = None) -> None:
        self.engine.signal(ID, signal, argument)

    # ── what happens to the device ──────────────────────────────────────────────────────────

    def is_lost(self) -> None:
        self.is_reachable = False
        self._changed.set()

    def is_back(self) -> None:
        self.is_reachable = True

    def restarts(self) -> None:
        """Its power is cut: what it runs starts again by itself."""
        self.boot += 1
        self._changed.set()

    def exits(self, code: int) -> None:
        """The command of its inference ends by itself."""
        failed = {"status": InferenceStatus.FAILED, "exit_code": code, "reason": "out of memory"}
        self.run = self.run.model_copy(update=failed)
        self._changed.set()

    def writes(self, backlog: OutputBacklog) -> None:
        """The output of the device waits so, or was dropped."""
        self.run = self.run.model_copy(update={"backlog": backlog})
        self._changed.set()

    # ── time ────────────────────────────────────────────────────────────────────────────────

    def until(self, condition: Callable[[], bool], most_s: float = 12 * 3600) -> None:
        assert self.engine.play(condition, most_s=most_s) == "until", self.events

    def passes(self, seconds: float) -> None:
        self.engine.play(lambda: False, most_s=seconds)

    # ── what is known ───────────────────────────────────────────────────────────────────────

    @property
    def status(self) -> str:
        return self.steps[-1].status if self.steps else ""

    @property
    def reason(self) -> str | None:
        return self.steps[-1].status_reason

    @property
    def events(self) -> list[str]:
        return [str(event.type) for step in self.steps for event in step.events]

    def messages(self, kind: str) -> list[str]:
        return [e.message for step in self.steps for e in step.events if e.type == kind]

    @property
    def changes(self) -> list[DeviceChanges]:
        return [one.changes for one in self.steps if isinstance(one.changes, DeviceChanges)]

    @property
    def outcomes(self) -> list[tuple[int, str | None]]:
        """The recorded ends of assignments: the number of each, and why it has failed."""
        ended = [one.outcome for one in self.changes if one.outcome is not None]
        return [(one.assignment.number, one.failed) for one in ended]

    @property
    def last_outcome(self) -> AssignmentOutcome:
        return [one.outcome for one in self.changes if one.outcome is not None][-1]

    @property
    def known_run(self) -> DeviceRun:
        """What the row says that it runs."""
        return next((one.run for one in reversed(self.changes) if one.run), DeviceRun())

    # ── effects ─────────────────────────────────────────────────────────────────────────────

    def _effects(self) -> dict[str, Handler]:
        return {
            "record": self._record,
            "find_announcement": lambda _, __: nodes.AnnouncementFound(),
            "find_peers": lambda _, __: nodes.PeersFound(),
            "reach_node": self._on_device(lambda _: nodes.NodeReached(boot_id=str(self.boot))),
            "inspect_node": self._on_device(lambda _: nodes.NodeInspected(hardware=self.hardware)),
            "prepare_node": self._on_device(
                lambda _: nodes.NodePrepared(preparation=Preparation())
            ),
            "reboot_node": self._on_device(self._reboot),
            "restore_logins": self._on_device(lambda _: Done()),
            "find_assignment": self._find,
            "seal_device_spec": self._seal,
            "discard_device_specs": self._discard,
            "stage_on_device": self._stage,
            "switch_device": self._switch,
            "stop_device": self._on_device(self._stop),
            "watch_device": self._watch,
            "clear_device": self._on_device(self._clear),
        }

    def _on_device(self, act: Callable[[Any], Contract]) -> Handler:
        def handle(attempt: Attempt, asked: Any) -> Contract:
            self._reach(attempt)
            return act(asked)

        return handle

    def _reach(self, attempt: Attempt) -> None:
        """Raises: what the effect fails with next, or that the device is not reached."""
        self.calls.append(attempt.effect)
        if not self.is_reachable:
            raise ApplicationError(LOST, type=errors.NODE_UNREACHABLE)
        if failures := self.failures.get(attempt.effect):
            raise failures.pop(0)

    def _record(self, _: Attempt, step: Record) -> Steps:
        if self.record_s:
            yield Sleep(self.record_s)
        self.steps.append(step)
        return Recorded(applied=True)

    def _find(self, _: Attempt, __: devices.FindAssignment) -> devices.AssignmentFound:
        status, revision = self.wanted
        seen = max((one.seen_revision or 0 for one in self.changes), default=0)
        return devices.AssignmentFound(
            status=status if revision > seen else None,
            revision=revision,
            assignment=self.assignment,
            sequence=self.sequence,
        )

    def _seal(self, _: Attempt, asked: devices.SealDeviceSpec) -> devices.DeviceSpecSealed:
        self.specs.add(asked.assignment.number)
        return devices.DeviceSpecSealed(reference=f"{DEVICE}/{asked.assignment.number}")

    def _discard(self, attempt: Attempt, asked: devices.DiscardDeviceSpecs) -> Done:
        if failures := self.failures.get(attempt.effect):
            raise failures.pop(0)
        kept = {one for one in self.specs if asked.number is not None and one > asked.number}
        self.specs = kept
        return Done()

    def _stage(self, attempt: Attempt, asked: devices.StageOnDevice) -> Steps:
        self._reach(attempt)
        yield from self._takes(attempt, self.stage_s)
        self.staged.add(asked.number)
        return devices.StagedOnDevice()

    def _switch(self, attempt: Attempt, asked: devices.SwitchDevice) -> Steps:
        self._reach(attempt)
        yield from self._takes(attempt, self.switch_s)
        assert asked.number in self.staged, "it runs what is on it"
        if asked.number in self.bad:
            return devices.DeviceSwitched(run=self.run, failed="no answer at /health")
        if self.run.number != asked.number:
            self.ran.append(asked.number)
        self.run = DeviceRun(number=asked.number, status=InferenceStatus.RUNNING)
        return devices.DeviceSwitched(run=self.run)

    def _takes(self, attempt: Attempt, seconds: float) -> Any:
        """Let so much time pass, and fail where the device is lost meanwhile."""
        self._acting.add(attempt.activity_id)
        self.at_once = max(self.at_once, len(self._acting))
        try:
            while seconds > 0:
                step = min(seconds, 5.0)
                seconds -= step
                yield Sleep(step)
                if not self.is_reachable:
                    raise ApplicationError(LOST, type=errors.NODE_UNREACHABLE)
        finally:
            self._acting.discard(attempt.activity_id)

    def _stop(self, asked: devices.StopDevice) -> devices.DeviceSwitched:
        self.run = DeviceRun(number=asked.number)
        return devices.DeviceSwitched(run=self.run)

    def _watch(self, attempt: Attempt, asked: devices.WatchDevice) -> Steps:
        self._reach(attempt)
        while True:
            if not self.is_reachable:
                raise ApplicationError(LOST, type=errors.NODE_UNREACHABLE)
            if asked.boot_id not in ("", str(self.boot)):
                raise ApplicationError("it has restarted", type=errors.OUTCOME_UNKNOWN)
            if self.run != asked.known:
                return DeviceObserved(run=self.run)
            self._changed.clear()
            yield Until(self._changed, WATCH_S)

    def _clear(self, _: devices.ClearDevice) -> devices.DeviceCleared:
        self.run, self.staged = DeviceRun(), set()
        return devices.DeviceCleared(lost_files=self.unstored_files)

    def _reboot(self, asked: nodes.RebootNode) -> Done:
        if asked.boot_id == str(self.boot):
            self.restarts()
        return Done()


def running(revision: int = 7) -> Edge:
    """An active device that runs a revision."""
    edge = Edge().active()
    assignment = edge.deploy(revision)
    edge.until(lambda: edge.outcomes[-1:] == [(assignment.number, None)])
    return edge
