"""A provider's whole life by its workflow, real activities and Google's double; and no key told."""

import asyncio
import json
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlmodel import select
from temporalio.client import Client, WorkflowHandle
from temporalio.worker import Worker

from activities.db import tables
from activities.db.session import Database
from activities.registry.main import MAIN
from activities.secrets.credentials import own_place, seal_credentials
from activities.settings import settings
from activities.temporal.client import set_client
from tests.activities.providers.gcp.keys import key_file
from tests.activities.rows import NOW, add_payer
from tests.doubles.gcp.double import GcpDouble
from tests.waiting import eventually
from workers.main import cloud_workers, notifications_worker
from workers.registry import workflow_runner
from workers.serving import serving
from workflows.contracts import queues
from workflows.contracts.providers import ProviderReport, ProviderRequest
from workflows.contracts.removals import Removal
from workflows.contracts.statuses import ProviderKind
from workflows.providers.notifications import ProviderNotifications
from workflows.providers.provider_lifecycle import ProviderLifecycle

PROVIDER = "prv-life"


@pytest.fixture
def dialect() -> str:
    return "sqlite"


@pytest.fixture
def account_id(gcp: GcpDouble, migrated: Database, monkeypatch: pytest.MonkeyPatch) -> str:
    """An account with a provider whose key works."""
    monkeypatch.setenv("BASELOAD_SECRETS_KEY", "cd" * 32)
    settings.cache_clear()
    with migrated.write() as session:
        account = add_payer(session)
        zone = own_place("gcp", PROVIDER)
        reference = seal_credentials(session, account.id, zone, key_file(gcp), NOW)
        session.add(
            tables.Provider(
                id=PROVIDER,
                account_id=account.id,
                name="cloud",
                kind="gcp",
                checks=[],
                credentials=reference,
                created_at=NOW,
                updated_at=NOW,
            )
        )
        return account.id


def events(database: Database) -> dict[str, str]:
    with database.read() as session:
        found = session.exec(select(tables.EventRow)).all()
        return {row.type: row.message for row in found if row.resource_id == PROVIDER}


def lose_subscription(gcp: GcpDouble) -> None:
    """As a person removes it in the console."""
    with gcp.cloud.pubsub.changed:
        gcp.cloud.pubsub.subscriptions.clear()
        gcp.cloud.pubsub.changed.notify_all()


def row(database: Database) -> tables.Provider:
    with database.read() as session:
        return session.get_one(tables.Provider, PROVIDER)


async def begun(
    client: Client, account_id: str
) -> WorkflowHandle[ProviderLifecycle, ProviderReport]:
    request = ProviderRequest(provider_id=PROVIDER, account_id=account_id, kind=ProviderKind.GCP)
    return await client.start_workflow(
        ProviderLifecycle.run, request, id=f"provider/{PROVIDER}", task_queue=queues.MAIN
    )


async def test_a_provider_lives_and_its_key_is_told_nowhere(
    gcp: GcpDouble,
    migrated: Database,
    temporal_server: Client,
    account_id: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    set_client(temporal_server)
    with ThreadPoolExecutor(4) as threads:
        async with (
            Worker(
                temporal_server,
                task_queue=queues.MAIN,
                workflows=[ProviderLifecycle, ProviderNotifications],
                activities=MAIN,
                activity_executor=threads,
                workflow_runner=workflow_runner(),
            ),
            serving(notifications_worker(temporal_server), *cloud_workers(temporal_server)),
        ):
            handle = await begun(temporal_server, account_id)
            await eventually(lambda: row(migrated).status == "ready", "it is ready", 60)
            ready = row(migrated)
            assert {check["status"] for check in ready.checks} == {"passed"}
            assert len(ready.resources or ()) == 7
            assert len(gcp.cloud.sinks) == 1

            await eventually(lambda: gcp.cloud.pubsub.pulls > 0, "its news is listened to", 60)
            lose_subscription(gcp)
            await eventually(
                lambda: "provider.notifications-lost" in events(migrated), "it says so", 60
            )
            await temporal_server.get_workflow_handle(
                f"provider/{PROVIDER}/notifications"
            ).terminate("enough")
            await handle.signal(ProviderLifecycle.remove, Removal())
            report = await asyncio.wait_for(handle.result(), 60)
    assert report.status == "archived"
    assert gcp.cloud.sinks == {}
    assert gcp.cloud.pubsub.topics == {}
    with migrated.read() as session:
        assert session.get(tables.StoredSecret, own_place("gcp", PROVIDER)) is None
    history = (await handle.fetch_history()).to_json()
    secret_words = secrets_of(gcp)
    for told in (history, caplog.text, json.dumps(ready.model_dump(mode="json"))):
        assert not [word for word in secret_words if word in told]


def secrets_of(gcp: GcpDouble) -> list[str]:
    """Ids of keys, which are in no answer of Google's, and what every private key begins with."""
    accounts: Any = gcp.cloud.credentials.accounts.values()
    ids = [key_id for account in accounts for key_id in account.keys]
    assert ids
    return ["PRIVATE KEY", *ids]
