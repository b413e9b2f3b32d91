"""One life of devices and deployments, from its seed, and what must hold when all is well again."""

from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import Literal

from tests.simulation.contracts import Attempt, NotFound, Unavailable
from tests.simulation.edge.machines import Machine, Machines
from tests.simulation.edge.rows import DeploymentRow, DeviceRow, Row, Rows, Target
from tests.simulation.engine.attempts import CallFault
from tests.simulation.engine.engine import Engine, Limits
from workflows.contracts.deployments import (
    DeploymentAction,
    DeploymentOrder,
    DeploymentStatus,
    RolloutPolicy,
    TargetState,
)
from workflows.contracts.devices import DeviceRun, DeviceStatus, InferenceStatus
from workflows.devices.deployment_lifecycle import DeploymentLifecycle
from workflows.devices.device_lifecycle import DeviceLifecycle

SWEEP_S = 120.0
"""Between two looks of the reconciliation."""
SPAN_S = 3 * 3600.0
REST_S = 12 * 3600.0
MODES: tuple[
    Literal["refused", "lost", "failed_after", "slow", "late", "killed_before", "killed_after"], ...
] = ("refused", "lost", "failed_after", "slow", "late", "killed_before", "killed_after")
LIFECYCLES: tuple[type, ...] = (DeviceLifecycle, DeploymentLifecycle)


