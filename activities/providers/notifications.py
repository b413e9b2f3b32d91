"""The notifications of providers about their machines, passed on to the machines' leases."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlmodel import col, select
from temporalio import activity
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.exceptions import ApplicationError

from activities.db.session import database
from activities.db.tables import Lease, Provider
from activities.providers.base import Notification, NotificationFeed, ProviderError
from activities.providers.registry import kind_of
from activities.temporal.client import client, id_of_this_activity, limited, tell
from activities.temporal.heartbeats import heartbeating, set_details
from workflows.contracts import queues
from workflows.contracts.base import Done
from workflows.contracts.lifecycles import workflow_id_of
from workflows.contracts.providers import NotificationsRequest
from workflows.contracts.statuses import LeaseStatus, ProviderStatus
from workflows.effects.providers import (
    NotificationsReceived,
    ReceiveNotifications,
    ReportFeedStatus,
    StartNotifications,
)

NEEDED_BY = (LeaseStatus.CREATING, LeaseStatus.WAITING_FOR_SSH, LeaseStatus.READY)
"""The statuses of leases that need notifications; others have no machine, or are ending it."""


@activity.defn
async def start_notifications(command: StartNotifications) -> Done:
    """Start the workflow that receives a provider's notifications; silent when it runs already."""
    if (await asyncio.to_thread(kind_of, command.kind)).notifications is not None:
        await start_listening(command)
    return Done()


async def start_listening(provider: StartNotifications) -> None:
    """Start the workflow of a provider's notifications. Raises: RPCError, ApplicationError."""
    workflow_id = f"provider/{provider.provider_id}/notifications"
    call = client().start_workflow(
        "ProviderNotifications",
        NotificationsRequest(provider_id=provider.provider_id, kind=provider.kind),
        id=workflow_id,
        task_queue=queues.MAIN,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        static_summary=f"notifications about the machines of {provider.provider_id}",
    )
    await limited(call, f"{workflow_id}: start")


@activity.defn
async def receive_notifications(command: ReceiveNotifications) -> NotificationsReceived:
    """Pass notifications on until the time is over, this worker stops, or the provider is removed.

    Raises: ApplicationError with a kind of `activities/providers/base.py`; RPCError while Temporal
    takes no signals. Messages that were not passed on are not settled, and arrive again.
    """
    listening = _Listening(command)
    async with heartbeating():
        try:
            feed = (await asyncio.to_thread(_prepared, command))()
            try:
                await listening.to(feed)
            finally:
                await feed.close()
        except ProviderError as error:
            if await asyncio.to_thread(_is_over, command.provider_id):
                return listening.report(is_over=True)
            raise ApplicationError(str(error), type=error.kind) from error
        is_over = await asyncio.to_thread(_is_over, command.provider_id)
        return listening.report(is_over=is_over)


@activity.defn
async def report_feed_status(command: ReportFeedStatus) -> Done:
    """Signal the feed's status to the provider's workflow; silent when the workflow has ended."""
    workflow_id = workflow_id_of(command.provider_id)
    await tell(workflow_id, "feed_status", command.state, request_id=id_of_this_activity())
    return Done()


def _prepared(command: ReceiveNotifications) -> Callable[[], NotificationFeed]:
    kind = kind_of(command.kind)
    return kind.required("notifications", kind.notifications)(command.provider_id)


@dataclass
class _Listening:
    """One attempt of `receive_notifications`, with its counts of passed on and ignored messages."""

    command: ReceiveNotifications
    delivered: int = 0
    ignored: int = 0

    def report(self, *, is_over: bool) -> NotificationsReceived:
        return NotificationsReceived(told=self.delivered, ignored=self.ignored, is_over=is_over)

    async def to(self, feed: NotificationFeed) -> None:
        """Pass notifications on until the time is over or this worker stops; then cancel."""
        listening = asyncio.create_task(self._hand_on(feed))
        stopping = asyncio.create_task(activity.wait_for_worker_shutdown())
        try:
            done, _ = await asyncio.wait(
                (listening, stopping),
                timeout=self.command.for_s,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            for task in (listening, stopping):
                task.cancel()
            await asyncio.gather(listening, stopping, return_exceptions=True)
        if listening in done:
            listening.result()

    async def _hand_on(self, feed: NotificationFeed) -> None:
        while True:
            messages = await feed.next()
            leases = await asyncio.to_thread(_leases, self.command.provider_id, messages)
            for message in messages:
                await self._deliver(message, leases)
            await feed.settle([message.receipt for message in messages])
            set_details(f"{self.delivered} passed on, {self.ignored} ignored")

    async def _deliver(self, message: Notification, leases: dict[str, str]) -> None:
        """Signal the message to its lease; by the request id, Temporal drops a second delivery."""
        lease_id = leases.get(message.machine_name or "")
        if lease_id is None or message.content is None:
            self.ignored += 1
            return
        await tell(workflow_id_of(lease_id), "notified", message.content, request_id=message.id)
        self.delivered += 1


def _leases(provider_id: str, messages: Sequence[Notification]) -> dict[str, str]:
    """The ids of open leases by machine name, for the machines in the messages."""
    names = {message.machine_name for message in messages if message.machine_name}
    if not names:
        return {}
    query = select(Lease.name, Lease.id).where(
        col(Lease.provider_id) == provider_id,
        col(Lease.name).in_(sorted(names)),
        col(Lease.status).in_(NEEDED_BY),
    )
    with database().read() as session:
        return dict(session.exec(query).all())


def _is_over(provider_id: str) -> bool:
    query = select(Provider.status).where(col(Provider.id) == provider_id)
    with database().read() as session:
        status = session.exec(query).first()
    return status in (None, ProviderStatus.REMOVING, ProviderStatus.ARCHIVED)
