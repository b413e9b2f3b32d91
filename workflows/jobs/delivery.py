"""The delivery of a finished job's output to a destination outside the platform."""

from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import is_cancelled_exception

from workflows.contracts.deliveries import DeliveryStatus
from workflows.contracts.errors import TRANSFER_WAITS
from workflows.contracts.events import Event, JobEvent
from workflows.contracts.jobs import JobRequest
from workflows.contracts.statuses import JobStatus
from workflows.effects.job_data import DeliverOutput, OutputDelivered, deliver_output
from workflows.jobs.termination import Termination
from workflows.primitives.failures import EFFECT_FAILED, cause_of
from workflows.primitives.waiting import Interrupted, interruptible
from workflows.rules.counts import counted, size_in_words

DELIVERS = "outputs-are-delivered"
SLOT_LIMIT = timedelta(days=2)
"""How long a delivery waits until its account has a slot free."""
FIRST_SLOT_INTERVAL = timedelta(seconds=10)
LAST_SLOT_INTERVAL = timedelta(minutes=5)
"""Between two requests of a slot: at first, and later."""
STAYS = "the platform has stored it"


class Delivery:
    """The delivery of one job, after its allocations are released: no machine waits for it.

    A job whose output does not arrive has finished all the same, and says so.
    """

    def __init__(self, request: JobRequest, termination: Termination) -> None:
        self._job_id = request.job_id
        self._termination = termination
        self._is_wanted = request.delivers_output
        progress = request.resumed_from
        self.is_pending = progress is not None and progress.is_delivering
        self.status = DeliveryStatus.PENDING if self.is_pending else None
        self.reason: str | None = None
        """Why the output was not delivered; None: nothing has failed."""

    def begins(self, outcome: JobStatus) -> bool:
        """Whether the output of a job that has ended like this is delivered from now on."""
        is_due = self._is_wanted and outcome is JobStatus.FINISHED
        self.is_pending = is_due and workflow.patched(DELIVERS)
        if self.is_pending:
            self.status = DeliveryStatus.PENDING
            self._termination.outlive_request()
        return self.is_pending

    def first_event(self) -> Event:
        """The event of a delivery that begins."""
        message = "finished; its output is being sent to its destination"
        return Event(type=JobEvent.DELIVERING, message=message)

    async def run(self, attempt: int) -> Event:
        """Send the output of the attempt; the event of what has become of it.

        Who cancels or removes the job does not wait for the delivery.
        """
        sent = self._in_slot(attempt)
        try:
            found = await interruptible(sent, when=lambda: self._termination.is_canceled)
        except Interrupted:
            return self._failed("the job was asked to end meanwhile, and part of it may be there")
        except EFFECT_FAILED as failure:
            if is_cancelled_exception(failure):
                raise
            return self._failed(cause_of(failure)[1])
        self.is_pending, self.status = False, DeliveryStatus.DELIVERED
        size = f"{counted(found.file_count, 'file')}, {size_in_words(found.sent_bytes)}"
        message = f"its output is at {found.place}: {size}"
        return Event(type=JobEvent.DELIVERED, message=message)

    async def _in_slot(self, attempt: int) -> OutputDelivered:
        """What was sent, once the account had a slot free for it."""
        pause, ends_at = FIRST_SLOT_INTERVAL, workflow.now() + SLOT_LIMIT
        while True:
            try:
                return await deliver_output(DeliverOutput(job_id=self._job_id, attempt=attempt))
            except EFFECT_FAILED as failure:
                kind, _ = cause_of(failure)
                if kind != TRANSFER_WAITS or workflow.now() >= ends_at:
                    raise
            await workflow.sleep(pause, summary="its account has all its slots taken")
            pause = min(2 * pause, LAST_SLOT_INTERVAL)

    def _failed(self, why: str) -> Event:
        self.is_pending, self.status = False, DeliveryStatus.FAILED
        self.reason = f"its output was not delivered: {why}; {STAYS}"
        return Event(type=JobEvent.NOT_DELIVERED, message=self.reason)
