"""The smallest workflows around a watch: one that holds it, one that is told of exits."""

import asyncio
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

from workflows.contracts.base import Contract
from workflows.contracts.jobs import WorkerExit
from workflows.contracts.nodes import NodeAddress, WatchEnded
from workflows.effects.jobs import StageWorker, stage_worker
from workflows.effects.nodes import WatchNode, watch_node
from workflows.effects.regions import CheckSite, SiteChecked, check_site


class Holding(Contract):
    node: NodeAddress


@workflow.defn
class HoldWatch:
    """Watches a node until told to let go, and says how the watch ended."""

    def __init__(self) -> None:
        self._let_go = False

    @workflow.run
    async def run(self, holding: Holding) -> WatchEnded:
        watch = watch_node.start(WatchNode(node=holding.node))
        await workflow.wait_condition(lambda: self._let_go or watch.done())
        watch.cancel()
        try:
            return await watch
        except (ActivityError, asyncio.CancelledError):
            return WatchEnded(reason="cancelled")

    @workflow.signal
    def let_go(self) -> None:
        self._let_go = True


@workflow.defn
class HoldStaging:
    """Stands where a job does: stages its workers, and does nothing else."""

    @workflow.run
    async def run(self, workers: list[StageWorker]) -> None:
        await asyncio.gather(*(stage_worker(each) for each in workers))


@workflow.defn
class AwaitExit:
    """Stands where a job does: returns the exit that it is told of."""

    def __init__(self) -> None:
        self._told: list[WorkerExit] = []

    @workflow.run
    async def run(self) -> WorkerExit:
        await workflow.wait_condition(lambda: bool(self._told), timeout=timedelta(seconds=60))
        return self._told[0]

    @workflow.signal
    def worker_exited(self, told: WorkerExit) -> None:
        self._told.append(told)


@workflow.defn
class AskSite:
    """Asks a site to answer, on the queue of its region."""

    @workflow.run
    async def run(self, asked: CheckSite) -> SiteChecked:
        return await check_site(asked)
