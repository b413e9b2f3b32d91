"""What providers tell of their machines by themselves, handed on to the machines' workflows."""

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
"""What a machine's provider tells is news to these: the others have none, or end theirs."""


@activity.defn
async def start_notifications(command: StartNotifications) -> Done:
    """Start the one workflow that listens for a provider; silent when it runs."""
    if (await asyncio.to_thread(kind_of, command.kind)).notifications is not None:
        await start_listening(command)
    return Done()


async def start_listening(provider: StartNotifications) -> None:
    """Raises: RPCError, ApplicationError."""
    workflow_id = f"provider/{provider.provider_id}/notifications"
    call = client().start_workflow(
        "ProviderNotifications",
        NotificationsRequest(provider_id=provider.provider_id, kind=provider.kind),
        id=workflow_id,
        task_queue=queues.MAIN,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        static_summary=f"news of the machines of {provider.provider_id}",
    )
    await limited(call, f"{workflow_id}: start")


@activity.defn
async def receive_notifications(command: ReceiveNotifications) -> NotificationsReceived:
    """Until its time is over, this worker stops, or the provider is removed.

    Raises: the kinds of `activities/providers/base.py`; RPCError while Temporal takes no signals:
    what was not handed on is not settled, and comes again.
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
                return listening.heard(is_over=True)
            raise ApplicationError(str(error), type=error.kind) from error
        is_over = await asyncio.to_thread(_is_over, command.provider_id)
        return listening.heard(is_over=is_over)


@activity.defn
async def report_feed_status(command: ReportFeedStatus) -> Done:
    """Silent when the provider's workflow has ended."""
    workflow_id = workflow_id_of(command.provider_id)
    await tell(workflow_id, "feed_status", command.state, request_id=id_of_this_activity())
    return Done()


def _prepared(command: ReceiveNotifications) -> Callable[[], NotificationFeed]:
    kind = kind_of(command.kind)
    return kind.required("notifications", kind.notifications)(command.provider_id)


@dataclass
class _Listening:
    """One attempt: what was asked, and how much has come."""

    command: ReceiveNotifications
    told: int = 0
    ignored: int = 0

    def heard(self, *, is_over: bool) -> NotificationsReceived:
        return NotificationsReceived(told=self.told, ignored=self.ignored, is_over=is_over)

    async def to(self, feed: NotificationFeed) -> None:
        """Until the time is over or this worker stops; whatever waits then is given up at once."""
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
            leases = await asyncio.to_thread(_held, self.command.provider_id, messages)
            for message in messages:
                await self._tell(message, leases)
            await feed.settle([message.receipt for message in messages])
            set_details(f"{self.told} told, {self.ignored} of no use")

    async def _tell(self, message: Notification, leases: dict[str, str]) -> None:
        """Once, however often the message comes: Temporal drops what it has taken by its id."""
        lease_id = leases.get(message.machine_name or "")
        if lease_id is None or message.news is None:
            self.ignored += 1
            return
        await tell(workflow_id_of(lease_id), "news", message.news, request_id=message.id)
        self.told += 1


def _held(provider_id: str, messages: Sequence[Notification]) -> dict[str, str]:
    """Lease ids by machine name, of the machines in the messages that somebody holds."""
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
