"""The one database of this process, and all else that the code finds by itself, for one life.

The activities and the API find their database, settings, client, clock and chance in their modules.
One life at a time is present there; another one that is open waits, with its rows as bytes. The
database and its engines stay for the whole process, because SQLAlchemy keeps what it has compiled
with an engine, and compiling a life's statements takes a second.
"""

import os
import secrets
import sqlite3
import tempfile
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import time_machine
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sqlmodel import Session
from temporalio import activity

from activities import settings as settings_module
from activities.artifacts import contents as artifact_contents
from activities.billing import unsettled_jobs
from activities.datastores import checks as datastore_checks
from activities.db import ids
from activities.db import session as database_session
from activities.db.migrate import migrate
from activities.db.session import Database
from activities.federation import models as federated_models
from activities.federation import sealed_models
from activities.housekeeping import retention
from activities.jobs import run_specs
from activities.lifecycles import platform_events, reconciliation
from activities.lifecycles.kinds import KINDS
from activities.outbox import deliveries, dispatcher, relay, workflow_starts
from activities.placement import cloud_market, inventory, planning, queue, wake
from activities.providers import prices
from activities.secrets import sealing
from activities.secrets.region_keys import openssh
from activities.secrets.sealing import write_private
from activities.settings import Settings
from activities.temporal import client as client_module
from activities.temporal import singletons
from api.services import announcements, join_tokens
from tests.simulation.contracts import Outside, Temporal
from tests.simulation.rows_real.boundary import Boundary
from tests.simulation.rows_real.client import TemporalClient
from tests.simulation.rows_real.store import Store, WorldLogs
from tests.simulation.rows_real.virtual_loop import VirtualLoop
from workflows.rules.placement.cloud_market import CloudOffers
from workflows.rules.placement.inventory import Inventory

MASTER_KEY = "5e" * 32
HOME = Path(tempfile.gettempdir()) / f"baseload-simulation-{os.getuid()}"
"""A folder with the platform key alone, which checks of providers read."""
Place = tuple[ModuleType, str]
"""A module, and the name of one of its values."""


class WatchedDatabase(Database):
    """A database that says where a transaction begins to be written.

    SQLite's database in memory lets nobody read while somebody writes, as its files do. A reader
    inside of a transaction (`priced_catalogue` in `create_region`) reads on its connection.
    """

    boundary = Boundary()
    written = 0
    """How many transactions have been written, those that were rolled back too."""
    _writing: Session | None = None

    @contextmanager
    def write(self, serialised: str | None = None) -> Generator[Session, None, None]:
        self.boundary.commits()
        self.written += 1
        with super().write(serialised) as session:
            self._writing = session
            try:
                yield session
            finally:
                self._writing = None

    @contextmanager
    def read(self) -> Generator[Session, None, None]:
        if self._writing is None:
            with super().read() as session:
                yield session
            return
        with Session(self._writing.connection(), expire_on_commit=False) as session:
            yield session


class House:
    """What all lives of this process share; `present` is the life that is played now."""

    def __init__(self, process_id: int) -> None:
        # SQLite's database in memory that several connections of a process share.
        url = f"file:/rows-{process_id}?vfs=memdb"
        self.raw = sqlite3.connect(f"{url}&mode=rwc", uri=True, isolation_level=None)
        self.raw.row_factory = sqlite3.Row
        self.database = WatchedDatabase(f"sqlite:///{url}&uri=true")
        self.settings = Settings(
            home=HOME,
            secrets_key=MASTER_KEY,
            database_url=self.database.url,
            storage_url="memory://baseload-simulation",
        )
        key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(MASTER_KEY))
        write_private(self.settings.platform_key_path, openssh(key).decode())
        self.present: Tenant | None = None
        self._before: dict[Place, Any] = {}

    def enter(self, tenant: "Tenant") -> None:
        """Make a life the present one, whatever was before."""
        if self.present is tenant:
            return
        if self.present is not None:
            self.leave()
        _load(self.raw, tenant.content)
        self._before = {place: getattr(*place) for place in tenant.values}
        _set(tenant.values)
        _find(
            settings_module, "Settings", settings_module.settings, tenant.settings or self.settings
        )
        _find(database_session, "Database", database_session.database, self.database)
        self.database.boundary = tenant.boundary
        self.present = tenant

    def leave(self) -> None:
        """Give back to this process what it had before the present life; keep the life's rows."""
        tenant, self.present = self.present, None
        if tenant is None:
            return
        tenant.values = {place: getattr(*place) for place in tenant.values}
        _set(self._before)
        settings_module.settings.cache_clear()
        database_session.database.cache_clear()
        tenant.content = self.raw.serialize()


@lru_cache(maxsize=1)
def house_of(process_id: int) -> House:
    """The house of a process; a process that was forked does not use its parent's connections."""
    return House(process_id)


@lru_cache(maxsize=1)
def migrated() -> bytes:
    """A database with the newest schema and no rows, made by the migrations once in a process."""
    with tempfile.TemporaryDirectory(prefix="baseload-rows-") as folder:
        path = Path(folder) / "rows.db"
        migrate(f"sqlite:///{path}")
        connection = sqlite3.connect(path)
        connection.execute("PRAGMA journal_mode=DELETE")
        content: bytes = connection.serialize()
        connection.close()
    return content


