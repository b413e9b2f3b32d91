"""One attempt of an effect in a worker process: its handler, its latency, and what goes wrong."""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.exceptions import ApplicationError

from tests.simulation.contracts import Attempt, CutOff, Handler, Sleep, Steps, Unavailable, Until
from tests.simulation.engine import failures
from tests.simulation.engine.clock import Due, micros
from workflows.contracts import queues

if TYPE_CHECKING:
    from tests.simulation.engine.engine import Engine
    from tests.simulation.engine.processes import Process

FaultMode = Literal[
    "refused", "lost", "failed_after", "slow", "late", "killed_before", "killed_after", "canceled"
]
RESTART_S = 4.0
"""How long at most a process is away that a fault of a call has killed."""


@dataclass(frozen=True)
class CallFault:
    """What goes wrong with one attempt of one effect.

    refused: nothing is done, and the attempt fails, with `error` if there is one; lost: it is done,
    and its answer never arrives; failed_after: it is done, and the attempt fails; slow: it is done,
    and its answer takes so many seconds more; late: it is done only after so many seconds, whether
    its time limit has passed or not; killed_before, killed_after: its worker process is killed just
    before it is done, or just after; canceled: a person cancels the workflow just before.
    """

    mode: FaultMode
    seconds: float = 0.0
    error: ApplicationError | None = None


class Faults(Protocol):
    """What goes wrong. Both are asked once for each call, in the order of the calls."""

    def of_call(self, attempt: Attempt) -> CallFault | None: ...

    def of_request(self, kind: str, workflow_id: str) -> Literal["refused", "lost"] | None:
        """Of a request to the server: not done, or done without an answer."""


class NoFaults:
    def of_call(self, attempt: Attempt) -> CallFault | None:
        return None

    def of_request(
        self,
        kind: str,
        workflow_id: str,
    ) -> Literal["refused", "lost"] | None:
        return None


class Outcome(NamedTuple):
    """How an attempt has ended: one of the three."""

    result: Payload | None = None
    failed: Failure | None = None
    canceled: Failure | None = None


LATENCIES = {queues.MAIN: 4_000, queues.PLANNING: 20_000, queues.SITE: 100_000}
"""The longest ordinary latency of an effect there and back, in microseconds, by queue."""
OTHER_LATENCY = 800_000


def latency_of(queue: str) -> int:
    if queue.startswith("site"):
        return LATENCIES[queues.SITE]
    return LATENCIES.get(queue, OTHER_LATENCY)


