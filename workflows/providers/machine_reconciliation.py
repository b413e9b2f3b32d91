"""The reconciliation of a provider's machines with its leases, by the provider's own timer."""

from collections.abc import Callable
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import is_cancelled_exception

from workflows.contracts.events import Event, ProviderEvent
from workflows.contracts.providers import ProviderRequest
from workflows.effects.reconciliation import ReconcileMachines, reconcile_machines
from workflows.primitives.failures import EFFECT_FAILED, cause_of
from workflows.primitives.journal import EventWriter
from workflows.primitives.waiting import wait_until

RECONCILIATION_INTERVAL = timedelta(minutes=5)
JITTER = 0.2
"""By which part an interval is shorter or longer, so that providers do not come all at once."""
UNRECONCILED_LIMIT = timedelta(hours=1)
"""How long nobody is told that the machines are not reconciled."""


class MachineReconciliation:
    """The repeated comparison of one provider's machines with its leases.

    It runs beside the messages of the provider, because to enable or to remove a provider may take
    an hour, in which machines cost money.

    is_ready: whether the provider is ready, so that its notifications are received too;
    after_each: called after each comparison.
    """

    def __init__(
        self,
        request: ProviderRequest,
        is_ready: Callable[[], bool],
        record_event: EventWriter,
        after_each: Callable[[], None],
    ) -> None:
        self.reconciled_at = request.reconciled_at
        """When the last complete comparison began; None: there was none."""
        self.trouble = request.reconciliation_trouble
        """Why there is none for long, as the last event says; empty: there is."""
        self.is_running = False
        self.is_asked = False
        """Whether a comparison is asked for that does not wait for its time."""
        self._request = request
        self._is_ready = is_ready
        self._record_event = record_event
        self._after_each = after_each

    async def run(self) -> None:
        """Compare at an interval and whenever asked, for as long as the provider is there."""
        since = self.reconciled_at or workflow.now()
        pause = workflow.random().uniform(0, 1) * RECONCILIATION_INTERVAL
        while True:
            await wait_until(lambda: self.is_asked, pause, "next reconciliation of machines")
            self.is_running, self.is_asked = True, False
            trouble = await self._reconcile()
            if trouble == "":
                since = self.reconciled_at or workflow.now()
                await self._record_good()
            elif workflow.now() - since >= UNRECONCILED_LIMIT:
                await self._record_trouble(trouble)
            self.is_running = False
            self._after_each()
            pause = workflow.random().uniform(1 - JITTER, 1 + JITTER) * RECONCILIATION_INTERVAL

    async def _reconcile(self) -> str:
        """Compare once. What could not be done, and why; empty: all was done."""
        command = ReconcileMachines(
            provider_id=self._request.provider_id,
            provider_kind=self._request.kind,
            is_ready=self._is_ready(),
        )
        try:
            found = await reconcile_machines(command)
        except EFFECT_FAILED as failure:
            if is_cancelled_exception(failure):
                raise
            return cause_of(failure)[1]
        self.reconciled_at = found.reconciled_at or self.reconciled_at
        return "; ".join(found.failed)

    async def _record_trouble(self, trouble: str) -> None:
        if self.trouble:
            return
        self.trouble = trouble
        last = f"{self.reconciled_at:%F %T} UTC" if self.reconciled_at else "never"
        message = (
            f"its machines are not reconciled with the leases, and some may cost money unseen; "
            f"last: {last}: {trouble}"
        )
        await self._record_event(Event(type=ProviderEvent.NOT_RECONCILED, message=message))

    async def _record_good(self) -> None:
        if self.trouble:
            self.trouble = ""
            message = "its machines are reconciled with the leases again"
            await self._record_event(Event(type=ProviderEvent.RECONCILED, message=message))
