"""The life of a region."""

from contextlib import suppress
from datetime import timedelta
from functools import partial

from temporalio import workflow
from temporalio.exceptions import is_cancelled_exception

from workflows.contracts.events import Event, RegionEvent
from workflows.contracts.lifecycles import Refresh, Removal
from workflows.contracts.record import RegionChanges
from workflows.contracts.regions import RegionReport, RegionRequest, Replacement
from workflows.contracts.statuses import RegionStatus
from workflows.effects.lifecycles import (
    FindDependents,
    RemoveDependents,
    find_dependents,
    remove_dependents,
)
from workflows.effects.regions import CheckSite, check_site
from workflows.primitives.failures import EFFECT_FAILED, cause_of
from workflows.primitives.inbox import Inbox
from workflows.primitives.journal import Journal
from workflows.primitives.waiting import Interrupted, interruptible, wait_until
from workflows.regions.cloud_resources import CloudRegion

SITE_INTERVAL = timedelta(hours=1)
OFFLINE_INTERVAL = timedelta(minutes=1)
IDLE_INTERVAL = timedelta(days=30)
REMOVAL_INTERVAL = timedelta(seconds=5)
LAST_REMOVAL_INTERVAL = timedelta(seconds=15)
"""Between two looks at what is to be gone: at first, and where machines of a cloud end, later."""
REMOVAL_LIMIT = timedelta(hours=1)


