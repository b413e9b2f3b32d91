"""The running jobs of a node: list them, notify them, drain them, and end orphaned runs."""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta

from temporalio import workflow

from workflows.contracts.events import Event, NodeEvent
from workflows.contracts.nodes import LeavingRun, NodeNotice, NodeRequest
from workflows.effects.nodes import (
    BillOrphanedRuns,
    EndOrphanedRuns,
    FindNodeRuns,
    ListRuns,
    NodeRunsFound,
    NotifyJobs,
    bill_orphaned_runs,
    end_orphaned_runs,
    find_node_runs,
    list_runs,
    notify_jobs,
)
from workflows.effects.placement import WithdrawAllocations, withdraw_allocations
from workflows.hosts.location import HostLocation
from workflows.primitives.failures import EFFECT_FAILED, cause_of
from workflows.primitives.journal import EventWriter, Journal
from workflows.primitives.waiting import wait_until

DRAIN_INTERVAL = timedelta(seconds=5)
DRAIN_LIMIT = timedelta(minutes=30)
NOTIFY_AGAIN_INTERVAL = timedelta(minutes=1)
END_INTERVAL = timedelta(minutes=5)
END_TRIES = 3
"""How often the node tries to end a run in this interval before it takes no more jobs; after that,
it tries whenever it looks for orphaned runs."""
NOTIFY_AGAIN_LIMIT = timedelta(minutes=10)
"""The first and the longest time between two notices to the jobs that a node waits for."""
HOLDS_BACK = "holds-back-while-a-run-has-no-allocation"
"""The patch since which a node takes no jobs while a run is alive that no allocation holds."""
KNOWS_RUNS = "knows-what-runs-before-it-takes-jobs"
"""The patch since which a new node takes no jobs before the runs of its machine were listed."""


