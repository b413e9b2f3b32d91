"""The life of a region."""

from datetime import timedelta

from temporalio import workflow

from workflows.contracts.events import Event
from workflows.contracts.provider import Look, RegionReport, RegionRequest, Removal
from workflows.contracts.record import RegionChanges
from workflows.contracts.states import RegionStatus
from workflows.effects.region import (
    CheckSite,
    FindDependents,
    TellDependents,
    check_site,
    find_dependents,
    tell_dependents,
)
from workflows.journal import EFFECT_FAILED, Inbox, Journal, cause_of

SITE_INTERVAL = timedelta(hours=1)
OFFLINE_INTERVAL = timedelta(minutes=1)
REMOVAL_INTERVAL = timedelta(seconds=5)
REMOVAL_LIMIT = timedelta(hours=1)


@workflow.defn(name="RegionLifecycle")
class RegionLifecycle:
    """A place with machines, from its creation to its removal.

    provisioning → healthy ⇄ offline → removing → archived
    """

    @workflow.init
    def __init__(self, request: RegionRequest) -> None:
        self._request = request
        self._journal = Journal(request.region_id, request.account_id, request.sequence)
        self._status = request.carried_status or RegionStatus.NEW
        self._inbox = Inbox()
        self._removed = False

    @workflow.run
    async def run(self, request: RegionRequest) -> RegionReport:
        if request.carried_status is None:
            await self._provision()
        while not self._removed:
            await self._serve()
        return self._report()

    async def _provision(self) -> None:
        """A worker serves the region's queue: usable. Until then it is offline, not failed."""
        self._status = RegionStatus.PROVISIONING
        await self._write(Event(type="region.provisioning", message="its site is looked for"))
        await self._look()

    async def _serve(self) -> None:
        healthy = self._status is RegionStatus.HEALTHY
        message = await self._inbox.wait(SITE_INTERVAL if healthy else OFFLINE_INTERVAL)
        if isinstance(message, Removal):
            await self._remove(message)
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
        else:
            key = site.platform_key_fingerprint
            await self._turn(RegionStatus.HEALTHY, f"its site answers, with key {key}")

    async def _turn(self, status: RegionStatus, message: str, *, reason: str | None = None) -> None:
        if status is not self._status:
            self._status = status
            await self._write(Event(type=f"region.{status}", message=message), reason=reason)

    async def _remove(self, removal: Removal) -> None:
        """With nodes only when forced; then they are removed first, and seen to be gone."""
        dependents = FindDependents(resource_id=self._request.region_id)
        nodes = (await find_dependents(dependents)).ids
        if nodes and not removal.force:
            message = f"asked to be removed, has {', '.join(nodes)}: stays (force removes them)"
            await self._write(Event(type="region.removal-refused", message=message))
            return
        before, self._status = self._status, RegionStatus.REMOVING
        await self._write(Event(type="region.removing", message="its nodes are removed"))
        told = TellDependents(resource_id=self._request.region_id, removal=removal)
        deadline = workflow.now() + REMOVAL_LIMIT
        while (await find_dependents(dependents)).ids and workflow.now() < deadline:
            await tell_dependents(told)
            await workflow.sleep(REMOVAL_INTERVAL, summary="its nodes end")
        if left := (await find_dependents(dependents)).ids:
            self._status = before
            message = f"still has {', '.join(left)} after {REMOVAL_LIMIT}"
            await self._write(Event(type="region.removal-refused", message=message))
            return
        self._status, self._removed = RegionStatus.ARCHIVED, True
        await self._write(Event(type="region.archived", message="removed"))

    @workflow.signal(description="Remove the region; with nodes only when forced.")
    def remove(self, removal: Removal) -> None:
        self._inbox.put(removal)

    @workflow.signal(description="A node of its could not be looked at: is its site served?")
    def look(self) -> None:
        if not self._inbox.holds(Look):  # all its nodes say so at once
            self._inbox.put(Look())

    @workflow.query(description="Status and reason.")
    def status(self) -> RegionReport:
        return self._report()

    def _continue(self) -> None:
        update = {"sequence": self._journal.sequence, "carried_status": self._status}
        workflow.continue_as_new(self._request.model_copy(update=update))

    async def _write(self, event: Event, *, reason: str | None = None) -> None:
        await self._journal.write(self._status, RegionChanges(), event, reason=reason)

    def _report(self) -> RegionReport:
        return RegionReport(
            region_id=self._request.region_id,
            status=self._status,
            status_reason=self._journal.reason,
        )
