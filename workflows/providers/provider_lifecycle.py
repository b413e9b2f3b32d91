"""The lifecycle of a provider."""

import asyncio
from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.exceptions import is_cancelled_exception

from workflows.contracts.events import Event, ProviderEvent
from workflows.contracts.lifecycles import ProviderChanges, Refresh
from workflows.contracts.machines import OrphanedMachinesFound, TerminateOrphan
from workflows.contracts.providers import (
    FeedStatus,
    PricesState,
    ProviderReport,
    ProviderRequest,
    Recheck,
)
from workflows.contracts.removals import Removal, RemovalProgress
from workflows.contracts.statuses import ProviderStatus
from workflows.effects.providers import (
    CheckProvider,
    ProviderChecked,
    RefreshOffers,
    StartNotifications,
    check_cloud,
    check_provider,
    refresh_offers,
    start_notifications,
)
from workflows.primitives.dependents import Dependents
from workflows.primitives.failures import EFFECT_FAILED, cause_of
from workflows.primitives.inbox import Inbox
from workflows.primitives.journal import Journal
from workflows.primitives.waiting import Interrupted, cancel_and_wait, interruptible
from workflows.providers.cloud_resources import CloudResources
from workflows.providers.machine_reconciliation import MachineReconciliation
from workflows.providers.orphaned_machines import OrphanedMachines
from workflows.rules.catalogue.providers import traits_of

IDLE_INTERVAL = timedelta(days=1)
POLL_INTERVAL = timedelta(hours=1)
"""How long nobody may notice that the key of a cloud does not work any more."""
OFFERS_AT_ONCE = "offers-are-read-at-once"
"""The patch since which a marketplace that has become ready can be placed on without a wait."""
REMOVAL_INTERVAL = timedelta(seconds=5)
REMOVAL_LIMIT = timedelta(hours=1)