class EdgeLife:
    """What people ask of devices, and what goes wrong, both drawn from one seed."""

    def __init__(self, seed: int, workflows: tuple[type, ...] = LIFECYCLES) -> None:
        self.random = Random(seed)
        limits = Limits(suggested_events=self.random.choice((60, 250, 4096)))
        self.engine = engine = Engine(seed, workflows=workflows, faults=self, limits=limits)
        self.rows = Rows(engine)
        self.machines = Machines(engine, self.rows.specs)
        engine.serve({**self.rows.effects(), **self.machines.effects()})
        self.chance = self.random.choice((0.0, 0.02, 0.1))
        """Of a call to go wrong."""
        self.is_calm = False
        self.restarted = 0

    def play(self) -> list[str]:
        """The sentences that say what does not hold at the end."""
        for number in range(1, self.random.randint(2, 5)):
            self._add_device(f"dev-{number}")
        for _ in range(self.random.randint(5, 40)):
            self.engine.later(self.random.uniform(0, SPAN_S), self._draw())
        self.engine.later(SWEEP_S, self._sweep)
        self.engine.play(lambda: False, most_s=SPAN_S)
        self.is_calm = True
        for device in self.rows.devices.values():
            if device.status != "archived" and device.removal is None:
                self.rows.want(device, DeviceStatus.ACTIVE)
        self.engine.play(lambda: False, most_s=REST_S)
        return list(self._violations())

    # ── what people do, and what goes wrong ─────────────────────────────────────────────────

    def _add_device(self, device_id: str) -> None:
        machine = self.machines.add(device_id)
        machine.bad = {number for number in range(1, 40) if self.random.random() < 0.15}
        row = DeviceRow(id=device_id, host=machine.host)
        self.rows.devices[device_id] = row
        self._start(row)

    def _draw(self) -> Callable[[], None]:
        acts = {
            self._deploy: 6, self._order: 4, self._stop: 2, self._want: 2, self._reboot: 1,
            self._remove: 1, self._lose: 4, self._cut: 4, self._exit: 1, self._kill: 3,
            self._forget: 1, self._restore: 1, self._away: 1,
        }  # fmt: skip
        [act] = self.random.choices(list(acts), list(acts.values()))
        return act

    def _device(self) -> DeviceRow:
        return self.random.choice(list(self.rows.devices.values()))

    def _deploy(self) -> None:
        names = list(self.rows.devices)
        chosen = self.random.sample(names, self.random.randint(1, len(names)))
        number = len(self.rows.deployments) + 1
        row = DeploymentRow(
            id=f"dpl-{number}",
            revision=number,
            policy=RolloutPolicy(
                max_unavailable=self.random.choice((1, 2, 1000)),
                max_failures=self.random.choice((None, 1, 2)),
                rolls_back=self.random.random() < 0.5,
                limit_s=self.random.choice((60, 3600, 7200)),
            ),
        )
        row.targets = {name: Target() for name in sorted(chosen)}
        self.rows.supersede_waiting(chosen)
        self.rows.deployments[row.id] = row
        self._start(row)

    def _order(self) -> None:
        if self.rows.deployments:
            row = self.random.choice(list(self.rows.deployments.values()))
            action = self.random.choice(list(DeploymentAction))
            self.rows.order(row, DeploymentOrder(action=action, requested_by="ada"))

    def _stop(self) -> None:
        row = self._device()
        if row.status not in ("removing", "archived"):
            self.rows.supersede_waiting((row.id,))
            self.rows.ask(row, None)

    def _want(self) -> None:
        status = self.random.choice((DeviceStatus.ACTIVE, DeviceStatus.MAINTENANCE))
        self.rows.want(self._device(), status)

    def _reboot(self) -> None:
        self.rows.tell(self._device(), "reboot")

    def _remove(self) -> None:
        self.rows.remove(self._device())

    def _lose(self) -> None:
        machine = self.machines.all[self._device().id]
        self.machines.lose(machine, self.random.choice((1, 20, 300, 4000)))

    def _cut(self) -> None:
        self.machines.cut_power(self.machines.all[self._device().id])

    def _exit(self) -> None:
        self.machines.exit(self.machines.all[self._device().id])

    def _kill(self) -> None:
        self.engine.processes.kill("main", again_after_s=self.random.choice((0.5, 5, 120)))

    def _forget(self) -> None:
        self.engine.forget()

    def _restore(self) -> None:
        """Temporal has its files back from a backup that is made now."""
        kept = self.engine.snapshot()

        def restore() -> None:
            if not self.is_calm:
                self.engine.restore(kept)

        self.engine.later(self.random.choice((60, 900, 3600)), restore)

    def _away(self) -> None:
        self.engine.go_away(self.random.choice((5, 300)))

    def of_call(self, attempt: Attempt) -> CallFault | None:
        """As `Faults` of the engine."""
        if self.is_calm or self.random.random() >= self.chance:
            return None
        return CallFault(self.random.choice(MODES), seconds=self.random.choice((0.5, 20, 200)))

    def of_request(self, kind: str, workflow_id: str) -> Literal["refused", "lost"] | None:
        return None

    # ── the reconciliation ──────────────────────────────────────────────────────────────────

    def _start(self, row: Row) -> None:
        try:
            self.rows.start(row)
        except Unavailable:
            return  # The reconciliation starts it.

    def _sweep(self) -> None:
        """Start from its row what nobody serves; an announcement wakes a device that has failed.

        When all is well again, people resume what has paused, and repeat removals that were lost.
        """
        self.engine.later(SWEEP_S, self._sweep)
        for row in self.rows.all.values():
            if self._is_over(row):
                continue
            try:
                run = self.engine.describe(self._workflow_id(row))
            except NotFound:
                self._restart(row)
            except Unavailable:
                return
            else:
                if run.search_attributes.get("ResourceStatus") == "stale":
                    self.engine.terminate(run.workflow_id)
                    self._restart(row)
                elif run.status not in ("running", "continued_as_new"):
                    self._restart(row)
                elif self.is_calm:
                    self._see_to(row)

    def _see_to(self, row: Row) -> None:
        """As people do when all is well again."""
        if row.status == "failed":
            self.rows.tell(row, "wake")
        elif isinstance(row, DeploymentRow) and row.status == "paused":
            self.rows.order(row, DeploymentOrder(action=DeploymentAction.RESUME))
        elif isinstance(row, DeviceRow) and row.removal is not None and row.status != "removing":
            self.rows.tell(row, "remove", row.removal)

    def _restart(self, row: Row) -> None:
        self.restarted += 1
        self._start(row)

    def _is_over(self, row: Row) -> bool:
        if isinstance(row, DeploymentRow):
            return DeploymentStatus(row.status).is_final
        return row.status == DeviceStatus.ARCHIVED

    def _workflow_id(self, row: Row) -> str:
        return f"{'device' if isinstance(row, DeviceRow) else 'deployment'}/{row.id}"

    # ── what must hold ──────────────────────────────────────────────────────────────────────

    def _violations(self) -> Iterator[str]:
        for run in self.engine.server.latest.values():
            if run.status == "failed":
                yield f"{run.workflow_id}: its workflow has failed"
        for device in self.rows.devices.values():
            yield from map(partial("{}: {}".format, device.id), self._of_device(device))
        for deployment in self.rows.deployments.values():
            yield from deployment.violations
            yield from map(partial("{}: {}".format, deployment.id), self._of_rollout(deployment))

    def _of_rollout(self, row: DeploymentRow) -> Iterator[str]:
        if not DeploymentStatus(row.status).is_final:
            yield f"has not ended, is {row.status} ({row.reason})"
        for name, target in row.targets.items():
            device = self.rows.devices[name]
            ends = dict(device.ends)
            if target.state.is_open or target.state is TargetState.LEFT:
                yield f"nobody knows what became of {name}"
            if target.state == "running" and ends.get(target.number, "") is not None:
                yield f"{name} is said to run it, and does not"
            was_given_up = target.away_since is not None and target.number not in ends
            if target.state == "failed" and not was_given_up and not ends.get(target.number):
                yield f"{name} is said to have failed, and has not"

    def _of_device(self, row: DeviceRow) -> Iterator[str]:
        machine = self.machines.all[row.id]
        numbers = [number for number, _ in row.ends]
        if numbers != sorted(set(numbers)):
            yield f"its assignments came to an end twice or in another order: {numbers}"
        if machine.ran != sorted(set(machine.ran)):
            yield f"it was switched twice or back: {machine.ran}"
        if row.status == DeviceStatus.ARCHIVED:
            yield from self._of_removed(row, machine)
        else:
            yield from self._of_served(row, machine)

    def _of_removed(self, row: DeviceRow, machine: Machine) -> Iterator[str]:
        is_said = any(kind == "device.inference-left" for kind, _ in row.events)
        if machine.run != DeviceRun() and not is_said:
            yield f"was removed, and runs {machine.run.number} without a word"
        if any(device_id == row.id for device_id, _ in self.rows.specs):
            yield "was removed, and what was sealed for it is stored"

    def _of_served(self, row: DeviceRow, machine: Machine) -> Iterator[str]:
        if row.status != DeviceStatus.ACTIVE:
            yield f"is {row.status} ({row.reason})"
        elif row.assignment is not None and row.followed != row.assignment.number:
            yield f"has not come to an end with assignment {row.assignment.number}"
        if row.run != machine.run:
            yield f"its row says {row.run}, and it has {machine.run}"
        if row.assignment is None or dict(row.ends).get(row.assignment.number, "") is not None:
            return
        expected = {InferenceStatus.STOPPED}
        if row.assignment.revision is not None:  # Its command may have exited since.
            expected = {InferenceStatus.RUNNING, InferenceStatus.FAILED}
        if machine.run.number != row.assignment.number or machine.run.status not in expected:
            yield f"is to have followed {row.assignment}, and has {machine.run}"
