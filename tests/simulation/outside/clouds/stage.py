"""What the tests of the clouds put around them: a clock, machines, rows, and calls of effects."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any

from temporalio.exceptions import ApplicationError

from tests.simulation.contracts import Attempt, LeaseView, NotFound, Sleep, Steps
from tests.simulation.outside.clouds import Clouds
from tests.simulation.outside.clouds.commands import (
    LEASE,
    NAME,
    PROVIDER,
    ZONE,
    creation,
    machine,
    resource,
    subnetwork,
    termination,
)
from workflows.contracts.base import Contract
from workflows.contracts.errors import NOT_YET, UNAVAILABLE
from workflows.contracts.machines import MachineObservation
from workflows.contracts.statuses import ProviderKind
from workflows.effects.effect import Effect
from workflows.effects.machines import create_machine, terminate_machine, wait_for_machine
from workflows.effects.providers import ensure_provider_resource
from workflows.effects.regions import ensure_region_resource
from workflows.rules.catalogue.providers import traits_of

BEGAN_AT = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Timer:
    act: Callable[[], None]
    is_cancelled: bool = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Clock:
    """Temporal as the clouds use it, with nobody behind it."""

    def __init__(self, seed: int = 1) -> None:
        self.random = Random(seed)
        self.seconds = 0.0
        self.started: list[str] = []
        self.signals: list[tuple[str, str, Contract | None]] = []
        self.refuses_signals = False
        self.ended: set[str] = set()
        self._seen: set[str] = set()
        self._timers: list[tuple[float, int, Timer]] = []
        self._numbers = count()

    def now(self) -> datetime:
        return BEGAN_AT + timedelta(seconds=self.seconds)

    def later(self, delay_s: float, act: Callable[[], None]) -> Timer:
        timer = Timer(act)
        heappush(self._timers, (self.seconds + delay_s, next(self._numbers), timer))
        return timer

    def note(self, who: str, what: str) -> None:
        pass

    def start(self, workflow: str, workflow_id: str, request: Contract, **options: Any) -> str:
        self.started.append(workflow_id)
        return "run"

    def signal(
        self,
        workflow_id: str,
        name: str,
        argument: Contract | None = None,
        *,
        request_id: str = "",
    ) -> None:
        if workflow_id in self.ended:
            raise NotFound
        if request_id and request_id in self._seen:
            return
        self._seen.add(request_id)
        self.signals.append((workflow_id, name, argument))

    def pass_time(self, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        end = self.seconds + seconds
        while not until() and self._timers and self._timers[0][0] <= end:
            self.seconds, _, timer = heappop(self._timers)
            if not timer.is_cancelled:
                timer.act()
        if not until():
            self.seconds = end


@dataclass
class Box:
    name: str
    host: str
    minion_id: str
    gpus: int
    is_up: bool = True


@dataclass
class Boxes:
    """Machines that only know whether they are up."""

    all: list[Box] = field(default_factory=list)

    def boot(self, name: str, *, gpus: int, minion_id: str, **_: Any) -> Box:
        self.all.append(Box(name, f"10.0.0.{len(self.all) + 1}", minion_id, gpus))
        return self.all[-1]

    def end(self, machine: Box) -> None:
        assert machine.is_up, "a machine is ended once"
        machine.is_up = False


@dataclass
class Table:
    """The rows that cloud activities read."""

    leases: dict[str, LeaseView] = field(default_factory=dict)
    sequences: dict[str, int] = field(default_factory=dict)
    keys: set[str] = field(default_factory=lambda: {PROVIDER})
    status: str | None = "ready"
    reconciled_at: datetime | None = None

    def leases_of(self, provider_id: str) -> Iterable[LeaseView]:
        return [one for one in self.leases.values() if one.provider_id == provider_id]

    def sequence_of(self, resource_id: str) -> int:
        return self.sequences.get(resource_id, 0)

    def provider_status(self, provider_id: str) -> str | None:
        return self.status

    def ready_providers(self, kind: str) -> Sequence[str]:
        return [PROVIDER]

    def has_key(self, provider_id: str) -> bool:
        return provider_id in self.keys

    def keep_reconciled(self, provider_id: str, at: datetime) -> None:
        self.reconciled_at = at

    def put_lease(self, status: str, zone: str | None = ZONE) -> None:
        self.leases[LEASE] = LeaseView(LEASE, PROVIDER, NAME, status, "nod-1", zone, None, None)


class Stage:
    """Clouds with one ready provider that has a subnetwork in one cloud region."""

    def __init__(self, seed: int = 1, *, is_ready: bool = True) -> None:
        self.clock, self.boxes, self.rows = Clock(seed), Boxes(), Table()
        self.clouds = Clouds(self.clock, self.boxes)  # type: ignore[arg-type]
        self.clouds.connect(self.rows)  # type: ignore[arg-type]
        self._activities = count()
        if is_ready:
            for name in traits_of(ProviderKind.GCP).resources:
                self.call(ensure_provider_resource, resource(name))
            self.call(ensure_region_resource, subnetwork())

    def call(self, effect: Effect[Any, Any], command: Contract, *, activity_id: str = "") -> Any:
        """One attempt of an effect, within its limit; raises what the attempt raises."""
        activity = activity_id or str(next(self._activities))
        attempt = Attempt(effect.name, "workflow", "run", activity, 1, "worker")
        answer = self.clouds.effects[effect.name](attempt, command)
        if isinstance(answer, Contract):
            return answer
        began, sent = self.clock.seconds, None
        try:
            while True:
                step = answer.send(sent)
                left = effect.start_to_close_s - (self.clock.seconds - began)
                if isinstance(step, Sleep):
                    self.clock.pass_time(min(step.seconds, left))
                    is_over = step.seconds >= left
                else:
                    is_set: list[bool] = []
                    step.event.waiting.append(lambda: is_set.append(True))  # noqa: B023
                    self.clock.pass_time(min(step.limit_s, left), lambda: bool(is_set))  # noqa: B023
                    sent, is_over = bool(is_set), not is_set and step.limit_s >= left
                if is_over:
                    answer.close()
                    raise TimeoutError(effect.name)
        except StopIteration as done:
            return done.value

    def play(self, running: Steps) -> None:
        """Let a running effect go on to its end, with ample time for each of its steps."""
        for _ in running:
            self.clock.pass_time(100)

    def make(self, **changes: Any) -> Any:
        """Create the lease's machine, and wait until it is reachable."""
        self.call(create_machine, creation(**changes))
        self.clock.pass_time(60)
        return self.call(wait_for_machine, machine(**changes))

    def failure(self, effect: Effect[Any, Any], command: Contract) -> str | None:
        """The type of an attempt's failure; empty: it has none."""
        try:
            self.call(effect, command)
        except ApplicationError as error:
            return error.type
        except TimeoutError:
            return "timeout"
        return ""

    def end(self, **asked: Any) -> MachineObservation:
        """Terminate the lease's machine as Temporal does, attempt by attempt."""
        for _ in range(200):
            try:
                gone: MachineObservation = self.call(
                    terminate_machine, termination(**asked), activity_id="end"
                )
            except ApplicationError as error:
                if error.type not in (NOT_YET, UNAVAILABLE):
                    raise
                self.clock.pass_time(5)
            else:
                return gone
        raise AssertionError("the machine is never gone")