@dataclass
class Tenant:
    """One life, and what it puts into the modules of this process while it is present."""

    temporal: Temporal
    outside: Outside
    content: bytes = field(default_factory=migrated)
    boundary: Boundary = field(default_factory=Boundary)
    values: dict[Place, Any] = field(default_factory=dict)
    settings: Settings | None = None
    """Its own; None: those of the house."""
    store: Store = field(init=False)

    def __post_init__(self) -> None:
        self.store = Store(self.outside)
        self.house = house_of(os.getpid())
        # It has no sockets, pipes and processes, for which asyncio's abstract loop has methods.
        self.loop = VirtualLoop(self.temporal, self.at_work, self.boundary)  # type: ignore[abstract]
        self.client = TemporalClient(self.temporal, self.boundary)
        self.boundary.killed = self.loop.kill
        self.values = _values_of(self)

    @contextmanager
    def at_work(self) -> Generator[None, None, None]:
        """This life is present, and the clock shows its virtual time."""
        self.house.enter(self)
        self.boundary.begins()
        with time_machine.travel(self.temporal.now(), tick=False):
            yield

    def leave(self) -> None:
        self.loop.close()
        if self.house.present is self:
            self.house.leave()


def _values_of(tenant: Tenant) -> dict[Place, Any]:
    """What the modules hold while a life is present: its own clients and chance, empty caches."""
    chance = Chance(Random(tenant.temporal.random.getrandbits(64)))
    store = tenant.store
    notes = Notes(tenant.temporal)
    began_at = tenant.temporal.now()
    now = tenant.temporal.now
    return {
        (client_module, "_client"): tenant.client,
        (client_module, "_loop"): tenant.loop,
        (workflow_starts, "_kinds"): {kind.noun.name: kind for kind in KINDS},
        # Chance and clocks.
        (ids, "secrets"): chance,
        (ids, "_last_ms"): 0,
        (sealing, "os"): chance,
        (sealed_models, "os"): chance,
        (join_tokens, "secrets"): chance,
        (reconciliation, "time"): Monotonic(now, began_at),
        (reconciliation, "_suspicion"): reconciliation.Suspicion(),
        (wake, "_waker"): wake.Waker(),
        # Heartbeats come from threads, and nothing lasts here.
        (planning, "beating_aside"): nullcontext,
        (retention, "beating_aside"): nullcontext,
        (artifact_contents, "beating_aside"): nullcontext,
        (federated_models, "beating_aside"): nullcontext,
        # The object store is the world's.
        (run_specs, "blob_store"): store.opened,
        (run_specs, "log_store"): WorldLogs(tenant.outside).opened,
        (run_specs, "seal_run_spec"): store.seal_run_spec,
        (datastore_checks, "seal_access"): store.seal_access,
        (datastore_checks, "forget_access"): store.forget_access,
        (retention, "blob_store"): store.opened,
        (artifact_contents, "blob_store"): store.opened,
        (federated_models, "blob_store"): store.opened,
        (federated_models, "_seal"): store.seal_model,
        (retention, "jobs_with_copies"): store.jobs_with_copies,
        # Machines of the world have no host key: they are believed to be who they say they are.
        (announcements, "_check_fingerprint"): _believe,
        # Caches by ids, which another life has as well.
        (inventory, "_facts"): {},
        (inventory, "_offers"): {},
        (inventory, "_last"): (None, ()),
        (inventory, "_inventory"): ((), Inventory(())),
        (cloud_market, "_offers"): {},
        (cloud_market, "_all"): ((), CloudOffers(())),
        (prices, "_priced"): {},
        (singletons, "DAILY_LOOPS"): (),
        # Lines of the log are lines of the life's log.
        **{(module, "log"): notes for module in _LOGGING},
        (activity, "logger"): notes,
    }


_LOGGING = (
    deliveries, dispatcher, platform_events, queue, relay, singletons, unsettled_jobs, wake,
)  # fmt: skip


class Chance:
    """Random numbers and bytes of a life, in place of the modules `secrets` and `os`."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def randbits(self, bits: int) -> int:
        return self._random.getrandbits(bits)

    def token_urlsafe(self, count: int) -> str:
        return urlsafe_b64encode(self._random.randbytes(count)).rstrip(b"=").decode()

    def urandom(self, count: int) -> bytes:
        return self._random.randbytes(count)

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name) if hasattr(os, name) else getattr(secrets, name)


@dataclass(frozen=True)
class Monotonic:
    """The monotonic clock of a life, in place of the module `time`."""

    now: Callable[[], datetime]
    began_at: datetime

    def monotonic(self) -> float:
        return (self.now() - self.began_at).total_seconds()

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


@dataclass(frozen=True)
class Notes:
    """A logger, of structlog or of the SDK, that writes into the life's own log."""

    temporal: Temporal

    def warning(self, message: str, *values: object, **named: object) -> None:
        words = message % values if values else message
        about = " ".join(f"{name}={value}" for name, value in named.items())
        self.temporal.note("rows", f"{words} {about}".strip())

    error = info = debug = warning


def _believe(_: object) -> None:
    """An announcement is taken as it is."""


def _set(values: Mapping[Place, Any]) -> None:
    for (module, name), value in values.items():
        setattr(module, name, value)


def _find(module: ModuleType, made_by: str, finder: Any, found: Any) -> None:
    """Let a cached function, which many modules have imported, find this object."""
    maker = getattr(module, made_by)
    finder.cache_clear()
    setattr(module, made_by, lambda *_: found)
    try:
        finder()
    finally:
        setattr(module, made_by, maker)


def _load(raw: sqlite3.Connection, content: bytes) -> None:
    """Replace all rows of the process's database."""
    source = sqlite3.connect(":memory:")
    source.deserialize(content)
    source.backup(raw)
    source.close()
