"""Signals from the watch of a node to the jobs on the node, sent while the watch runs."""

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self

from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from activities.site.answers.frames import HostnameFrame
from activities.site.signal_rates import (
    SIGNALS_AT_ONCE,
    SIGNALS_PER_S,
    ReportRates,
    TokenBucket,
)
from activities.temporal.client import tell
from workflows.contracts.base import Contract
from workflows.contracts.jobs import Exit, NodeReachable, WorkerExit, WorkerIdle, parse_run_id
from workflows.contracts.reservations import WorkerHostname

PAUSES_S = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
AT_ONCE = 8
HOSTNAME_PAUSE_S = 10.0
"""Between two signals about one hostname, which two machines of a link may contend for."""


class JobSignals:
    """The undelivered signals of a watch, each retried until it is delivered or its job has ended.

    The next watch repeats those that are not delivered when the block ends. Signals above the rate
    of a node wait for their turn; a node that reports more than any of ours is not believed.

    Raises: every method ApplicationError PROTOCOL_VIOLATION, when the node reports too much.
    """

    def __init__(self, node_id: str) -> None:
        self._node_id = node_id
        self._rates = ReportRates(node_id)
        self._turns = TokenBucket(SIGNALS_PER_S, SIGNALS_AT_ONCE)
        self._under_way: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._hostnames: dict[str, WorkerHostname] = {}
        """By run, the last that its node has said of its hostname, while that is under way."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)

    def tell_exit(self, run_id: str, ended: Exit) -> None:
        """Signal that the run's command and its whole process tree have ended."""
        self._rates.count(run_id)
        job_id, worker, attempt = parse_run_id(run_id)
        exited = WorkerExit(worker=worker, attempt=attempt, exit=ended, node_id=self._node_id)
        self._start(self._deliver(job_id, "worker_exited", exited))

    def tell_idle(self, run_id: str, idle_s: float) -> None:
        """Signal that the run has been idle for its limit, or soon will have; its job checks this
        again."""
        self._rates.count(run_id)
        job_id, worker, attempt = parse_run_id(run_id)
        idle = WorkerIdle(worker=worker, attempt=attempt, idle_s=idle_s, node_id=self._node_id)
        self._start(self._deliver(job_id, "worker_idle", idle))

    def tell_hostname(self, run_id: str, said: HostnameFrame) -> None:
        """Signal what the node says of the hostname that it publishes for the run.

        Of what it says within a pause, only the last is signalled.
        """
        self._rates.count(run_id)
        job_id, worker, attempt = parse_run_id(run_id)
        is_told = run_id in self._hostnames
        self._hostnames[run_id] = WorkerHostname(
            worker=worker,
            attempt=attempt,
            node_id=self._node_id,
            **said.model_dump(include={"hostname", "state", "addresses", "message"}),
        )
        if not is_told:
            self._start(self._deliver_hostnames(run_id, job_id))

    def ask_to_look(self, run_id: str) -> None:
        """Signal the job to poll: the run's supervisor is gone, so no exit will be reported."""
        self._rates.count(run_id)
        back = NodeReachable(node_id=self._node_id)
        self._start(self._deliver(parse_run_id(run_id)[0], "node_reachable", back))

    def count_unknown(self) -> None:
        """Count a frame about a run that was not placed on the node, and signal nobody."""
        self._rates.count_unknown()

    def _start(self, delivery: Coroutine[Any, Any, None]) -> None:
        try:
            self._rates.check_waiting(len(self._under_way))
        except ApplicationError:
            delivery.close()
            raise
        task = asyncio.create_task(delivery)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _deliver(self, job_id: str, signal: str, argument: Contract) -> None:
        await asyncio.sleep(self._turns.delay_s())
        tries = 0
        while not await self._try(job_id, signal, argument):
            await asyncio.sleep(PAUSES_S[min(tries, len(PAUSES_S) - 1)])
            tries += 1

    async def _deliver_hostnames(self, run_id: str, job_id: str) -> None:
        said = None
        while self._hostnames[run_id] is not said:
            said = self._hostnames[run_id]
            await self._deliver(job_id, "worker_hostname", said)
            await asyncio.sleep(HOSTNAME_PAUSE_S)
        del self._hostnames[run_id]

    async def _try(self, job_id: str, signal: str, argument: Contract) -> bool:
        """Whether the signal is done: it was delivered, or the job has ended."""
        try:
            async with self._slots:
                await tell(f"job/{job_id}", signal, argument)
        except (RPCError, ApplicationError) as error:
            activity.logger.warning("job %s: signal %s: %s", job_id, signal, error)
            return False
        return True
