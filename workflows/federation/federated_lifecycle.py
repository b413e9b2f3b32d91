"""The lifecycle of a federated job."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from workflows.contracts.errors import NOT_FOUND, REFUSED, WORK_REFUSED
from workflows.contracts.events import Event
from workflows.contracts.federation import (
    FederatedEvent,
    FederatedReport,
    FederatedRequest,
    FederatedStatus,
    PartyWords,
)
from workflows.contracts.lifecycles import FederatedChanges, Wake
from workflows.effects.federation import (
    CreateFederatedJob,
    EndFederatedJob,
    FederationReview,
    IsolateModel,
    ReviewFederation,
    WithdrawModel,
    create_federated_job,
    end_federated_job,
    isolate_model,
    review_federation,
    withdraw_model,
)
from workflows.primitives.failures import EFFECT_FAILED, UNSERVED, cause_of
from workflows.primitives.inbox import Inbox
from workflows.primitives.journal import Journal

REVIEW_INTERVAL = timedelta(minutes=15)
"""Between two reviews without a wake, which may have been lost."""
END_INTERVAL = timedelta(minutes=5)
"""Between two requests to a job to end, and between two looks at its bill."""
_FORESEEN = (WORK_REFUSED, NOT_FOUND, REFUSED, UNSERVED, "TimeoutError")
"""The types of failure of which both parties read the words."""
_NOT_POSTED = "waits until all usage of its job is posted"


@workflow.defn(name="FederatedLifecycle")
class FederatedLifecycle:
    """The model of one account at work on the machines and the data of another one.

    new → verifying → isolating → running → withdrawing → settled · refused
    """

    @workflow.init
    def __init__(self, request: FederatedRequest) -> None:
        self._request = request
        self._journal = Journal(
            request.federated_id, request.account_id, request.sequence, request.resumed_reason
        )
        self._journal.next_run = self._next_run
        self._status = request.resumed_status or FederatedStatus.NEW
        self._inbox = Inbox()

    @workflow.run
    async def run(self, _: FederatedRequest) -> FederatedReport:
        while not self._status.is_final:
            if self._status is FederatedStatus.NEW:
                await self._begin()
            elif self._status is FederatedStatus.VERIFYING:
                await self._verify()
            elif self._status is FederatedStatus.ISOLATING:
                await self._isolate()
            elif self._status is FederatedStatus.RUNNING:
                await self._follow_job()
            else:
                await self._withdraw()
            await self._journal.continue_when_long()
        return self._report()

    async def _begin(self) -> None:
        await self._enter(
            FederatedStatus.VERIFYING, FederatedEvent.VERIFYING, "asks what both parties allow"
        )

    async def _verify(self) -> None:
        """Refuse what a party does not allow, before anything of the model is copied."""
        review = await self._review()
        if review.end_reason is not None:
            await self._settle(review.end_reason)
        elif review.refusals and not review.has_job:
            await self._refuse(review.words)
        else:
            await self._enter(
                FederatedStatus.ISOLATING,
                FederatedEvent.ISOLATING,
                "seals the model and fixes what its job may reach",
            )

    async def _isolate(self) -> None:
        """Seal the model, then create the job, for which both parties are asked once more."""
        federated_id = self._request.federated_id
        try:
            await isolate_model(IsolateModel(federated_id=federated_id, at=workflow.now()))
            command = CreateFederatedJob(federated_id=federated_id, at=workflow.now())
            created = await create_federated_job(command)
            refused = created.words if created.refusals else None
        except EFFECT_FAILED as failure:
            refused = _words_of(failure)
        if refused is None:
            await self._enter(
                FederatedStatus.RUNNING,
                FederatedEvent.RUNNING,
                f"its job is {self._request.job_id}",
            )
        elif (await self._review()).has_job:
            # An attempt whose answer was lost had created it.
            await self._begin_withdrawal(refused)
        else:
            await withdraw_model(WithdrawModel(federated_id=federated_id))
            await self._refuse(refused)

    async def _follow_job(self) -> None:
        """Wait for the job's end, and end it when a party does not allow it any longer."""
        review = await self._review()
        if review.has_ended:
            await self._begin_withdrawal(_described(review))
        elif review.end_reason is not None:
            await self._begin_withdrawal(PartyWords(both=review.end_reason))
        elif review.refusals:
            why = review.words
            withdrawn = Event(type=FederatedEvent.CONSENT_WITHDRAWN, message=why.both)
            await self._begin_withdrawal(why, withdrawn)
        else:
            await self._inbox.wait(REVIEW_INTERVAL)

    async def _begin_withdrawal(self, why: PartyWords, *before: Event) -> None:
        self._status = FederatedStatus.WITHDRAWING
        withdrawing = Event(type=FederatedEvent.WITHDRAWING, message=why.both)
        await self._write(*before, withdrawing, reason=why.both, changes=_changes_of(why))

    async def _withdraw(self) -> None:
        """Take the model back once nothing runs with it, and settle once all usage is posted."""
        review = await self._review()
        federated_id, why = self._request.federated_id, self._journal.reason or ""
        if not review.has_ended:
            command = EndFederatedJob(federated_id=federated_id, reason=why, at=workflow.now())
            await end_federated_job(command)
            await self._inbox.wait(END_INTERVAL)
            return
        await withdraw_model(WithdrawModel(federated_id=federated_id))
        if not review.is_billed:
            workflow.set_current_details(f"**{self._status}**: {_NOT_POSTED}")
            await self._inbox.wait(END_INTERVAL)
            return
        await self._settle(why)

    async def _review(self) -> FederationReview:
        self._inbox.drop(lambda message: isinstance(message, Wake))
        command = ReviewFederation(federated_id=self._request.federated_id)
        review = await review_federation(command)
        await self._journal.stop_if_behind(review.sequence)
        return review

    async def _refuse(self, why: PartyWords) -> None:
        self._status = FederatedStatus.REFUSED
        refused = Event(type=FederatedEvent.REFUSED, message=why.both)
        await self._write(refused, reason=why.both, changes=_changes_of(why))

    async def _settle(self, why: str) -> None:
        await self._enter(FederatedStatus.SETTLED, FederatedEvent.SETTLED, why, reason=why)

    async def _enter(
        self, status: FederatedStatus, event: FederatedEvent, says: str, reason: str | None = None
    ) -> None:
        self._status = status
        await self._write(Event(type=event, message=says), reason=reason)

    @workflow.signal(description="Ask again what both parties allow, and how far the job is.")
    def wake(self) -> None:
        if not self._inbox.holds(Wake):
            self._inbox.put(Wake())

    @workflow.query(description="Status, reason, and the id of the job.")
    def status(self) -> FederatedReport:
        return self._report()

    def _next_run(self) -> FederatedRequest:
        """The request of the next workflow run, which reviews anew whatever woke this one."""
        update = {
            "sequence": self._journal.sequence,
            "resumed_status": self._status,
            "resumed_reason": self._journal.reason,
        }
        return self._request.model_copy(update=update)

    async def _write(
        self, *events: Event, reason: str | None, changes: FederatedChanges | None = None
    ) -> None:
        changes = changes or FederatedChanges()
        await self._journal.write(self._status, changes, *events, reason=reason)

    def _report(self) -> FederatedReport:
        return FederatedReport(
            federated_id=self._request.federated_id,
            job_id=self._request.job_id,
            status=self._status,
            status_reason=self._journal.reason,
        )


