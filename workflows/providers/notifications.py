"""The notifications of a provider: the one consumer of its notification feed."""

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
"""As often as reconciliation runs, which then sees what no notification has said."""
TRIAL_S = 10.0
"""How long the first attempt listens, and each one after a feed error."""


@workflow.defn(name="ProviderNotifications")
class ProviderNotifications:
    """Passes each notification of a provider to the machine's workflow within seconds.

    listening ⇄ feed_error → over, with the provider

    Nothing depends on it: leases poll their machines, and reconciliation sees what is missed.
    """

    @workflow.init
    def __init__(self, request: NotificationsRequest) -> None:
        self._request = request
        self._feed_error = request.feed_error
        self._is_over = False

    @workflow.run
    async def run(self, request: NotificationsRequest) -> NotificationsReport:
        while not self._is_over:
            if workflow.info().is_continue_as_new_suggested():
                workflow.continue_as_new(
                    request.model_copy(update={"feed_error": self._feed_error})
                )
            await self._listen()
        return self._report()

    async def _listen(self) -> None:
        command = ReceiveNotifications(
            provider_id=self._request.provider_id,
            kind=self._request.kind,
            for_s=LISTEN_S if self._feed_error == "" else TRIAL_S,
        )
        try:
            received = await receive_notifications(command)
        except EFFECT_FAILED as failure:
            if is_cancelled_exception(failure):
                raise
            await self._report_feed(cause_of(failure)[1])
            await workflow.sleep(FEED_ERROR_INTERVAL, summary="next attempt")
            return
        self._is_over = received.is_over
        if not self._is_over:
            await self._report_feed("")

    async def _report_feed(self, feed_error: str) -> None:
        """Tell the provider's lifecycle a feed error that is new, until it has been told."""
        workflow.set_current_details(f"feed error: {feed_error}" if feed_error else "listens")
        if feed_error == self._feed_error:
            return
        state = ReportFeedStatus(
            provider_id=self._request.provider_id, state=FeedStatus(feed_error=feed_error)
        )
        try:
            await report_feed_status(state)
        except EFFECT_FAILED as failure:
            if is_cancelled_exception(failure):
                raise
            workflow.logger.warning("the provider could not be told: %s", cause_of(failure)[1])
            return
        self._feed_error = feed_error

    @workflow.query(description="The feed error, if there is one.")
    def status(self) -> NotificationsReport:
        return self._report()

    def _report(self) -> NotificationsReport:
        return NotificationsReport(
            provider_id=self._request.provider_id, feed_error=self._feed_error
        )
