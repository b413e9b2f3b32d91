"""Reconciliation at the start of a worker process: who is asked, and a database that is away."""

from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError
from temporalio.client import Client

from activities.db import tables
from activities.db.session import Database, database
from activities.leases.first_reconciliation import reconcile_all
from activities.settings import settings
from activities.temporal.client import set_client
from tests.activities.outbox.test_relay import signals_of
from tests.activities.placement.test_rental_market import add_marketplace
from tests.activities.providers.colab.rows import add_colab
from tests.activities.rows import add_payer, add_region


@pytest.fixture
def dialect() -> str:
    return "sqlite"


async def test_every_provider_whose_machines_cost_money_is_asked_and_no_other(
    migrated: Database, temporal_server: Client
) -> None:
    set_client(temporal_server)
    with migrated.write() as session:
        account = add_payer(session)
        ready, archived = (add_marketplace(session, account, name=name) for name in "ab")
        session.get_one(tables.Provider, archived.provider_id).status = "archived"
        others = [archived, add_colab(session, account), add_region(session, account)]
        asked, not_asked = ready.provider_id, [each.provider_id for each in others]
    for provider_id in (asked, *not_asked):
        await temporal_server.start_workflow(
            "ProviderLifecycle", id=f"provider/{provider_id}", task_queue="nobody"
        )
    assert await reconcile_all() == [asked]
    found = {each: await signals_of(temporal_server, f"provider/{each}") for each in not_asked}
    assert await signals_of(temporal_server, f"provider/{asked}") == ["reconcile"]
    assert set(map(tuple, found.values())) == {()}
    for provider_id in (asked, *not_asked):
        await temporal_server.get_workflow_handle(f"provider/{provider_id}").terminate()


async def test_a_worker_starts_though_its_database_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("BASELOAD_DATABASE_URL", f"sqlite:///{tmp_path}/none/here.db")
    settings.cache_clear()
    database.cache_clear()
    with pytest.raises(OperationalError), database().read() as session:
        session.connection()
    assert await reconcile_all() == []
    settings.cache_clear()
    database.cache_clear()