class RunningJobs:
    """The jobs with live allocations on one node.

    record_event: writes an event that leaves the node's status as it is.
    """

    def __init__(
        self,
        request: NodeRequest,
        location: HostLocation,
        journal: Journal,
        record_event: EventWriter,
    ) -> None:
        self._request = request
        self._location = location
        self._journal = journal
        self._record_event = record_event
        self.end_tries = dict(request.resumed_from.end_tries) if request.resumed_from else {}
        """The orphaned runs that could not be ended, each with the number of tries."""
        self.unheld_runs = request.resumed_from.unheld_runs if request.resumed_from else ()
        """Those of them whose GPUs no allocation holds."""
        self.unlisted = request.resumed_from.unlisted if request.resumed_from else None
        """Why nothing is known yet of the runs on the machine of a new node; None: it is."""
        self._has_listed = request.resumed_from is not None and self.unlisted is None
        self._cache_full: str | None = None
        """Why the region's cache on the node is full, as the last event says."""

    async def held(self) -> NodeRunsFound:
        """The runs and ids of the live jobs on the node, and the leaving runs.

        A stale workflow run stops here: these jobs are not those that it was to notify.
        """
        found = await find_node_runs(FindNodeRuns(node_id=self._request.node_id))
        await self._journal.stop_if_behind(found.sequence)
        return found

    async def users(self) -> tuple[str, ...]:
        """What keeps the node from being removed without force: its live jobs, and leaving runs.

        The removal of a leased node ends its machine, and with it every run.
        """
        held = await self.held()
        leaving = held.leaving if self._request.machine is None else ()
        return (*held.job_ids, *(run.run_id for run in leaving))

    async def withdraw(self, reason: str) -> None:
        """Withdraw the allocations that no job has confirmed; those jobs are placed anew."""
        node_id = self._request.node_id
        await withdraw_allocations(
            WithdrawAllocations(node_id=node_id, reason=reason, at=workflow.now())
        )

    async def notify(
        self, notice: NodeNotice, reason: str = "", *, ended_at: datetime | None = None
    ) -> None:
        """Send a node notice to every job. A job that cannot be notified polls by itself."""
        await self._send(self.notice(notice, reason, ended_at=ended_at))

    def notice(
        self, notice: NodeNotice, reason: str, *, ended_at: datetime | None = None
    ) -> NotifyJobs:
        """The command that sends a node notice to every job."""
        node_id = self._request.node_id
        return NotifyJobs(node_id=node_id, notice=notice, reason=reason, ended_at=ended_at)

    async def _send(self, command: NotifyJobs) -> None:
        try:
            await notify_jobs(command)
        except EFFECT_FAILED as failure:
            await self._record_event(
                Event(type=NodeEvent.JOBS_NOT_NOTIFIED, message=cause_of(failure)[1])
            )

    async def end_orphans(self) -> str | None:
        """End and bill the orphaned runs on the node; the end of a run frees what it holds.

        Returns why the node should take no more jobs: at once while a run is alive that no
        allocation holds, otherwise once a run could not be ended so many times.
        """
        there = (await list_runs(ListRuns(node=self._location.address()))).run_ids
        self.unlisted, self._has_listed = None, True
        held = await self.held()
        command = EndOrphanedRuns(
            node=self._location.address(),
            among=there,
            live=held.run_ids,
            leaving=tuple(run.run_id for run in held.leaving),
        )
        answer = await end_orphaned_runs(command)
        if answer.cache_full and answer.cache_full != self._cache_full:
            await self._record_event(Event(type=NodeEvent.CACHE_FULL, message=answer.cache_full))
        self._cache_full = answer.cache_full
        seen = answer.runs
        if seen:
            billed = BillOrphanedRuns(node_id=self._request.node_id, runs=seen)
            await bill_orphaned_runs(billed)
        if ended := [run.run_id for run in seen if not run.alive]:
            message = f"no live job claimed {', '.join(ended)}"
            await self._record_event(Event(type=NodeEvent.ORPHANED_RUNS_ENDED, message=message))
        alive = {run.run_id: run.alive for run in seen if run.alive}
        alive |= {run.name: run.alive for run in answer.earlier_runs}
        self._note_unheld(alive, held.leaving)
        self.end_tries = {run_id: self.end_tries.get(run_id, 0) + 1 for run_id in alive}
        await self._show_held(alive, held.leaving)
        given_up = [run_id for run_id, tries in self.end_tries.items() if tries == END_TRIES]
        if self.obstacle is None and given_up:
            return f"{', '.join(given_up)} cannot be ended: reboot it"
        return self.obstacle

    def note_unlisted(self, why: str) -> None:
        """Note that the orphaned runs could not be ended; a new node knows of none of them."""
        if not self._has_listed and workflow.patched(KNOWS_RUNS):
            self.unlisted = why

    def _note_unheld(self, alive: Collection[str], leaving: Sequence[LeavingRun]) -> None:
        """Note which living runs nobody holds GPUs for: an earlier node of the machine has left
        them, or their jobs had lost the machine."""
        held = {run.run_id for run in leaving}
        unheld = tuple(sorted(run_id for run_id in alive if run_id not in held))
        self.unheld_runs = unheld if unheld and workflow.patched(HOLDS_BACK) else ()

    @property
    def obstacle(self) -> str | None:
        """Why the node must not take jobs, whoever wants that: their GPUs may be in use."""
        if self.unlisted is not None:
            return (
                f"what runs on it is not known ({self.unlisted}), so that the node takes no jobs "
                "until that could be listed"
            )
        if not self.unheld_runs:
            return None
        return (
            f"{', '.join(self.unheld_runs)} cannot be ended and may use its GPUs, so that the node "
            "takes no jobs until it has ended: reboot it"
        )

    async def _show_held(self, alive: Mapping[str, str], leaving: Sequence[LeavingRun]) -> None:
        """Record once of each run that it could not be ended, and what it holds."""
        gpus = {run.run_id: list(run.gpu_indices) for run in leaving}
        for run_id in [run_id for run_id in alive if self.end_tries[run_id] == 1]:
            held = gpus.get(run_id, [])
            what = f"GPUs {', '.join(map(str, held))}" if held else "CPUs and memory"
            effect = f"{what} stay allocated until it has ended"
            if run_id in self.unheld_runs:
                effect = "the node takes no jobs until it has ended"
            message = f"{run_id} could not be ended ({alive[run_id]}): {effect}"
            details = {"run_id": run_id, "gpu_indices": held}
            await self._record_event(
                Event(type=NodeEvent.GPU_HELD, message=message, details=details)
            )

    @property
    def end_interval(self) -> timedelta | None:
        """How long until the next try to end a run that is still alive; None: no hurry."""
        hurries = any(tries < END_TRIES for tries in self.end_tries.values())
        hurries = hurries or self.unlisted is not None
        return END_INTERVAL if hurries else None

    async def drain(self, notice: Callable[[], NotifyJobs], is_gone: Callable[[], bool]) -> None:
        """Notify the jobs until none of them is on the node, up to the limit.

        There is no limit after the end of the machine, because nobody else notifies the jobs of it.

        notice: what the jobs are notified of now, by the state of the node;
        is_gone: whether the machine has ended, so that nothing runs there.
        """
        held = await self.held()
        deadline, pause = workflow.now() + DRAIN_LIMIT, NOTIFY_AGAIN_INTERVAL
        while (left := await self.held()).job_ids:
            if workflow.now() >= deadline:
                if not is_gone():
                    break
                pause = min(2 * pause, NOTIFY_AGAIN_LIMIT)
            # Repeated, because a signal may be lost, or a job may have started again meanwhile.
            await self._send(current := notice())
            await self._wait_for_end(pause, current, notice)
        unconfirmed = held if notice().notice is NodeNotice.REMOVED_UNREACHABLE else left
        unseen = (*unconfirmed.run_ids, *(run.run_id for run in left.leaving))
        if unseen and not is_gone():
            message = f"the end of {', '.join(unseen)} could not be confirmed; they may still run"
            await self._record_event(Event(type=NodeEvent.RUNS_LEFT, message=message))

    async def take_off(self, violation: str, at: datetime) -> None:
        """Notify the jobs of a protocol violation of the machine until none is on the node."""
        notice = self.notice(NodeNotice.PROTOCOL_VIOLATED, violation, ended_at=at)
        await self.drain(lambda: notice, lambda: True)

    async def _wait_for_end(
        self, limit: timedelta, current: NotifyJobs, notice: Callable[[], NotifyJobs]
    ) -> None:
        """Wait until no job is on the node, up to `limit`, or until there is another notice."""
        again_at = workflow.now() + limit
        interval = DRAIN_INTERVAL * (limit / NOTIFY_AGAIN_INTERVAL) ** 2
        while (await self.held()).job_ids and (left := again_at - workflow.now()) > timedelta(0):
            if await wait_until(lambda: notice() != current, min(interval, left), "drain"):
                return
