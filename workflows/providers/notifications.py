"""The one consumer of what a cloud tells of a provider's machines."""

from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import is_cancelled_exception

from workflows.contracts.providers import FeedStatus, NotificationsReport, NotificationsRequest
from workflows.effects.providers import (
    LISTEN_S,
    ReceiveNotifications,
    ReportFeedStatus,
    receive_notifications,
    report_feed_status,
)
from workflows.primitives.failures import EFFECT_FAILED, cause_of

FEED_ERROR_INTERVAL = timedelta(minutes=5)
"""As often as the sweep comes by, which sees then what nobody has heard."""
TRIAL_S = 10.0
"""So long it is listened for the first time, and after nothing was heard."""


@workflow.defn(name="ProviderNotifications")
class ProviderNotifications:
    """What happens to a provider's machines, told to their workflows within seconds.

    listening ⇄ feed_error → over, with the provider

    Nothing depends on it: what it misses is seen by the machines' own looks and by the sweep.
    """

    @workflow.init
    def __init__(self, request: NotificationsRequest) -> None:
        self._request = request
        self._deaf = request.feed_error
        self._is_over = False

    @workflow.run
    async def run(self, request: NotificationsRequest) -> NotificationsReport:
        while not self._is_over:
            if workflow.info().is_continue_as_new_suggested():
                workflow.continue_as_new(request.model_copy(update={"feed_error": self._deaf}))
            await self._listen()
        return self._report()

    async def _listen(self) -> None:
        command = ReceiveNotifications(
            provider_id=self._request.provider_id,
            kind=self._request.kind,
            for_s=LISTEN_S if self._deaf == "" else TRIAL_S,
        )
        try:
            heard = await receive_notifications(command)
        except EFFECT_FAILED as failure:
            if is_cancelled_exception(failure):
                raise
            await self._tell(cause_of(failure)[1])
            await workflow.sleep(FEED_ERROR_INTERVAL, summary="it is tried again")
            return
        self._is_over = heard.is_over
        if not self._is_over:
            await self._tell("")

    async def _tell(self, feed_error: str) -> None:
        """The provider, where people see it; it is told again when it could not be told."""
        workflow.set_current_details(f"hears nothing: {feed_error}" if feed_error else "listens")
        if feed_error == self._deaf:
            return
        state = ReportFeedStatus(
            provider_id=self._request.provider_id, state=FeedStatus(feed_error=feed_error)
        )
        try:
            await report_feed_status(state)
        except EFFECT_FAILED as failure:
            if is_cancelled_exception(failure):
                raise
            workflow.logger.warning("the provider was not told: %s", cause_of(failure)[1])
            return
        self._deaf = feed_error

    @workflow.query(description="Whether it hears, and if not why.")
    def status(self) -> NotificationsReport:
        return self._report()

    def _report(self) -> NotificationsReport:
        return NotificationsReport(provider_id=self._request.provider_id, feed_error=self._deaf)
