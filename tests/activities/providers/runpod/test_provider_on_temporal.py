"""A provider's whole life by its workflow, real activities and RunPod's double."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlmodel import select
from temporalio.client import Client
from temporalio.testing import ActivityEnvironment
from temporalio.worker import Worker

from activities.db import tables
from activities.db.session import Database
from activities.lifecycles.dependents import find_dependents
from activities.registry.main import MAIN
from activities.secrets.credentials import own_place, seal_credentials
from activities.temporal.client import set_client
from tests.activities.placement.test_rental_market import add_marketplace
from tests.activities.rows import NOW, add_payer
from tests.doubles.runpod.double import API_KEY, RunPodDouble
from tests.waiting import eventually
from workers.main import cloud_workers
from workers.registry import workflow_runner
from workers.serving import serving
from workflows.contracts import queues
from workflows.contracts.providers import ProviderRequest
from workflows.contracts.schedules import ReconciliationRequest
from workflows.contracts.statuses import ProviderKind
from workflows.effects.lifecycles import FindDependents
from workflows.providers.offer_refresh import OfferRefresh
from workflows.providers.provider_lifecycle import ProviderLifecycle


@pytest.fixture
def dialect() -> str:
    return "sqlite"


@pytest.fixture
def provider(runpod: RunPodDouble, migrated: Database) -> tables.Provider:
    """A new provider whose key works, with its region."""
    with migrated.write() as session:
        account = add_payer(session)
        region = add_marketplace(session, account)
        found = session.get_one(tables.Provider, region.provider_id)
        found.status = "new"
        place = own_place("runpod", found.id)
        found.credentials = seal_credentials(session, account.id, place, API_KEY, NOW)
    return found


def row(database: Database, provider: tables.Provider) -> tables.Provider:
    with database.read() as session:
        return session.get_one(tables.Provider, provider.id)


def events(database: Database) -> list[str]:
    with database.read() as session:
        return [event.type for event in session.exec(select(tables.EventRow)).all()]


async def test_a_provider_is_checked_has_its_offers_read_and_fails_with_its_key(
    runpod: RunPodDouble,
    migrated: Database,
    temporal_server: Client,
    provider: tables.Provider,
) -> None:
    set_client(temporal_server)
    request = ProviderRequest(
        provider_id=provider.id, account_id=provider.account_id, kind=ProviderKind.RUNPOD
    )
    with ThreadPoolExecutor(4) as threads:
        async with (
            Worker(
                temporal_server,
                task_queue=queues.MAIN,
                workflows=[ProviderLifecycle, OfferRefresh],
                activities=MAIN,
                activity_executor=threads,
                workflow_runner=workflow_runner(),
            ),
            serving(*cloud_workers(temporal_server)),
        ):
            handle = await temporal_server.start_workflow(
                ProviderLifecycle.run, request, id=f"provider/{provider.id}",
                task_queue=queues.MAIN,
            )  # fmt: skip
            await eventually(lambda: row(migrated, provider).status == "ready", "it is ready", 60)
            assert [check["name"] for check in row(migrated, provider).checks] == ["key"]
            refreshed = await temporal_server.execute_workflow(
                OfferRefresh.run, ReconciliationRequest(), id="offers", task_queue=queues.MAIN
            )
            runpod.keys.clear()
            await handle.signal(ProviderLifecycle.recheck)
            await eventually(lambda: row(migrated, provider).status == "failed", "it fails", 60)
            await handle.terminate("enough")
    assert refreshed.kept > 50
    with migrated.read() as session:
        offers = session.exec(select(tables.RentalOfferRow)).all()
    assert {offer.provider_id for offer in offers} == {provider.id}
    assert "the key is not accepted" in str(row(migrated, provider).status_reason)
    assert "provider.notifications-lost" not in events(migrated), "it sends none"


def test_the_implied_region_does_not_keep_its_provider_from_being_removed(
    migrated: Database, provider: tables.Provider
) -> None:
    found = ActivityEnvironment().run(find_dependents, FindDependents(resource_id=provider.id))
    assert len(found.ids) == 1
    assert found.own_ids == found.ids