@workflow.defn(name="ProviderLifecycle")
class ProviderLifecycle:
    """A source of machines, from its enablement to its removal.

    enabling → ready → removing → archived · failed → enabling (recheck)
    """

    @workflow.init
    def __init__(self, request: ProviderRequest) -> None:
        self._request = request
        self._journal = Journal(
            request.provider_id, request.account_id, request.sequence, request.resumed_reason
        )
        self._journal.next_run = self._next_run
        self._dependents = Dependents(self._journal)
        self._status = request.resumed_status or ProviderStatus.NEW
        self._inbox = Inbox()
        self._removed = False
        self._cloud = CloudResources(request)
        self._removal = request.removal
        self._orphans = OrphanedMachines(request, self._record_event)
        self._feed_error = request.feed_error
        """Why the notifications of its cloud do not arrive, as was recorded; empty: they do."""
        self._price_trouble = request.price_trouble
        self._reconciliation = MachineReconciliation(
            request, self._is_ready, self._record_event, self._look_when_long
        )

    @workflow.run
    async def run(self, request: ProviderRequest) -> ProviderReport:
        reconciling = [self._reconciliation.run()] if self._cloud.is_cloud else []
        tasks = [asyncio.create_task(work) for work in reconciling]
        if request.resumed_status is None:
            await self._enable()
        elif request.removal is not None:
            await self._carry_out(request.removal, ProviderStatus.READY)
        while not self._removed:
            await self._serve()
        await cancel_and_wait(tasks)
        return self._report()

    def _is_ready(self) -> bool:
        return self._status is ProviderStatus.READY

    def _look_when_long(self) -> None:
        """Have the loop look, which continues as new between two reconciliations."""
        if workflow.info().is_continue_as_new_suggested():
            self.refresh()

    async def _enable(self) -> None:
        """Run every check, then create what the provider needs in its cloud."""
        self._status = ProviderStatus.ENABLING
        await self._write(Event(type=ProviderEvent.ENABLING, message="is being checked"))
        changes = ProviderChanges()
        try:
            checked = await self._check()
            changes = ProviderChanges(checks=checked.checks)
            if not checked.passed:
                await self._fail(_reasons(checked), changes)
                return
            await self._cloud.create()
        except EFFECT_FAILED as failure:
            if self._cloud.is_cloud and is_cancelled_exception(failure):
                raise
            await self._fail(cause_of(failure)[1], self._cloud.added_to(changes))
            return
        self._status = ProviderStatus.READY
        ready = Event(type=ProviderEvent.READY, message="every check passed")
        await self._write(ready, changes=self._cloud.added_to(changes))
        if self._cloud.notifies:
            await self._start_notifications()
        if traits_of(self._request.kind).has_implied_region and workflow.patched(OFFERS_AT_ONCE):
            await self._read_offers()

    async def _read_offers(self) -> None:
        """Read what the marketplace offers, which its schedule does a few minutes later, too.

        A message is more urgent: it may be the removal of the provider.
        """
        kind = self._request.kind
        reading = refresh_offers(RefreshOffers(provider_kind=kind), summary=kind)
        try:
            await interruptible(reading, when=lambda: len(self._inbox) > 0)
        except Interrupted:
            return
        except EFFECT_FAILED as failure:
            if is_cancelled_exception(failure):
                raise
            workflow.logger.warning("offers were not read: %s", cause_of(failure)[1])

    async def _start_notifications(self) -> None:
        """Start the workflow that receives them; without it reconciliation sees losses later."""
        command = StartNotifications(provider_id=self._request.provider_id, kind=self._request.kind)
        try:
            await start_notifications(command)
        except EFFECT_FAILED as failure:
            if is_cancelled_exception(failure):
                raise
            await self._record_feed(FeedStatus(feed_error=cause_of(failure)[1]))

    async def _record_feed(self, feed: FeedStatus) -> None:
        if feed.feed_error == self._feed_error:
            return
        self._feed_error = feed.feed_error
        if feed.feed_error:
            message = (
                f"no notifications of its machines arrive, their status is read every few minutes: "
                f"{feed.feed_error} (a recheck creates what is missing)"
            )
            await self._record_event(Event(type=ProviderEvent.NOTIFICATIONS_LOST, message=message))
        else:
            message = "notifications of its machines arrive again"
            await self._record_event(
                Event(type=ProviderEvent.NOTIFICATIONS_RECEIVED, message=message)
            )

    async def _record_prices(self, prices: PricesState) -> None:
        """Record a trouble that is new or over; the known prices are used in either case."""
        if prices.trouble == self._price_trouble:
            return
        self._price_trouble = prices.trouble
        if prices.trouble:
            message = f"some or all prices could not be read and stay as known: {prices.trouble}"
            await self._record_event(Event(type=ProviderEvent.PRICES_STALE, message=message))
        else:
            message = "all prices of its cloud were read"
            await self._record_event(Event(type=ProviderEvent.PRICES_READ, message=message))

    async def _check(self) -> ProviderChecked:
        command = CheckProvider(
            provider_id=self._request.provider_id, provider_kind=self._request.kind
        )
        if self._cloud.is_cloud:
            return await check_cloud(command, summary="every check")
        return await check_provider(command)

    async def _serve(self) -> None:
        message = await self._inbox.wait(POLL_INTERVAL if self._cloud.is_cloud else IDLE_INTERVAL)
        if isinstance(message, Recheck):
            await self._enable()
        elif isinstance(message, Removal):
            await self._remove(message)
        elif isinstance(message, OrphanedMachinesFound):
            await self._orphans.record_found(message)
        elif isinstance(message, TerminateOrphan):
            await self._orphans.terminate([message, *self._others(TerminateOrphan)])
        elif isinstance(message, FeedStatus):
            await self._record_feed(message)
        elif isinstance(message, PricesState):
            await self._record_prices(message)
        elif self._cloud.is_cloud and self._status is ProviderStatus.READY:
            await self._poll()
        await self._journal.continue_when_long()

    def _others(self, kind: type[TerminateOrphan]) -> list[TerminateOrphan]:
        """All messages of the kind that have arrived."""
        found: list[TerminateOrphan] = []
        while (another := self._inbox.pick(kind)) is not None:
            found.append(another)
        return found

    async def _poll(self) -> None:
        """Check the key again; a provider whose key is refused has failed, its machines run on."""
        try:
            checked = await self._check()
        except EFFECT_FAILED as failure:
            if is_cancelled_exception(failure):
                raise
            message = f"could not be checked, stays ready: {cause_of(failure)[1]}"
            await self._write(Event(type=ProviderEvent.UNCHECKED, message=message))
            return
        if not checked.passed:
            await self._fail(_reasons(checked), ProviderChanges(checks=checked.checks))

    async def _fail(self, reason: str, changes: ProviderChanges | None = None) -> None:
        self._status = ProviderStatus.FAILED
        event = Event(type=ProviderEvent.FAILED, message=reason)
        await self._write(event, changes=changes, reason=reason)

    async def _remove(self, removal: Removal) -> None:
        """Remove the provider; with regions only when forced, and after they are gone."""
        found = await self._dependents.find()
        regions = [one for one in found.ids if one not in found.own_ids]
        if regions and not removal.force:
            message = f"asked to be removed, has {', '.join(regions)}: stays (force removes them)"
            await self._write(Event(type=ProviderEvent.REMOVAL_REFUSED, message=message))
            return
        before, self._status = self._status, ProviderStatus.REMOVING
        removing = Event(type=ProviderEvent.REMOVING, message="its regions are being removed")
        await self._write(removing, changes=ProviderChanges(removal=removal))
        await self._carry_out(RemovalProgress(removal=removal), before)

    async def _carry_out(self, progress: RemovalProgress, before: ProviderStatus) -> None:
        """Carry an accepted removal out; before: the status of a provider that stays."""
        removal, deadline = progress.removal, progress.deadline or workflow.now() + REMOVAL_LIMIT
        self._removal = RemovalProgress(removal=removal, deadline=deadline)
        left = await self._remove_regions(removal, deadline)
        self._removal = None
        if left:
            self._status = before
            message = f"still has {', '.join(left)} after {REMOVAL_LIMIT}"
            await self._write(Event(type=ProviderEvent.REMOVAL_REFUSED, message=message))
            return
        message, changes = "removed", ProviderChanges()
        if self._cloud.is_cloud:
            machines = await self._cloud.machines_left()
            if machines and not removal.force:
                await self._refuse_removal(machines)
                return
            gone = await self._cloud.remove()
            if self._cloud.are_left and not removal.force:
                await self._refuse_removal(self._cloud.describe_left())
                return
            message = self._cloud.describe_removal(gone, machines)
            changes = self._cloud.added_to(changes)
            await self._cloud.forget_key()
        self._status, self._removed = ProviderStatus.ARCHIVED, True
        await self._write(Event(type=ProviderEvent.ARCHIVED, message=message), changes=changes)

    async def _remove_regions(self, removal: Removal, deadline: datetime) -> tuple[str, ...]:
        """Have the regions and leases removed until the deadline; return those that are left."""
        while (left := (await self._dependents.find()).ids) and workflow.now() < deadline:
            await self._dependents.remove(removal)
            await workflow.sleep(REMOVAL_INTERVAL, summary="its regions end")
            await self._journal.continue_when_long()
        return left

    async def _refuse_removal(self, left: str) -> None:
        """Fail: its regions are gone, so the provider is of no use until a recheck."""
        self._status = ProviderStatus.FAILED
        reason = f"not removed: {left}; mend it and remove again, or force leaves it"
        event = Event(type=ProviderEvent.REMOVAL_REFUSED, message=reason)
        await self._write(event, changes=self._cloud.added_to(ProviderChanges()), reason=reason)

    @workflow.signal(description="Run every check again.")
    def recheck(self) -> None:
        self._inbox.put(Recheck())

    @workflow.signal(description="A use of it failed: check the key now.")
    def refresh(self) -> None:
        if not self._inbox.holds(Refresh):  # all who use it may ask at once
            self._inbox.put(Refresh())

    @workflow.signal(description="Compare its machines with the leases now.")
    def reconcile(self) -> None:
        self._reconciliation.is_asked = True

    @workflow.signal(description="Machines were found that no lease names.")
    def orphaned_machines(self, found: OrphanedMachinesFound) -> None:
        self._inbox.put(found)

    @workflow.signal(description="A person has an orphaned machine terminated.")
    def terminate_orphan(self, command: TerminateOrphan) -> None:
        self._inbox.put(command)

    @workflow.signal(description="Whether notifications of its machines arrive.")
    def feed_status(self, feed: FeedStatus) -> None:
        self._inbox.put(feed)

    @workflow.signal(description="Whether its cloud's prices could be read with its key.")
    def prices_state(self, prices: PricesState) -> None:
        self._inbox.put(prices)

    @workflow.signal(description="Remove the provider; with regions only when forced.")
    def remove(self, removal: Removal) -> None:
        self._inbox.put(removal)

    @workflow.query(description="Status and reason.")
    def status(self) -> ProviderReport:
        return self._report()

    def _next_run(self) -> ProviderRequest | None:
        """The request of the next workflow run; None while messages or a reconciliation wait."""
        if len(self._inbox) or self._reconciliation.is_running or self._reconciliation.is_asked:
            return None
        update = {
            "sequence": self._journal.sequence,
            "resumed_status": self._status,
            "resumed_reason": self._journal.reason,
            "known_orphans": tuple(self._orphans.known),
            "feed_error": self._feed_error,
            "price_trouble": self._price_trouble,
            "reconciled_at": self._reconciliation.reconciled_at,
            "reconciliation_trouble": self._reconciliation.trouble,
            "removal": self._removal,
        }
        return self._request.model_copy(update=update)

    async def _record_event(self, event: Event) -> None:
        """Record an event that leaves status and reason as they are."""
        await self._write(event, reason=self._journal.reason)

    async def _write(
        self, event: Event, *, changes: ProviderChanges | None = None, reason: str | None = None
    ) -> None:
        await self._journal.write(self._status, changes or ProviderChanges(), event, reason=reason)

    def _report(self) -> ProviderReport:
        return ProviderReport(
            provider_id=self._request.provider_id,
            status=self._status,
            status_reason=self._journal.reason,
        )


def _reasons(checked: ProviderChecked) -> str:
    """Every check that failed, with what it found and what to do."""
    failed = [check for check in checked.checks if check.status == "failed"]
    return "; ".join(
        f"{check.name}: {check.detail}" + f" ({check.fix})" * bool(check.fix) for check in failed
    )
