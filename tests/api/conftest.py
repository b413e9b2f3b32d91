"""A site for each test: SQLite, and PostgreSQL too where a module says so."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
from fastapi import FastAPI

from activities.db.session import Database
from activities.outbox.dispatcher import OutboxDispatcher
from activities.secrets.platform_key import make_platform_key
from activities.secrets.sealing import make_master_key
from activities.settings import settings
from activities.storage.blobs import blob_store
from activities.storage.logs import log_store
from api.app import create_app
from api.audit_notes import Reads, Refusals
from api.rate_limits import Rate
from api.services.invitations import ATTEMPTS_PER_MINUTE
from tests.api.http_server import Person, Site


@pytest.fixture(params=["sqlite"])
def dialect(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def stores(migrated: Database) -> Iterator[None]:
    """The master key, and no store remembered of another test."""
    make_master_key(settings().master_key_path)
    make_platform_key(settings().platform_key_path)
    for store in (blob_store, log_store):
        store.cache_clear()
    yield
    for store in (blob_store, log_store):
        store.cache_clear()


@pytest.fixture(scope="session")
def app() -> FastAPI:
    """One application for all tests: making it takes longer than most of them."""
    return create_app(OutboxDispatcher(_never), _never)


async def _never(*_: object) -> None:
    raise AssertionError("each test brings its own")


@pytest.fixture
async def site(app: FastAPI, migrated: Database, stores: None) -> AsyncIterator[Site]:
    built = Site(migrated, app)
    app.state.outbox_dispatcher.relay = built.relay
    app.state.check_temporal = built.check_temporal
    app.state.stop = asyncio.Event()
    app.state.refusals, app.state.reads = Refusals(), Reads()
    app.state.request_rate = Rate(settings().requests_per_minute)
    app.state.account_request_rate = Rate(settings().account_requests_per_minute)
    app.state.own_request_rate = Rate(settings().requests_per_minute)
    app.state.acceptance_rate = Rate(ATTEMPTS_PER_MINUTE)
    app.state.announcement_rate = Rate(settings().announcements_per_minute)
    yield built
    await built.settled()


@pytest.fixture
def ada(site: Site) -> Person:
    return site.account("ada")


@pytest.fixture
def bob(site: Site) -> Person:
    return site.account("bob")


@pytest.fixture
def admin(site: Site) -> Person:
    return site.account("admin", administrator=True)
