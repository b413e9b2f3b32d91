"""The lifecycle of a region."""

from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial

from temporalio import workflow
from temporalio.exceptions import is_cancelled_exception

from workflows.contracts.events import Event, RegionEvent
from workflows.contracts.lifecycles import Refresh, RegionChanges
from workflows.contracts.regions import RegionReport, RegionRequest, Replacement, SiteChange
from workflows.contracts.removals import Removal, RemovalProgress
from workflows.contracts.statuses import RegionStatus
from workflows.effects.regions import CheckSite, check_site
from workflows.primitives.dependents import Dependents
from workflows.primitives.failures import EFFECT_FAILED, cause_of
from workflows.primitives.inbox import Inbox
from workflows.primitives.journal import Journal
from workflows.primitives.waiting import Interrupted, interruptible, wait_until
from workflows.regions.cloud_resources import CloudResources, answer_requests
from workflows.regions.storage_replacement import OwnStorage
from workflows.rules.counts import some_of

SITE_INTERVAL = timedelta(hours=1)
OFFLINE_INTERVAL = timedelta(minutes=1)
IDLE_INTERVAL = timedelta(days=30)
REMOVAL_INTERVAL = timedelta(seconds=5)
LAST_REMOVAL_INTERVAL = timedelta(seconds=15)
"""Between two reads of what is to be removed: at first, and later where machines of a cloud end."""
REMOVAL_LIMIT = timedelta(hours=1)