def _described(review: FederationReview) -> PartyWords:
    """How the job ended; a reason of it is that of the platform, and no line of a log."""
    if review.job_status is None:
        return PartyWords(both="its job is gone")
    both = f"its job is {review.job_status}"
    to_creator, to_consumer = (
        f"{both}: {why}" if why else None for why in (review.creator_job_reason, review.job_reason)
    )
    return PartyWords(both=both, creator=to_creator, consumer=to_consumer)


def _words_of(failure: BaseException) -> PartyWords:
    """What each party reads of an effect that has failed.

    A failure that the platform has not foreseen has words about the storage and its files: neither
    party reads them, and who runs the platform finds them in this workflow's history.
    """
    kind, message = cause_of(failure)
    if kind not in _FORESEEN:
        return PartyWords(both=f"the platform could not seal the model or create its job ({kind})")
    details = next(_details_of(failure), None)
    return PartyWords(both=message) if details is None else PartyWords.model_validate(details)


def _details_of(failure: BaseException | None) -> Iterator[Any]:
    """The details of the errors in a chain of causes."""
    while failure is not None:
        yield from failure.details if isinstance(failure, ApplicationError) else ()
        failure = failure.__cause__


def _changes_of(words: PartyWords) -> FederatedChanges:
    return FederatedChanges(creator_reason=words.creator, consumer_reason=words.consumer)