@workflow.defn(name="RegionLifecycle")
class RegionLifecycle:
    """A place with machines, from its creation to its removal.

    provisioning → healthy ⇄ offline → removing → archived · failed, with nothing left of it
    """

    @workflow.init
    def __init__(self, request: RegionRequest) -> None:
        self._request = request
        self._journal = Journal(request.region_id, request.account_id, request.sequence)
        self._status = request.resumed_status or RegionStatus.NEW
        self._cloud = CloudRegion(request, self._record_event)
        self._inbox = Inbox()
        self._removed = False

    @workflow.run
    async def run(self, request: RegionRequest) -> RegionReport:
        if request.resumed_status is None:
            await self._provision()
        while not self._removed:
            await self._serve()
        return self._report()

    async def _provision(self) -> None:
        """A worker serves the region's queue: usable. Until then it is offline, not failed."""
        self._status = RegionStatus.PROVISIONING
        if self._request.is_in_cloud:
            await self._build()
            return
        await self._write(Event(type=RegionEvent.PROVISIONING, message="its site is looked for"))
        await self._look()

    async def _build(self) -> None:
        """All of it, or nothing."""
        message = f"is made in {self._request.cloud_region}"
        await self._write(Event(type=RegionEvent.PROVISIONING, message=message))
        try:
            await interruptible(self._cloud.build(self._inbox), when=self._has_removal)
        except Interrupted:
            return
        except EFFECT_FAILED as failure:
            if is_cancelled_exception(failure):
                raise
            await self._fail(cause_of(failure)[1])
        else:
            await self._look()

    async def _fail(self, reason: str) -> None:
        """What was made is removed, and seen to be gone, before it is said that it has failed."""
        await self._record_event(
            Event(type=RegionEvent.UNDONE, message=f"what was made is removed again: {reason}")
        )
        removal = Removal(force=True, requested_by="the region's failure")
        if left := await self._take_down(removal):
            reason = f"{reason}; and {left}"
        self._status = RegionStatus.FAILED
        await self._write(Event(type=RegionEvent.FAILED, message=reason), reason=reason)

    async def _serve(self) -> None:
        message = await self._inbox.wait(self._patience())
        if isinstance(message, Removal):
            await self._remove(message)
        elif self._status is RegionStatus.FAILED:
            pass  # Nothing is there; it waits to be removed.
        elif isinstance(message, Replacement):
            await self._replace()
        else:
            await self._look()
        if workflow.info().is_continue_as_new_suggested() and not len(self._inbox):
            self._continue()

    async def _look(self) -> None:
        """healthy ⇄ offline, by whether a worker answers on the site's queue."""
        try:
            site = await check_site(CheckSite(region_id=self._request.region_id))
        except EFFECT_FAILED as failure:
            reason = f"no worker answers on the region's queue: {cause_of(failure)[1]}"
            await self._turn(RegionStatus.OFFLINE, reason, reason=reason)
            return
        if missed := await self._cloud.missed():
            await self._turn(RegionStatus.OFFLINE, missed, reason=missed)
            return
        key = site.platform_key_fingerprint
        await self._turn(RegionStatus.HEALTHY, f"its site answers, with key {key}")

    async def _turn(self, status: RegionStatus, message: str, *, reason: str | None = None) -> None:
        is_news = self._request.is_in_cloud and reason != self._journal.reason
        if status is not self._status or is_news:
            self._status = status
            await self._write(
                Event(type=RegionEvent(f"region.{status}"), message=message), reason=reason
            )

    async def _remove(self, removal: Removal) -> None:
        """With nodes only when forced; then they are removed first, and seen to be gone."""
        found = await find_dependents(self._dependents)
        nodes = [one for one in found.ids if one not in found.own_ids]
        if nodes and not removal.force:
            message = f"asked to be removed, has {', '.join(nodes)}: stays (force removes them)"
            await self._write(Event(type=RegionEvent.REMOVAL_REFUSED, message=message))
            return
        before, self._status = self._status, RegionStatus.REMOVING
        await self._write(Event(type=RegionEvent.REMOVING, message="its nodes are removed"))
        if left := await self._take_down(removal):
            self._status = before
            await self._write(Event(type=RegionEvent.REMOVAL_REFUSED, message=left), reason=left)
            return
        self._status, self._removed = RegionStatus.ARCHIVED, True
        await self._write(Event(type=RegionEvent.ARCHIVED, message="removed"))

    async def _take_down(self, removal: Removal) -> str:
        """Nodes, machines and parts are gone, and seen to be. What is left; empty: nothing."""
        told = RemoveDependents(resource_id=self._request.region_id, removal=removal)
        deadline, pause = workflow.now() + REMOVAL_LIMIT, REMOVAL_INTERVAL
        while (await find_dependents(self._dependents)).ids and workflow.now() < deadline:
            await remove_dependents(told)
            if not self._request.is_in_cloud:
                await workflow.sleep(pause, summary="its nodes end")
                continue
            # Its storage tells how far it is.
            if await wait_until(partial(self._inbox.holds, Refresh), pause, "its nodes end"):
                self._inbox.pick(Refresh)
            pause = min(2 * pause, LAST_REMOVAL_INTERVAL)
        if left := (await find_dependents(self._dependents)).ids:
            return f"still has {', '.join(left)} after {REMOVAL_LIMIT}"
        return await self._cloud.remove_resources()

    async def _replace(self) -> None:
        with suppress(Interrupted):
            await interruptible(self._cloud.replace(self._inbox), when=self._has_removal)
        await self._look()

    def _patience(self) -> timedelta:
        if self._status is RegionStatus.FAILED:
            return IDLE_INTERVAL
        return SITE_INTERVAL if self._status is RegionStatus.HEALTHY else OFFLINE_INTERVAL

    def _has_removal(self) -> bool:
        return self._inbox.holds(Removal)

    @property
    def _dependents(self) -> FindDependents:
        return FindDependents(resource_id=self._request.region_id)

    @workflow.signal(description="Remove the region; with nodes only when forced.")
    def remove(self, removal: Removal) -> None:
        self._inbox.put(removal)

    @workflow.signal(description="A node of its could not be looked at: is its site served?")
    def refresh(self) -> None:
        if not self._inbox.holds(Refresh):  # all its nodes say so at once
            self._inbox.put(Refresh())

    @workflow.signal(description="Give it another storage node.")
    def replace(self, asked: Replacement) -> None:
        if not self._inbox.holds(Replacement):  # told twice, it is replaced once
            self._inbox.put(asked)

    @workflow.query(description="Status and reason.")
    def status(self) -> RegionReport:
        return self._report()

    def _continue(self) -> None:
        update = {"sequence": self._journal.sequence, "resumed_status": self._status}
        workflow.continue_as_new(self._request.model_copy(update=update))

    async def _record_event(self, event: Event) -> None:
        """Record an event that leaves status and reason as they are."""
        await self._write(event, reason=self._journal.reason)

    async def _write(self, event: Event, *, reason: str | None = None) -> None:
        await self._journal.write(self._status, RegionChanges(), event, reason=reason)

    def _report(self) -> RegionReport:
        return RegionReport(
            region_id=self._request.region_id,
            status=self._status,
            status_reason=self._journal.reason,
        )
