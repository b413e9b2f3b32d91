"""The deadline of a lease: the notice before it, and the moment when it has passed."""

from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from workflows.contracts.errors import OUT_OF_TIME
from workflows.contracts.events import Event, LeaseEvent
from workflows.contracts.leases import LeaseEnding, LeaseRequest
from workflows.primitives.journal import EventWriter

ENDING_NOTICE = timedelta(minutes=15)
"""How long before its deadline a lease notifies its holder: longer than a job needs to leave, which
is its grace, ten minutes for its last state snapshot, and two for its log and output."""
ENDING_SHARE = 10
"""A short lease notifies its holder when a tenth of its lifetime is left."""
ENDING_INTERVAL = timedelta(minutes=1)
"""Between two such notifications, because the holder may have been restarted since the last."""


class Deadline:
    """The deadline of one lease.

    record_event: writes an event that leaves the lease's status as it is.
    """

    def __init__(self, request: LeaseRequest, record_event: EventWriter) -> None:
        self._request = request
        self._record_event = record_event
        self.is_announced = bool(request.resumed_from and request.resumed_from.is_ending)
        """Whether the holder is notified that the lease ends."""
        self._is_notice_due = False
        self.has_passed = False
        """Whether the clock of this workflow run has seen it pass."""

    async def watch(self) -> None:
        """Wait until the holder is to be notified, then until the deadline has passed."""
        notice = self.until_notice()
        if notice > timedelta(0):
            await workflow.sleep(notice, summary="until the notice of the deadline")
        self._is_notice_due = True
        left = self._request.deadline - workflow.now()
        if left > timedelta(0):
            await workflow.sleep(left, summary="until the deadline")
        self.has_passed = True

    def check(self) -> None:
        """Raises: ApplicationError `OutOfTime`, when the deadline has passed."""
        if self.has_passed or self._request.deadline <= workflow.now():
            message = f"the deadline has passed: {self._request.deadline:%F %T} UTC"
            raise ApplicationError(message, type=OUT_OF_TIME)

    def until_notice(self) -> timedelta:
        """The time until the holder is notified of the deadline."""
        lifetime = timedelta(seconds=self._request.spec.lifetime_s)
        notice = min(ENDING_NOTICE, lifetime / ENDING_SHARE)
        return self._request.deadline - notice - workflow.now()

    def until_next_notice(self) -> timedelta:
        """The time until the first notice or, after that, between two of them."""
        left = self.until_notice()
        return left if left > timedelta(0) else ENDING_INTERVAL

    @property
    def must_announce(self) -> bool:
        """Whether the holder is now to be notified for the first time."""
        return self._is_notice_due and not self.is_announced

    async def announce(self) -> LeaseEnding:
        """Record once that the lease ends, and return what its holder is notified of."""
        deadline = self._request.deadline
        reason = f"the lease of its machine ends at {deadline:%F %T} UTC"
        if not self.is_announced:
            self.is_announced = True
            message = f"{self._request.holder_id} is asked to leave: {reason}"
            await self._record_event(Event(type=LeaseEvent.ENDING, message=message))
        return LeaseEnding(lease_id=self._request.lease_id, reason=reason, ends_at=deadline)
