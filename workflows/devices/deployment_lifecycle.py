"""The lifecycle of a deployment."""

from datetime import timedelta

from temporalio import workflow

from workflows.contracts.deployments import (
    DeploymentAction,
    DeploymentEvent,
    DeploymentOrder,
    DeploymentReport,
    DeploymentRequest,
    DeploymentStatus,
    RolloutCounts,
)
from workflows.contracts.events import Event
from workflows.contracts.lifecycles import DeploymentChanges, Wake
from workflows.effects.deployments import (
    AdvanceRollout,
    EndRollout,
    RollBack,
    RolloutState,
    advance_rollout,
    end_rollout,
    roll_back,
)
from workflows.primitives.inbox import Inbox
from workflows.primitives.journal import Journal
from workflows.rules.devices.rollout import (
    described,
    described_loss,
    has_lost_a_step,
    verdict_of,
    waits_for_absent,
)

LEAST_INTERVAL = timedelta(seconds=1)
"""Between two counts of the devices, however many of them come to an end."""
COUNT_INTERVAL = timedelta(minutes=5)
"""Between two counts without a wake, which may have been lost."""
PAUSED_INTERVAL = timedelta(days=1)
PAUSES = "a-deployment-that-loses-a-step-pauses"
LATE_ROLLBACKS = "a-deployment-that-just-ends-goes-back"
"""The patch marks of what histories of before do not have."""
_EVENTS = {
    DeploymentStatus.FINISHED: DeploymentEvent.FINISHED,
    DeploymentStatus.STOPPED: DeploymentEvent.STOPPED,
    DeploymentStatus.FAILED: DeploymentEvent.FAILED,
    DeploymentStatus.ROLLED_BACK: DeploymentEvent.ROLLED_BACK,
}