class Call:
    """One attempt while its process runs it.

    on_end: told the outcome, unless it is lost; on_silence: told when heartbeats stop, because the
    process has died or the answer is lost.
    """

    def __init__(
        self,
        engine: "Engine",
        process: "Process",
        attempt: Attempt,
        on_end: Callable[[Outcome], None],
        on_silence: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._process = process
        self._on_end = on_end
        self._on_silence = on_silence
        self._steps: Steps | None = None
        self._waits: Due | None = None
        self._wake: Callable[[bool], None] | None = None
        self._fault: CallFault | None = None
        self._latency = 0
        self.attempt = attempt
        self.is_over = False
        self.answers_at: int | None = None
        """When its outcome is told; None: that is not known yet."""

    def begin(self, queue: str, argument: Any) -> None:
        """Do the effect, or its first step."""
        engine, attempt = self._engine, self.attempt
        self._process.calls[self] = None
        self._latency = int(latency_of(queue) * (0.1 + 0.9 * engine.random.random()))
        handler = engine.handler_of(attempt.effect)
        self._fault = fault = engine.faults.of_call(attempt)
        if fault is None:
            self._do(handler, argument)
            return
        engine.log.add(engine.clock.now, attempt.workflow_id, f"{attempt.effect}: {fault.mode}")
        if fault.mode == "late":
            late = partial(self._do_late, handler, argument, self._process.life)
            engine.clock.after(micros(fault.seconds), late)
        elif fault.mode == "refused":
            error = fault.error or ApplicationError("refused", type="Refused by a fault")
            self._answer(Outcome(failed=failures.of_application(error)))
        elif fault.mode == "killed_before":
            self._kill()
        else:
            if fault.mode == "canceled":
                engine.cancel_by_person(attempt.workflow_id)
            self._do(handler, argument)

    def cut_off(self) -> None:
        """Throw `CutOff` into a slow effect at its `yield`."""
        if not self.is_over and self._steps is not None and self._wake is not None:
            self._stop_waiting()
            self._step(partial(self._steps.throw, CutOff()))

    def close(self) -> None:
        """The attempt is over for the server: it does nothing more."""
        if self.is_over:
            return
        self.is_over = True
        self._process.calls.pop(self, None)
        self._stop_waiting()
        if self._steps is not None:
            self._steps.close()

    def worker_died(self, *, is_graceful: bool) -> None:
        if self.is_over:
            return
        self.close()
        if is_graceful:
            error = ApplicationError("the worker process stops", type="WorkerStops")
            self._on_end(Outcome(failed=failures.of_application(error)))
        else:
            self._on_silence()

    def _kill(self) -> None:
        pause_s = 0.5 + RESTART_S * self._engine.random.random()
        self._engine.processes.kill(self._process.name, again_after_s=pause_s)

    def _do_late(self, handler: Handler, argument: Any, life: int) -> None:
        """Do it also when the attempt is over: its thread has only now come to it."""
        if self._process.is_alive and self._process.life == life:
            self._do(handler, argument)

    def _do(self, handler: Handler, argument: Any) -> None:
        try:
            answer = handler(self.attempt, argument)
        except (ApplicationError, Unavailable) as error:
            self._done(Outcome(failed=failures.of_application(error)))
            return
        if isinstance(answer, Generator):
            self._steps = answer
            self._step(partial(next, answer))
        else:
            self._done(Outcome(result=self._engine.values.answer(answer)))

    def _step(self, advance: Callable[[], Sleep | Until]) -> None:
        try:
            wanted = advance()
        except StopIteration as end:
            self._done(Outcome(result=self._engine.values.answer(end.value)))
        except CutOff:
            self._done(Outcome(canceled=failures.of_cancellation()))
        except (ApplicationError, Unavailable) as error:
            self._done(Outcome(failed=failures.of_application(error)))
        else:
            self._wait(wanted)

    def _wait(self, wanted: Sleep | Until) -> None:
        assert self._steps is not None
        if self.is_over:
            self._steps.close()
            return
        resume: Callable[[bool], None] = self._resume

        def wake(was_set: bool) -> None:
            if self._wake is wake:
                resume(was_set)

        self._wake = wake
        if isinstance(wanted, Sleep):
            seconds = wanted.seconds
        else:
            seconds = wanted.limit_s
            if wanted.event.is_set:
                seconds = 0.0
                self._waits = self._engine.clock.after(0, partial(wake, True))
                return
            wanted.event.waiting.append(partial(wake, True))
        if seconds != float("inf"):
            self._waits = self._engine.clock.after(micros(seconds), partial(wake, False))

    def _resume(self, was_set: bool) -> None:
        assert self._steps is not None
        self._stop_waiting()
        self._step(partial(self._steps.send, was_set))

    def _stop_waiting(self) -> None:
        self._wake = None
        if self._waits is not None:
            self._waits.cancel()
            self._waits = None

    def _done(self, outcome: Outcome) -> None:
        mode = None if self._fault is None else self._fault.mode
        self._steps = None
        if mode == "killed_after":
            self._kill()
        elif mode == "lost":
            self._process.calls.pop(self, None)
            if not self.is_over:
                self.is_over = True
                self._on_silence()
        elif mode == "failed_after":
            error = ApplicationError("the connection broke", type="Broken by a fault")
            self._answer(Outcome(failed=failures.of_application(error)))
        else:
            if mode == "slow" and self._fault is not None:
                self._latency += micros(self._fault.seconds)
            self._answer(outcome)

    def _answer(self, outcome: Outcome) -> None:
        """Tell the outcome, unless the process dies before."""
        if not self.is_over:
            self.answers_at = self._engine.clock.now + self._latency
            tell = partial(self._tell, outcome)
            self._waits = self._engine.clock.after(self._latency, tell)

    def _tell(self, outcome: Outcome) -> None:
        self._waits = None
        self.is_over = True
        self._process.calls.pop(self, None)
        self._on_end(outcome)
