"""The life of a provider."""

from datetime import timedelta

from temporalio import workflow

from workflows.contracts.base import Contract
from workflows.contracts.events import Event
from workflows.contracts.provider import ProviderReport, ProviderRequest, Removal
from workflows.contracts.record import ProviderChanges
from workflows.contracts.states import ProviderStatus
from workflows.effects.region import (
    CheckProvider,
    FindDependents,
    TellDependents,
    check_provider,
    find_dependents,
    tell_dependents,
)
from workflows.journal import EFFECT_FAILED, Inbox, Journal, cause_of

NEWS_INTERVAL = timedelta(days=1)
REMOVAL_INTERVAL = timedelta(seconds=5)
REMOVAL_LIMIT = timedelta(hours=1)


class Recheck(Contract):
    """A person wants every check run again."""


@workflow.defn(name="ProviderLifecycle")
class ProviderLifecycle:
    """A source of machines, from its enablement to its removal.

    enabling → ready → removing → archived · failed → enabling (recheck)
    """

    @workflow.init
    def __init__(self, request: ProviderRequest) -> None:
        self._request = request
        self._journal = Journal(request.provider_id, request.account_id, request.sequence)
        self._status = request.carried_status or ProviderStatus.NEW
        self._inbox = Inbox()
        self._removed = False

    @workflow.run
    async def run(self, request: ProviderRequest) -> ProviderReport:
        if request.carried_status is None:
            await self._enable()
        while not self._removed:
            await self._serve()
        return self._report()

    async def _enable(self) -> None:
        """Every check, each with its own name and what to do; ready when none failed."""
        self._status = ProviderStatus.ENABLING
        await self._write(Event(type="provider.enabling", message="is checked"))
        command = CheckProvider(provider_id=self._request.provider_id, kind=self._request.kind)
        try:
            checked = await check_provider(command)
        except EFFECT_FAILED as failure:
            self._status = ProviderStatus.FAILED
            broken = cause_of(failure)[1]
            await self._write(Event(type="provider.failed", message=broken), reason=broken)
            return
        failed = [f"{c.name}: {c.detail}" for c in checked.checks if c.status == "failed"]
        self._status = ProviderStatus.FAILED if failed else ProviderStatus.READY
        reason = "; ".join(failed) or None
        await self._write(
            Event(type=f"provider.{self._status}", message=reason or "every check passed"),
            changes=ProviderChanges(checks=checked.checks),
            reason=reason,
        )

    async def _serve(self) -> None:
        message = await self._inbox.wait(NEWS_INTERVAL)
        if isinstance(message, Recheck):
            await self._enable()
        elif isinstance(message, Removal):
            await self._remove(message)
        if workflow.info().is_continue_as_new_suggested() and not len(self._inbox):
            self._continue()

    async def _remove(self, removal: Removal) -> None:
        """With regions only when forced; then they are removed first."""
        dependents = FindDependents(resource_id=self._request.provider_id)
        regions = (await find_dependents(dependents)).ids
        if regions and not removal.force:
            message = f"asked to be removed, has {', '.join(regions)}: stays (force removes them)"
            await self._write(Event(type="provider.removal-refused", message=message))
            return
        before, self._status = self._status, ProviderStatus.REMOVING
        await self._write(Event(type="provider.removing", message="its regions are removed"))
        told = TellDependents(resource_id=self._request.provider_id, removal=removal)
        deadline = workflow.now() + REMOVAL_LIMIT
        while (await find_dependents(dependents)).ids and workflow.now() < deadline:
            await tell_dependents(told)
            await workflow.sleep(REMOVAL_INTERVAL, summary="its regions end")
        if left := (await find_dependents(dependents)).ids:
            self._status = before
            message = f"still has {', '.join(left)} after {REMOVAL_LIMIT}"
            await self._write(Event(type="provider.removal-refused", message=message))
            return
        self._status, self._removed = ProviderStatus.ARCHIVED, True
        await self._write(Event(type="provider.archived", message="removed"))

    @workflow.signal(description="Run every check again.")
    def recheck(self) -> None:
        self._inbox.put(Recheck())

    @workflow.signal(description="Remove the provider; with regions only when forced.")
    def remove(self, removal: Removal) -> None:
        self._inbox.put(removal)

    @workflow.query(description="Status and reason.")
    def status(self) -> ProviderReport:
        return self._report()

    def _continue(self) -> None:
        update = {"sequence": self._journal.sequence, "carried_status": self._status}
        workflow.continue_as_new(self._request.model_copy(update=update))

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