@workflow.defn(name="DeploymentLifecycle")
class DeploymentLifecycle:
    """A revision of a configuration on its way to devices.

    new → rolling_out ⇄ paused → finished · stopped · failed; rolling_back → rolled_back
    """

    @workflow.init
    def __init__(self, request: DeploymentRequest) -> None:
        self._request = request
        self._journal = Journal(
            request.deployment_id, request.account_id, request.sequence, request.resumed_reason
        )
        self._journal.next_run = self._next_run
        self._status = request.resumed_status or DeploymentStatus.NEW
        self._deadline = request.deadline
        self._counts = request.counts
        self._lost, self._accepted_lost = request.accepted_lost, request.accepted_lost
        """How many devices are lost, and how many of them were when a person resumed it last."""
        self._inbox = Inbox()

    @workflow.run
    async def run(self, _: DeploymentRequest) -> DeploymentReport:
        if self._status is DeploymentStatus.NEW:
            await self._begin()
        while not self._status.is_final:
            if self._status is DeploymentStatus.ROLLING_BACK:
                await self._roll_back()
            else:
                await self._roll_out()
            await self._journal.continue_when_long()
        return self._report()

    async def _begin(self) -> None:
        self._deadline = workflow.now() + timedelta(seconds=self._request.policy.limit_s)
        self._status = DeploymentStatus.ROLLING_OUT
        begins = Event(type=DeploymentEvent.ROLLING_OUT, message="asks its devices")
        await self._write(begins, changes=DeploymentChanges(deadline=self._deadline))

    async def _roll_out(self) -> None:
        """Ask the next devices and count all, then wait until something has happened."""
        is_paused = self._status is DeploymentStatus.PAUSED
        state = await self._advance(asks=not is_paused)
        verdict = verdict_of(self._request.policy, state.counts)
        if order := self._inbox.pick(DeploymentOrder):
            await self._follow_order(order)
        elif verdict is DeploymentStatus.ROLLING_BACK:
            await self._begin_rollback(self._failures(state))
        elif verdict is not None:
            await self._end(verdict, self._failures(state))
        elif not is_paused and self._has_lost_a_step(state):
            await self._pause_for_loss(state)
        elif state.has_more:
            return
        elif self._leaves_absent(state.counts):
            await self._advance(leaves_absent=True)
        else:
            await self._record_counts(state)
            await self._wait(is_paused)

    async def _advance(self, *, asks: bool = True, leaves_absent: bool = False) -> RolloutState:
        command = AdvanceRollout(
            deployment_id=self._request.deployment_id,
            policy=self._request.policy,
            asks=asks,
            leaves_absent=leaves_absent,
            accepted_lost=self._accepted_lost,
            at=workflow.now(),
        )
        state = await advance_rollout(command)
        self._lost = state.counts.lost
        self._accepted_lost = min(self._accepted_lost, self._lost)
        await self._journal.stop_if_behind(state.sequence)
        return state

    async def _wait(self, is_paused: bool) -> None:
        """Wait for a wake, an order or the deadline, and act on an order."""
        await workflow.sleep(LEAST_INTERVAL, summary="devices come to an end together")
        message = await self._inbox.wait(self._pause(is_paused))
        order = message if isinstance(message, DeploymentOrder) else None
        order = order or self._inbox.pick(DeploymentOrder)
        if order is not None:
            await self._follow_order(order)

    def _pause(self, is_paused: bool) -> timedelta:
        if is_paused:
            return PAUSED_INTERVAL
        left = self._left()
        return min(COUNT_INTERVAL, left) if left > timedelta(0) else COUNT_INTERVAL

    def _left(self) -> timedelta:
        """Until devices that are away are not waited for any longer."""
        return COUNT_INTERVAL if self._deadline is None else self._deadline - workflow.now()

    def _leaves_absent(self, counts: RolloutCounts) -> bool:
        """Whether only devices are left that are away and have been waited for long enough.

        Devices that are there come to an end, or are lost for too long, and those after them are
        asked, however long that takes; a paused deployment leaves nobody. What is back meanwhile
        is asked in its turn.
        """
        is_paused = self._status is DeploymentStatus.PAUSED
        return not is_paused and waits_for_absent(counts) and self._left() <= timedelta(0)

    async def _follow_order(self, order: DeploymentOrder) -> None:
        by = _by(order)
        if order.action is DeploymentAction.STOP:
            await self._end(DeploymentStatus.STOPPED, f"stopped {by}")
        elif order.action is DeploymentAction.ROLL_BACK:
            await self._begin_rollback(_rolled_back_by(order))
        elif order.action is DeploymentAction.PAUSE and self._status is not DeploymentStatus.PAUSED:
            self._status = DeploymentStatus.PAUSED
            paused = Event(type=DeploymentEvent.PAUSED, message=f"paused {by}")
            await self._write(paused, reason=f"paused {by}")
        elif order.action is DeploymentAction.RESUME and self._status is DeploymentStatus.PAUSED:
            self._status, self._accepted_lost = DeploymentStatus.ROLLING_OUT, self._lost
            resumed = Event(type=DeploymentEvent.RESUMED, message=f"resumed {by}")
            await self._write(resumed, changes=DeploymentChanges(accepted_lost=self._lost))

    def _has_lost_a_step(self, state: RolloutState) -> bool:
        is_lost = has_lost_a_step(self._request.policy, state.counts, self._accepted_lost)
        return is_lost and workflow.patched(PAUSES)

    async def _pause_for_loss(self, state: RolloutState) -> None:
        """Ask no more devices until a person has seen why so many are lost."""
        self._status, self._counts = DeploymentStatus.PAUSED, state.counts
        lost = state.counts.lost - self._accepted_lost
        why = described_loss(self._request.policy, lost, state.failures)
        paused = Event(type=DeploymentEvent.PAUSED, message=why)
        await self._write(paused, changes=self._changes(state), reason=why)

    async def _begin_rollback(self, why: str) -> None:
        self._status = DeploymentStatus.ROLLING_BACK
        await self._write(Event(type=DeploymentEvent.ROLLING_BACK, message=why), reason=why)

    async def _roll_back(self) -> None:
        command = RollBack(deployment_id=self._request.deployment_id, at=workflow.now())
        state = await roll_back(command)
        await self._journal.stop_if_behind(state.sequence)
        if state.has_more:
            return
        await self._finish(DeploymentStatus.ROLLED_BACK, state, self._journal.reason or "")

    async def _end(self, status: DeploymentStatus, why: str) -> None:
        """End the deployment; devices that were asked keep their assignment."""
        command = EndRollout(deployment_id=self._request.deployment_id, at=workflow.now())
        state = await end_rollout(command)
        while state.has_more:
            state = await end_rollout(command)
        while order := self._inbox.pick(DeploymentOrder):
            if order.action is DeploymentAction.ROLL_BACK:
                await self._begin_rollback(_rolled_back_by(order))
                return
        await self._finish(status, state, why)

    async def _finish(self, status: DeploymentStatus, state: RolloutState, why: str) -> None:
        self._status, self._counts = status, state.counts
        words = "; ".join(filter(None, (why, described(state.counts))))
        ended = Event(type=_EVENTS[status], message=words)
        await self._write(ended, changes=self._changes(state), reason=words)
        # The order was taken until this step was recorded, so whoever gave it relies on it.
        while order := self._inbox.pick(DeploymentOrder):
            rolls_back = order.action is DeploymentAction.ROLL_BACK
            is_late = rolls_back and status is not DeploymentStatus.ROLLED_BACK
            if is_late and workflow.patched(LATE_ROLLBACKS):
                await self._begin_rollback(_rolled_back_by(order))
                return

    def _changes(self, state: RolloutState) -> DeploymentChanges:
        return DeploymentChanges(counts=state.counts, accepted_lost=self._accepted_lost)

    async def _record_counts(self, state: RolloutState) -> None:
        """Record counts that are new."""
        if state.counts == self._counts:
            return
        self._counts = state.counts
        words = described(state.counts)
        progressed = Event(type=DeploymentEvent.PROGRESSED, message=words)
        is_paused = self._status is DeploymentStatus.PAUSED
        reason = self._journal.reason if is_paused else words
        await self._write(progressed, changes=self._changes(state), reason=reason)

    def _failures(self, state: RolloutState) -> str:
        return "; ".join(state.failures)

    @workflow.signal(description="Count the devices, and ask more of them.")
    def wake(self) -> None:
        if not self._inbox.holds(Wake):
            self._inbox.put(Wake())

    @workflow.signal(description="Pause, resume, stop or roll back the deployment.")
    def order(self, order: DeploymentOrder) -> None:
        self._inbox.put(order)

    @workflow.query(description="Status, reason, and how many devices are how far.")
    def status(self) -> DeploymentReport:
        return self._report()

    def _next_run(self) -> DeploymentRequest | None:
        """The request of the next workflow run; None while an order waits."""
        if self._inbox.holds(DeploymentOrder):
            return None
        update = {
            "sequence": self._journal.sequence,
            "resumed_status": self._status,
            "resumed_reason": self._journal.reason,
            "deadline": self._deadline,
            "counts": self._counts,
            "accepted_lost": self._accepted_lost,
        }
        return self._request.model_copy(update=update)

    async def _write(
        self, event: Event, *, changes: DeploymentChanges | None = None, reason: str | None = None
    ) -> None:
        await self._journal.write(
            self._status, changes or DeploymentChanges(), event, reason=reason
        )

    def _report(self) -> DeploymentReport:
        return DeploymentReport(
            deployment_id=self._request.deployment_id,
            status=self._status,
            status_reason=self._journal.reason,
            counts=self._counts,
        )


def _by(order: DeploymentOrder) -> str:
    return f"by {order.requested_by or 'a person'}"


def _rolled_back_by(order: DeploymentOrder) -> str:
    return f"rolled back {_by(order)}"
