"""A provider's whole life by its workflow, real activities and the double of each marketplace."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
from sqlmodel import select
from temporalio.client import Client
from temporalio.testing import ActivityEnvironment

from activities.db import tables
from activities.db.session import Database
from activities.lifecycles.dependents import find_dependents
from activities.outbox.relay import relay
from activities.outbox.requests import create
from activities.secrets.credentials import (
    CredentialsError,
    credentials_of,
    own_place,
    seal_credentials,
)
from activities.settings import settings
from activities.temporal.client import set_client
from tests.activities.placement.test_rental_market import add_marketplace
from tests.activities.rows import NOW, add_payer
from tests.doubles.runpod.double import API_KEY as RUNPOD_KEY
from tests.doubles.runpod.double import RunPodDouble
from tests.doubles.vastai.double import API_KEY as VASTAI_KEY
from tests.doubles.vastai.double import VastDouble
from tests.waiting import eventually
from workers.main import ROW_THREADS, cloud_workers, main_worker
from workers.serving import serving
from workers.sites import site_worker
from workflows.contracts import queues
from workflows.contracts.removals import Removal
from workflows.contracts.schedules import ReconciliationRequest
from workflows.effects.lifecycles import FindDependents
from workflows.providers.offer_refresh import OfferRefresh
from workflows.providers.provider_lifecycle import ProviderLifecycle


@dataclass(frozen=True)
class Marketplace:
    """A kind of provider, its double, a key that works, and the fewest offers of its market."""

    kind: str
    make: Callable[[], RunPodDouble | VastDouble]
    key: str
    offers: int


MARKETPLACES = (
    Marketplace("runpod", RunPodDouble, RUNPOD_KEY, 50),
    Marketplace("vastai", VastDouble, VASTAI_KEY, 5),
)


@pytest.fixture
def dialect() -> str:
    return "sqlite"


@pytest.fixture(params=MARKETPLACES, ids=lambda each: each.kind)
def marketplace(request: pytest.FixtureRequest) -> Marketplace:
    found: Marketplace = request.param
    return found


@pytest.fixture
def double(marketplace: Marketplace, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    with marketplace.make() as made:
        for name, value in made.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("BASELOAD_SECRETS_KEY", "11" * 32)
        settings.cache_clear()
        yield made
        assert not made.violations, "\n".join(made.violations)
    settings.cache_clear()


@pytest.fixture
def provider(marketplace: Marketplace, double: Any, migrated: Database) -> tables.Provider:
    """A new provider whose key works, with its region."""
    with migrated.write() as session:
        account = add_payer(session)
        region = add_marketplace(session, account)
        region.provider_kind = marketplace.kind
        found = session.get_one(tables.Provider, region.provider_id)
        found.kind = marketplace.kind
        found.status = region.status = "new"
        place = own_place(marketplace.kind, found.id)
        found.credentials = seal_credentials(session, account.id, place, marketplace.key, NOW)
    return found


def row(database: Database, provider: tables.Provider) -> tables.Provider:
    with database.read() as session:
        return session.get_one(tables.Provider, provider.id)


def region_of(database: Database, provider: tables.Provider) -> tables.Region:
    with database.read() as session:
        of_it = tables.Region.provider_id == provider.id
        return session.exec(select(tables.Region).where(of_it)).one()


def events(database: Database) -> list[str]:
    with database.read() as session:
        return [event.type for event in session.exec(select(tables.EventRow)).all()]


async def begun(client: Client, database: Database, provider: tables.Provider) -> None:
    """Have the workflows of the provider and of its region started, as the API does."""
    with database.write() as session:
        requests = [
            create(session, session.get_one(tables.Provider, provider.id)),
            create(session, session.get_one(tables.Region, region_of(database, provider).id)),
        ]
    await relay(client, requests)


async def test_a_provider_is_checked_has_its_offers_read_fails_with_its_key_and_is_removed(
    marketplace: Marketplace,
    double: Any,
    migrated: Database,
    temporal_server: Client,
    provider: tables.Provider,
) -> None:
    set_client(temporal_server)

    def has(status: str) -> bool:
        return row(migrated, provider).status == status

    with ThreadPoolExecutor(ROW_THREADS) as threads:
        workers = (main_worker(temporal_server, threads), site_worker(temporal_server, queues.SITE))
        async with serving(*workers, *cloud_workers(temporal_server)):
            await begun(temporal_server, migrated, provider)
            await eventually(lambda: has("ready"), "it is ready", 60)
            assert [check["name"] for check in row(migrated, provider).checks] == ["key"]
            refreshed = await temporal_server.execute_workflow(
                OfferRefresh.run, ReconciliationRequest(), id="offers", task_queue=queues.MAIN
            )
            with migrated.read() as session:
                offers = session.exec(select(tables.RentalOfferRow)).all()
            handle = temporal_server.get_workflow_handle(f"provider/{provider.id}")
            keys = double.keys.copy()
            double.keys.clear()
            await handle.signal(ProviderLifecycle.recheck)
            await eventually(lambda: has("failed"), "it fails", 60)
            assert "the key is not accepted" in str(row(migrated, provider).status_reason)
            double.keys.update(keys)
            await handle.signal(ProviderLifecycle.recheck)
            await eventually(lambda: has("ready"), "it is ready again", 60)
            await handle.signal(ProviderLifecycle.remove, Removal())
            await eventually(lambda: has("archived"), "it is removed", 120)
    assert refreshed.kept == len(offers) > marketplace.offers
    assert {offer.provider_id for offer in offers} == {provider.id}
    assert "provider.notifications-lost" not in events(migrated), "it sends none"
    assert region_of(migrated, provider).status == "archived", "with its provider"
    with pytest.raises(CredentialsError):
        credentials_of(provider.id)
    assert double.meter.charges == []


def test_the_implied_region_does_not_keep_its_provider_from_being_removed(
    migrated: Database, provider: tables.Provider
) -> None:
    found = ActivityEnvironment().run(find_dependents, FindDependents(resource_id=provider.id))
    assert len(found.ids) == 1
    assert found.own_ids == found.ids
