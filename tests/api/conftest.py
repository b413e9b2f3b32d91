"""A site for each test: SQLite, and PostgreSQL too where a module says so."""

from collections.abc import AsyncIterator, Iterator

import pytest

from activities.db.session import Database
from activities.secrets import make_master_key
from activities.settings import settings
from activities.storage.blobs import blob_store
from activities.storage.logs import log_store
from api.app import create_app
from tests.api.site import Person, Site


@pytest.fixture(params=["sqlite"])
def dialect(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def stores(migrated: Database) -> Iterator[None]:
    """The master key, and no store remembered of another test."""
    make_master_key(settings().master_key_path)
    for store in (blob_store, log_store):
        store.cache_clear()
    yield
    for store in (blob_store, log_store):
        store.cache_clear()


@pytest.fixture
async def site(migrated: Database, stores: None) -> AsyncIterator[Site]:
    built = Site(migrated)
    built.app = create_app(built.hand_over, built.check_temporal)
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
