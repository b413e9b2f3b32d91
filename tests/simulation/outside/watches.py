"""The watch of a node: a long effect, which signals exits to jobs.

As activities/site/watch.py and job_signals.py, with the agent's activities/agent/watch.py behind.
"""

from collections.abc import Callable
from types import TracebackType
from typing import Self

from temporalio.exceptions import ApplicationError

from tests.simulation.contracts import (
    Attempt,
    Cancellable,
    NotFound,
    Steps,
    Temporal,
    Unavailable,
)
from tests.simulation.outside.connection import TICK_S, Connection
from tests.simulation.outside.machines import Machines
from tests.simulation.outside.reaching import reach
from tests.simulation.outside.run_names import read_name
from tests.simulation.outside.runs import Run
from tests.simulation.outside.store import Store
from workflows.contracts import errors
from workflows.contracts.base import Contract
from workflows.contracts.jobs import NodeReachable, WorkerExit, WorkerIdle
from workflows.contracts.nodes import WatchEnded
from workflows.contracts.statuses import RunState
from workflows.effects.nodes import WatchNode

RENEW_S = 23 * 3600.0
PAUSES_S = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
"""As activities/site/job_signals.py: between the tries of one signal."""
SOON_S = (0.05, 0.4)
"""How long an exit takes from the supervisor to the job, as the agent polls its runs."""
LATE_S = 30.0
"""How late a signal is on average that is held up, or comes a second time."""

Chance = Callable[[], bool]


class Watches:
    """The watches of all nodes.

    is_odd: draws whether a message is late, or comes twice.
    """

    def __init__(self, machines: Machines, store: Store, is_odd: Chance) -> None:
        self._machines = machines
        self._store = store
        self._is_odd = is_odd

    def watch_node(self, _: Attempt, command: WatchNode) -> Contract | Steps:
        node_id = command.node.node_id
        machine = reach(self._machines, command.node)
        if command.boot_id not in ("", machine.boot_id):
            words = f"{node_id}: the machine has restarted"
            raise ApplicationError(words, type=errors.OUTCOME_UNKNOWN)
        connection = machine.connect(node_id)
        connection.news += machine.runs.values()
        return self._watch(connection, command)

    def _watch(self, connection: Connection, command: WatchNode) -> Steps:
        machine, node = connection.machine, command.node
        until_s = machine.now_s() + RENEW_S
        told: set[Run] = set()
        with connection, JobSignals(machine.temporal, node.node_id, self._is_odd) as signals:
            while until_s - machine.now_s() > TICK_S:
                if machine.is_lying:
                    reach(self._machines, node)  # Raises the protocol violation.
                news, connection.news = connection.news, []
                for run in news:
                    self._report(run, node.node_id, told, signals)
                yield from connection.wait(until_s - machine.now_s(), errors.NODE_UNREACHABLE)
        return WatchEnded(reason="renewed")

    def _report(self, run: Run, node_id: str, told: set[Run], signals: "JobSignals") -> None:
        """As Watch._take: an exit, an idle run or a lost one, each once in a watch."""
        if read_name(run.name, node_id) is None:
            return
        if run.exit is not None and run.machine.runs.get(run.name) is run:
            if not self._store.is_away:  # Else the job collects the log.
                self._store.extend_log(run.job_id, run.run_id, run.exit.log_bytes)
            signals.tell_exit(run)
        elif run not in told and (run.state is RunState.LOST or run.is_idle):
            told.add(run)
            if run.is_idle:
                signals.tell_idle(run)
            else:
                signals.ask_to_look(run)


class JobSignals:
    """The undelivered signals of a watch; those that are left at its end are not delivered."""

    def __init__(self, temporal: Temporal, node_id: str, is_odd: Chance) -> None:
        self._temporal = temporal
        self._node_id = node_id
        self._is_odd = is_odd
        self._waiting: dict[int, Cancellable] = {}
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for waiting in self._waiting.values():
            waiting.cancel()
        self._waiting.clear()

    def tell_exit(self, run: Run) -> None:
        assert run.exit is not None
        exited = WorkerExit(
            worker=run.worker, attempt=run.attempt, exit=run.exit, node_id=self._node_id
        )
        self._begin(run.job_id, "worker_exited", exited)

    def tell_idle(self, run: Run) -> None:
        idle = WorkerIdle(
            worker=run.worker, attempt=run.attempt, idle_s=run.idle_s, node_id=self._node_id
        )
        self._begin(run.job_id, "worker_idle", idle)

    def ask_to_look(self, run: Run) -> None:
        self._begin(run.job_id, "node_reachable", NodeReachable(node_id=self._node_id))

    def _begin(self, job_id: str, signal: str, argument: Contract) -> None:
        delay_s = self._temporal.random.uniform(*SOON_S)
        if self._is_odd():
            delay_s += self._temporal.random.expovariate(1 / LATE_S)
        self._count += 1
        self._try_later(self._count, delay_s, lambda: self._send(job_id, signal, argument), 0)

    def _try_later(self, key: int, delay_s: float, send: Callable[[], bool], tries: int) -> None:
        def act() -> None:
            del self._waiting[key]
            if not send():
                pause_s = PAUSES_S[min(tries, len(PAUSES_S) - 1)]
                self._try_later(key, pause_s, send, tries + 1)

        self._waiting[key] = self._temporal.later(delay_s, act)

    def _send(self, job_id: str, signal: str, argument: Contract) -> bool:
        """Whether the signal is done: it was delivered, or the job has ended."""
        try:
            self._temporal.signal(f"job/{job_id}", signal, argument)
        except Unavailable:
            return False
        except NotFound:
            return True
        if self._is_odd():
            delay_s = self._temporal.random.expovariate(1 / LATE_S)
            self._temporal.later(delay_s, lambda: self._repeat(job_id, signal, argument))
        return True

    def _repeat(self, job_id: str, signal: str, argument: Contract) -> None:
        """A second delivery, of a sender that had not heard of the first one, or is held up."""
        try:
            self._temporal.signal(f"job/{job_id}", signal, argument)
        except (NotFound, Unavailable):
            return
