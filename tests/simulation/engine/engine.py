"""The engine: Temporal with its worker processes, in virtual time, from one seed."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from random import Random
from typing import Any, Literal, TypeVar

from temporalio import workflow as sdk

from tests.simulation.contracts import (
    Cancellable,
    Execution,
    Handler,
    NotFound,
    Unavailable,
)
from tests.simulation.engine.activities import Activities
from tests.simulation.engine.attempts import Faults, NoFaults
from tests.simulation.engine.clock import Clock, micros
from tests.simulation.engine.execution import Run
from tests.simulation.engine.log import Log
from tests.simulation.engine.processes import Processes, named
from tests.simulation.engine.queries import query
from tests.simulation.engine.schedules import Schedules
from tests.simulation.engine.server import Server, described
from tests.simulation.engine.snapshots import Snapshot, restore, snapshot
from tests.simulation.engine.values import Values, asked_models
from tests.simulation.engine.workflow_tasks import WorkflowTasks
from workers.registry import WORKFLOWS
from workflows.contracts.base import Contract

ENDLESS = frozenset(
    {
        *("Placement", "OutboxRelay", "LifecycleReconciliation", "Housekeeping"),
        *("DeviceFees", "Payouts", "BalanceGuard"),
    }
)


Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Limits:
    """The server's limits of one history."""

    suggested_events: int = 4096
    """From here on, `is_continue_as_new_suggested` is true."""
    most_events: int = 51_200
    """A workflow with more is terminated by the server."""


