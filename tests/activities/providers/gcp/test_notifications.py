"""Google's news of machines, out of a real subscription, as their workflows are told it."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.db import tables
from activities.db.session import Database
from activities.providers import notifications
from activities.providers.gcp.audit_log import read_notification
from activities.providers.gcp.notifications import GoogleNotifications
from activities.providers.gcp.project_resources import RESOURCES
from activities.providers.gcp.session import GoogleSession
from activities.providers.notifications import receive_notifications
from tests.activities.leases.rows import Books
from tests.activities.providers.kinds import kind_with
from tests.doubles.gcp.double import GcpDouble
from tests.doubles.gcp.pubsub import Message
from tests.waiting import eventually
from workflows.contracts import errors
from workflows.contracts.machines import MachineNotification
from workflows.contracts.statuses import LeaseStatus, ProviderKind
from workflows.effects.providers import NotificationsReceived, ReceiveNotifications


@pytest.fixture
def dialect() -> str:
    return "sqlite"


@pytest.fixture
def books(migrated: Database, google: GoogleSession) -> Iterator[Books]:
    """Leases of a provider with a subscription, its topic, and a sink that writes to it."""
    found = Books(migrated)
    for resource in ("topic", "subscription", "sink", "publisher"):
        RESOURCES[resource].make(google, found.provider_id)
    with kind_with(notifications=lambda _: lambda: GoogleNotifications(google, found.provider_id)):
        yield found


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[str, MachineNotification]]:
    """What workflows took, by the id that each was sent under: what comes twice is dropped."""
    found: dict[str, tuple[str, MachineNotification]] = {}

    async def note(
        workflow_id: str, signal: str, what: MachineNotification, *, request_id: str
    ) -> bool:
        assert signal == "notified"
        found[request_id] = (workflow_id, what)
        return True

    monkeypatch.setattr(notifications, "tell", note)
    return found


@asynccontextmanager
async def listening(books: Books) -> AsyncIterator["asyncio.Task[NotificationsReceived]"]:
    command = ReceiveNotifications(provider_id=books.provider_id, kind=ProviderKind.GCP, for_s=60)
    environment = ActivityEnvironment()
    task = asyncio.create_task(environment.run(receive_notifications, command))
    try:
        yield task
    finally:
        environment.worker_shutdown()
        await asyncio.gather(task, return_exceptions=True)


def entry(name: str, method: str = "compute.instances.preempted", **changes: Any) -> Any:
    return {
        "insertId": "qnwer3e38dfz",
        "timestamp": "2026-11-21T10:42:31.325309123Z",
        "severity": "INFO",
        "operation": {"id": "systemevent-1", "first": True, "last": True},
        "resource": {"type": "gce_instance", "labels": {"instance_id": "1844", "zone": "z"}},
        "protoPayload": {
            "methodName": method,
            "resourceName": f"projects/p/zones/z/instances/{name}",
            "authenticationInfo": {"principalEmail": "u@example.com"},
        },
        **changes,
    }


def publish(gcp: GcpDouble, content: Any) -> None:
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    (topic,) = gcp.cloud.pubsub.topics
    gcp.cloud.pubsub.publish(topic, Message(data))


def waiting(gcp: GcpDouble) -> int:
    (subscription,) = gcp.cloud.pubsub.subscriptions.values()
    return len(subscription.waiting)


async def settled(gcp: GcpDouble) -> None:
    await eventually(lambda: waiting(gcp) == 0, "all is settled")


Notification = dict[str, tuple[str, MachineNotification]]


async def test_a_machine_s_workflow_is_told_what_has_happened_to_it(
    gcp: GcpDouble, books: Books, told: Notification
) -> None:
    row = books.lease(LeaseStatus.READY)
    audit = gcp.cloud.audit
    target = f"projects/{gcp.project.id}/zones/us-central1-a/instances/{row.name}"
    async with listening(books):
        with gcp.cloud.lock:
            audit.system_event(gcp.project.id, target, "4711", "compute.instances.preempted")
        await eventually(lambda: len(told) == 1, "it is told")
        await settled(gcp)
    ((workflow_id, said),) = told.values()
    assert workflow_id == f"lease/{row.id}"
    assert (said.what, said.provider_machine_id) == ("it was preempted", "4711")


async def test_messages_repeated_out_of_order_unknown_or_malformed_do_no_harm(
    gcp: GcpDouble, books: Books, told: Notification
) -> None:
    held, over = books.lease(LeaseStatus.READY), books.lease(LeaseStatus.RELEASED)
    gcp.cloud.pubsub.duplicate_every, gcp.cloud.pubsub.shuffle = 1, True
    preempted = entry(held.name)
    of_no_use = (
        b"\xff\xfe no JSON", b"[]", b"{}", b"null", b'{"protoPayload": 7}',
        entry(held.name, "compute.instances.migrateOnHostMaintenance"),
        entry(held.name, "v1.compute.instances.insert"),
        entry(held.name, "v1.compute.instances.delete", severity="ERROR"),
        entry(held.name, "v1.compute.instances.delete", operation=None),
        entry(held.name, timestamp="yesterday"),
        entry(held.name, resource=None),
        entry(over.name), entry("baseload-lea-nobody"), entry("somebody-elses"),
    )  # fmt: skip
    for content in (*of_no_use, preempted, preempted):
        publish(gcp, content)
    async with listening(books) as heard:
        await settled(gcp)
    report = heard.result()
    assert [workflow_id for workflow_id, _ in told.values()] == [f"lease/{held.id}"]
    assert (report.told, report.ignored) == (4, 2 * len(of_no_use))


async def test_what_could_not_be_handed_on_is_not_settled(
    gcp: GcpDouble, books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(*_: Any, **__: Any) -> bool:
        raise ApplicationError("Temporal has not answered")

    monkeypatch.setattr(notifications, "tell", silent)
    publish(gcp, entry(books.lease(LeaseStatus.READY).name))
    async with listening(books) as heard:
        with pytest.raises(ApplicationError, match="has not answered"):
            await heard
    assert waiting(gcp) == 1


async def test_a_lost_subscription_is_refused_and_that_of_a_removed_provider_is_over(
    gcp: GcpDouble, books: Books, migrated: Database
) -> None:
    gcp.cloud.pubsub.subscriptions.clear()
    async with listening(books) as heard:
        with pytest.raises(ApplicationError, match="Resource not found") as caught:
            await heard
    assert caught.value.type == errors.REQUEST_REFUSED
    with migrated.write() as session:
        session.get_one(tables.Provider, books.provider_id).status = "removing"
    async with listening(books) as heard:
        assert (await heard).is_over


async def test_a_worker_that_stops_leaves_a_pull_that_waits_at_once(
    gcp: GcpDouble, books: Books
) -> None:
    gcp.cloud.pubsub.pull_waits_s = 300.0
    async with listening(books) as heard:
        await eventually(lambda: gcp.cloud.pubsub.pulls > 0, "it listens")
        began = time.monotonic()
    assert heard.result() == NotificationsReceived()
    assert time.monotonic() - began < gcp.cloud.pubsub.pull_waits_s / 4


@pytest.mark.parametrize(
    ("method", "what"),
    [
        ("compute.instances.hostError", "its host has failed"),
        ("compute.instances.guestTerminate", "it has shut itself down"),
        ("v1.compute.instances.delete", "it was deleted by u@example.com"),
        ("beta.compute.instances.stop", "it was stopped by u@example.com"),
    ],
)
def test_the_words_of_an_end(method: str, what: str) -> None:
    data = json.dumps(entry("baseload-lea-1", method)).encode()
    told = read_notification(data, receipt="r", message_id="m")
    assert told.content is not None
    assert (told.machine_name, told.id, told.content.what) == (
        "baseload-lea-1",
        "qnwer3e38dfz",
        what,
    )