@workflow.defn(name="RegionLifecycle")
class RegionLifecycle:
    """A place with machines, from its creation to its removal.

    provisioning → healthy ⇄ offline → removing → archived · failed, with nothing left of it
    """

    @workflow.init
    def __init__(self, request: RegionRequest) -> None:
        self._request = request
        self._journal = Journal(
            request.region_id, request.account_id, request.sequence, request.resumed_reason
        )
        self._journal.next_run = self._next_run
        self._dependents = Dependents(self._journal)
        self._removal = request.removal
        self._status = request.resumed_status or RegionStatus.NEW
        self._cloud = CloudResources(request, self._record_event)
        self._own_storage = OwnStorage(request, self._record_event)
        self._inbox = Inbox()
        self._removed = False

    @workflow.run
    async def run(self, request: RegionRequest) -> RegionReport:
        if request.resumed_status is None:
            await self._provision()
        elif request.removal is not None:
            await self._carry_out(request.removal, RegionStatus.HEALTHY)
        while not self._removed:
            await self._serve()
        return self._report()

    async def _provision(self) -> None:
        """Healthy as soon as a worker process serves its queue; until then offline, not failed."""
        self._status = RegionStatus.PROVISIONING
        if self._request.is_in_cloud:
            await self._create()
            return
        await self._write(
            Event(type=RegionEvent.PROVISIONING, message="waits for a worker on its queue")
        )
        await self._poll()

    async def _create(self) -> None:
        """Create all of the region's resources in its cloud, or leave none."""
        message = f"is being created in {self._request.cloud_region}"
        await self._write(Event(type=RegionEvent.PROVISIONING, message=message))
        try:
            await interruptible(self._cloud.create(self._inbox), when=self._has_removal)
        except Interrupted:
            return
        except EFFECT_FAILED as failure:
            if is_cancelled_exception(failure):
                raise
            await self._fail(cause_of(failure)[1])
        else:
            await self._poll()

    async def _fail(self, reason: str) -> None:
        """Remove what was created, see that it is gone, and only then record the failure."""
        await self._record_event(
            Event(type=RegionEvent.UNDONE, message=f"what was created is being removed: {reason}")
        )
        removal = Removal(force=True, requested_by="the region's failure")
        if left := await self._take_down(removal, workflow.now() + REMOVAL_LIMIT):
            reason = f"{reason}; and {left}"
        self._status = RegionStatus.FAILED
        await self._write(Event(type=RegionEvent.FAILED, message=reason), reason=reason)

    async def _serve(self) -> None:
        message = await self._inbox.wait(self._poll_interval())
        if isinstance(message, Removal):
            await self._remove(message)
        elif self._status is RegionStatus.FAILED:
            pass  # Nothing is left of it; it waits for its removal.
        elif isinstance(message, Replacement):
            await self._replace(message)
        else:
            await self._poll()
        await self._journal.continue_when_long()

    async def _poll(self) -> None:
        """healthy ⇄ offline: does a worker answer on the site's queue, and can storage be used?"""
        try:
            site = await check_site(self._site)
        except EFFECT_FAILED as failure:
            reason = f"no worker answers on the region's queue: {cause_of(failure)[1]}"
            await self._set_status(RegionStatus.OFFLINE, reason, reason=reason)
            return
        if problem := await self._cloud.storage_problem():
            await self._set_status(RegionStatus.OFFLINE, problem, reason=problem)
            return
        key = site.platform_key_fingerprint
        await self._set_status(RegionStatus.HEALTHY, f"its site answers, with key {key}")
        if self._request.central_storage:
            with suppress(Interrupted):
                await interruptible(self._own_storage.follow(), when=self._has_removal)

    async def _set_status(
        self, status: RegionStatus, message: str, *, reason: str | None = None
    ) -> None:
        """Record a status that is new, and for a region in a cloud also a reason that is new."""
        is_new = self._request.is_in_cloud and reason != self._journal.reason
        if status is not self._status or is_new:
            self._status = status
            await self._write(
                Event(type=RegionEvent(f"region.{status}"), message=message), reason=reason
            )

    async def _remove(self, removal: Removal) -> None:
        """Remove the region; with nodes or datastores only when forced, after these are gone."""
        found = await self._dependents.find()
        nodes = [one for one in found.ids if one not in found.own_ids]
        if nodes and not removal.force:
            message = f"asked to be removed, has {some_of(nodes)}: stays (force removes them)"
            await self._write(Event(type=RegionEvent.REMOVAL_REFUSED, message=message))
            return
        before, self._status = self._status, RegionStatus.REMOVING
        removing = Event(type=RegionEvent.REMOVING, message="its nodes are being removed")
        await self._write(removing, changes=RegionChanges(removal=removal))
        await self._carry_out(RemovalProgress(removal=removal), before)

    async def _carry_out(self, progress: RemovalProgress, before: RegionStatus) -> None:
        """Carry an accepted removal out; before: the status of a region that stays."""
        removal, deadline = progress.removal, progress.deadline or workflow.now() + REMOVAL_LIMIT
        self._removal = RemovalProgress(removal=removal, deadline=deadline)
        left = await self._take_down(removal, deadline)
        self._removal = None
        if left:
            self._status = before
            await self._write(Event(type=RegionEvent.REMOVAL_REFUSED, message=left), reason=left)
            return
        self._status, self._removed = RegionStatus.ARCHIVED, True
        await self._write(Event(type=RegionEvent.ARCHIVED, message="removed"))

    async def _take_down(self, removal: Removal, deadline: datetime) -> str:
        """Have nodes, machines and resources removed, and see them gone. What is left of them."""
        pause = REMOVAL_INTERVAL
        while (await self._dependents.find()).ids and workflow.now() < deadline:
            await self._dependents.remove(removal)
            await self._journal.continue_when_long()
            if not self._request.is_in_cloud:
                await workflow.sleep(pause, summary="its nodes end")
                continue
            # The storage node sends a refresh when its status changes.
            if await wait_until(partial(self._inbox.holds, Refresh), pause, "its nodes end"):
                self._inbox.pick(Refresh)
            pause = min(2 * pause, LAST_REMOVAL_INTERVAL)
        if left := (await self._dependents.find()).ids:
            return f"still has {', '.join(left)} after {REMOVAL_LIMIT}"
        return await self._cloud.remove()

    async def _replace(self, replacement: Replacement) -> None:
        if not self._request.is_in_cloud:
            self._request = self._request.model_copy(update={"central_storage": True})
            await self._poll()
            return
        replaced = self._cloud.replace(replacement.node_id, self._inbox)
        with suppress(Interrupted):
            await interruptible(replaced, when=self._has_removal)
        await self._poll()

    def _poll_interval(self) -> timedelta:
        if self._status is RegionStatus.FAILED:
            return IDLE_INTERVAL
        if self._status is not RegionStatus.HEALTHY:
            return OFFLINE_INTERVAL
        return self._own_storage.more_in or SITE_INTERVAL

    def _has_removal(self) -> bool:
        return self._inbox.holds(Removal)

    @property
    def _site(self) -> CheckSite:
        request = self._request
        return CheckSite(region_id=request.region_id, own_worker=request.own_worker)

    @workflow.signal(description="Remove the region; with nodes only when forced.")
    def remove(self, removal: Removal) -> None:
        self._inbox.put(removal)

    @workflow.signal(description="One of its nodes was unreachable: check the site now.")
    def refresh(self) -> None:
        if not self._inbox.holds(Refresh):  # all its nodes may ask at once
            self._inbox.put(Refresh())

    @workflow.signal(description="Another kind of worker process serves it from now on.")
    def change_site(self, change: SiteChange) -> None:
        self._request = self._request.model_copy(update={"own_worker": change.own_worker})
        self.refresh()

    @workflow.signal(description="Give it another storage node.")
    def replace(self, replacement: Replacement) -> None:
        answer_requests(self._inbox, replacement.node_id)  # Asked twice, it is replaced once.
        self._inbox.put(replacement)

    @workflow.query(description="Status and reason.")
    def status(self) -> RegionReport:
        return self._report()

    def _next_run(self) -> RegionRequest | None:
        """The request of the next workflow run; None while messages wait, or it is provisioned."""
        if len(self._inbox) or self._status is RegionStatus.PROVISIONING:
            return None
        update = {
            "sequence": self._journal.sequence,
            "resumed_status": self._status,
            "resumed_reason": self._journal.reason,
            "removal": self._removal,
        }
        return self._request.model_copy(update=update)

    async def _record_event(self, event: Event) -> None:
        """Record an event that leaves status and reason as they are."""
        await self._write(event, reason=self._journal.reason)

    async def _write(
        self, event: Event, *, changes: RegionChanges | None = None, reason: str | None = None
    ) -> None:
        await self._journal.write(self._status, changes or RegionChanges(), event, reason=reason)

    def _report(self) -> RegionReport:
        return RegionReport(
            region_id=self._request.region_id,
            status=self._status,
            status_reason=self._journal.reason,
        )