class Engine:
    """Temporal and its worker processes: implements `contracts.Temporal`.

    seed: of all chance; workflows: the classes of the first release; encoded: encode each value as
    the product does, instead of handing it on; keeps_histories: also of closed runs; endless:
    workflow types whose waits do not count as something that is left to do.
    """

    def __init__(
        self,
        seed: int | str = 0,
        *,
        workflows: Iterable[type] = WORKFLOWS,
        encoded: bool = False,
        faults: Faults | None = None,
        limits: Limits | None = None,
        keeps_histories: bool = False,
        endless: Iterable[str] = ENDLESS,
    ) -> None:
        self.random = Random(seed)
        self.clock = Clock()
        self.log = Log()
        self.values = Values(encoded=encoded)
        self.faults: Faults = faults or NoFaults()
        self.limits = limits or Limits()
        self.keeps_histories = keeps_histories
        self.endless = frozenset(endless)
        self.workflows = named(workflows)
        self.is_away = False
        self.activations = 0
        self.heard: Counter[tuple[str, str, str]] = Counter()
        """Signals by workflow type, the status that it showed, and name."""
        self.idle_loops: dict[str, tuple[Callable[[], bool], float]] = {}
        """Workflow ids of loops, each with whether a round would do nothing now, and the seconds
        until the next. Such a round is left out, so that a quiet life is a cheap one."""
        self.on_status: Callable[[Run, str], None] = lambda _run, _status: None
        """Told when a run shows another `ResourceStatus`."""
        self._handlers: dict[str, Handler] = {}
        self._models: dict[str, type] = dict(asked_models()) if encoded else {}
        self.server = Server(self)
        self.tasks = WorkflowTasks(self)
        self.activities = Activities(self)
        self.schedules = Schedules(self)
        self.processes = Processes(self)

    # ── contracts.Temporal ──

    def now(self) -> datetime:
        return self.clock.datetime()

    def later(self, delay_s: float, act: Callable[[], object]) -> Cancellable:
        return self.clock.after(micros(delay_s), act)

    def note(self, who: str, what: str) -> None:
        self.log.add(self.clock.now, who, what)

    def start(
        self,
        workflow: str,
        workflow_id: str,
        request: Contract,
        *,
        search_attributes: Mapping[str, Any] | None = None,
        reuse: Literal["allow_duplicate", "reject_duplicate"] = "allow_duplicate",
        conflict: Literal["fail", "use_existing"] = "fail",
        signal: tuple[str, Contract | None] | None = None,
    ) -> str:
        """Raises: AlreadyStarted, Unavailable."""

        def begin() -> str:
            first = None if signal is None else (signal[0], self._arguments(signal[1]))
            return self.server.start(
                workflow,
                workflow_id,
                self.values.payload(request),
                attributes=search_attributes,
                reuse=reuse,
                conflict=conflict,
                signal=first,
            ).run_id

        return self._asked("start", workflow_id, begin)

    def signal(
        self,
        workflow_id: str,
        name: str,
        argument: Contract | None = None,
        *,
        request_id: str = "",
    ) -> None:
        """Raises: NotFound, Unavailable."""
        arguments = self._arguments(argument)
        deliver = partial(self.server.deliver, workflow_id, name, arguments, request_id)
        self._asked("signal", workflow_id, deliver)

    def terminate(self, workflow_id: str, *, run_id: str = "", identity: str = "worker") -> None:
        """Raises: NotFound, Unavailable."""
        end = partial(self.server.terminate, workflow_id, run_id, identity)
        self._asked("terminate", workflow_id, end)

    def cancel(self, workflow_id: str) -> None:
        """Raises: NotFound, Unavailable."""
        self._asked("cancel", workflow_id, partial(self.server.cancel, workflow_id))

    def describe(self, workflow_id: str) -> Execution:
        """Raises: NotFound, Unavailable."""
        return self._asked("describe", workflow_id, partial(self.server.describe, workflow_id))

    def running(self) -> Sequence[Execution]:
        """Raises: Unavailable."""
        return self._asked("running", "", self.server.listed)

    # ── the simulation ──

    def serve(
        self, effects: Mapping[str, Handler], models: Mapping[str, type] | None = None
    ) -> None:
        """Serve these effects too; a name that is there already is replaced.

        models: of the requests of effects that the product does not have.
        """
        self._handlers.update(effects)
        self._models.update(models or {})

    def step(self) -> bool:
        """Let the next thing happen; False: nothing is left."""
        return self.clock.step()

    def play(
        self,
        until: float | Callable[[], bool] = float("inf"),
        *,
        most_s: float = float("inf"),
        stops_when_quiet: bool = False,
    ) -> Literal["until", "most", "quiet", "nothing"]:
        """Play until so many virtual seconds have passed since the beginning, or it is true.

        most_s: play no longer than so many virtual seconds; stops_when_quiet: end when nothing is
        left but what endless workflows and schedules wait for.
        Returns why it has ended: `until`, `most`, `quiet`, or `nothing` is left at all.
        """
        is_met = until if callable(until) else None
        ends_at = float("inf") if callable(until) else until * 1e6
        most_at = self.clock.now + most_s * 1e6
        clock = self.clock
        while is_met is None or not is_met():
            if stops_when_quiet and clock.waiting == 0:
                return "quiet"
            at = clock.next_at()
            end = min(ends_at, most_at)
            if (at is None or at > end) and end != float("inf"):
                clock.now = max(clock.now, round(end))
            if at is None:
                return "nothing"
            if at > end:
                return "until" if ends_at <= most_at else "most"
            clock.step()
        return "until"

    def query(self, workflow_id: str, name: str) -> Any:
        """Ask the latest run of a workflow; a closed one only where histories are kept.

        Raises: NotFound; RuntimeError, when it refuses.
        """
        run = self.server.latest.get(workflow_id)
        if run is None:
            raise NotFound(workflow_id)
        return query(self, run, name)

    def history(self, workflow_id: str) -> list[str]:
        """The types of the events of the latest run. Raises: NotFound."""
        run = self.server.latest.get(workflow_id)
        if run is None:
            raise NotFound(workflow_id)
        return run.events

    def waits_without_limit(self) -> list[Execution]:
        """The workflows that nothing but a signal would let go on, now or ever."""
        waiting = (run for run in self.server.running.values() if run.waits_without_limit)
        return [described(run) for run in waiting]

    def result(self, workflow_id: str) -> Any:
        """What the latest run has returned; None, when it has not. Raises: NotFound."""
        run = self.server.latest.get(workflow_id)
        if run is None:
            raise NotFound(workflow_id)
        if run.result is None:
            return None
        kind = sdk._Definition.must_from_class(self.workflows[run.workflow]).ret_type
        return self.values.value(run.result, kind)

    def go_away(self, seconds: float) -> None:
        """The server does not answer for so long: neither clients nor worker processes."""
        if not self.is_away:
            self.is_away = True
            self.note("server", f"is away for {seconds:g} s")
            self.clock.after(micros(seconds), self._come_back)

    def forget(self) -> None:
        """The server has lost its files: all workflows and schedules are gone."""
        self.note("server", "has forgotten everything")
        for run in list(self.server.running.values()):
            self.drop(run)
        self.server.latest.clear()
        self.schedules.replace([])

    def drop(self, run: Run) -> None:
        """The server knows this run no more."""
        run.status = "terminated"
        run.task = None
        self.server.running.pop(run.workflow_id, None)
        self.server.silence(run)

    def snapshot(self) -> Snapshot:
        """What the server has in its files now."""
        return snapshot(self)

    def restore(self, earlier: Snapshot) -> None:
        """The server's files are those of an earlier moment; worker processes go on."""
        restore(self, earlier)

    # ── for the parts of the engine ──

    def handler_of(self, effect: str) -> Handler:
        """Raises: KeyError, when nothing serves this effect: the world is incomplete."""
        return self._handlers[effect]

    def asked_by(self, effect: str) -> type | None:
        """The model of an effect's request, which only encoded values need."""
        return self._models.get(effect)

    def cancel_by_person(self, workflow_id: str) -> None:
        try:
            self.server.cancel(workflow_id)
        except NotFound:
            return

    def _arguments(self, argument: Contract | None) -> list[Any]:
        return [] if argument is None else [self.values.payload(argument)]

    def _asked(self, kind: str, workflow_id: str, act: Callable[[], Answer]) -> Answer:
        """Raises: Unavailable, after the request was done or without."""
        if self.is_away:
            raise Unavailable(kind)
        fault = self.faults.of_request(kind, workflow_id)
        if fault == "refused":
            raise Unavailable(kind)
        answer = act()
        if fault == "lost":
            raise Unavailable(kind)
        return answer

    def _come_back(self) -> None:
        self.is_away = False
        self.note("server", "is back")
        self.processes.server_is_back()
