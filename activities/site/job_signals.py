"""Telling jobs what their node's watch has seen, for as long as the watch lives."""

import asyncio
from types import TracebackType
from typing import Any, Self

from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from activities.temporal.client import tell
from workflows.contracts.base import Contract
from workflows.contracts.jobs import Exit, NodeReachable, WorkerExit, WorkerIdle, parse_run_id

PAUSES_S = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
AT_ONCE = 8


class JobSignals:
    """Signals under way, each tried until it is delivered or nobody is there to take it.

    What is not delivered when the block ends is told again by the next watch.
    """

    def __init__(self, node_id: str) -> None:
        self._node_id = node_id
        self._under_way: set[asyncio.Task[None]] = set()
        self._turns = asyncio.Semaphore(AT_ONCE)

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

    def tell_exit(self, run_id: str, ended: dict[str, Any], log_bytes: int) -> None:
        """The run's command has ended, its whole tree with it."""
        job_id, worker, attempt = parse_run_id(run_id)
        seen = Exit.model_validate({**ended, "log_bytes": log_bytes})
        self._begin(job_id, "worker_exited", WorkerExit(worker=worker, attempt=attempt, exit=seen))

    def tell_idle(self, run_id: str, idle_s: float) -> None:
        """The run has done nothing for as long as it may; its job looks whether that holds."""
        job_id, worker, attempt = parse_run_id(run_id)
        idle = WorkerIdle(worker=worker, attempt=attempt, idle_s=idle_s)
        self._begin(job_id, "worker_idle", idle)

    def ask_to_look(self, run_id: str) -> None:
        """The run's supervisor is gone: no exit will come, its job has to look."""
        self._begin(parse_run_id(run_id)[0], "node_reachable", NodeReachable(node_id=self._node_id))

    def _begin(self, job_id: str, signal: str, argument: Contract) -> None:
        task = asyncio.create_task(self._deliver(job_id, signal, argument))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _deliver(self, job_id: str, signal: str, argument: Contract) -> None:
        tries = 0
        while not await self._try(job_id, signal, argument):
            await asyncio.sleep(PAUSES_S[min(tries, len(PAUSES_S) - 1)])
            tries += 1

    async def _try(self, job_id: str, signal: str, argument: Contract) -> bool:
        """Whether nothing is left to do: it was taken, or the job has ended."""
        try:
            async with self._turns:
                await tell(f"job/{job_id}", signal, argument)
        except (RPCError, ApplicationError) as error:
            activity.logger.warning("job %s: signal %s: %s", job_id, signal, error)
            return False
        return True
