"""Rented kinds for tests on Temporal: a provider with offers, its double, workers of all queues.

What differs by kind is one `Market`. A further kind is one more function in `OPENERS`.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlmodel import select
from temporalio.client import Client

from activities.accounts.bootstrap import bootstrap
from activities.billing.ledger import add_credits
from activities.db import tables
from activities.db.session import Database
from activities.outbox.dispatcher import OutboxDispatcher
from activities.outbox.relay import relay
from activities.outbox.requests import create
from activities.providers.local.records import NODE_ROOT, machines_in
from activities.providers.registry import kind_of
from activities.providers.rental_offers import keep_offers
from activities.providers.vastai import session as vastai_sessions
from activities.providers.vastai.limits import Limiter
from activities.secrets.credentials import own_place, seal_credentials
from activities.settings import settings
from api.app import create_app
from tests.activities.placement.rows import add_waiting_job
from tests.activities.placement.test_rental_market import add_marketplace
from tests.activities.providers.runpod.test_job_on_temporal import at_work
from tests.api.http_server import Person, Site
from tests.doubles.rented import plain_boot
from tests.doubles.rented.faults import Fault
from tests.doubles.rented.meter import Meter
from tests.doubles.rented.plain_boot import PlainBoot
from tests.doubles.runpod.double import API_KEY as RUNPOD_KEY
from tests.doubles.runpod.settings import settle as settle_runpod
from tests.doubles.vastai.double import API_KEY as VASTAI_KEY
from tests.doubles.vastai.market import Offer
from tests.doubles.vastai.settings import settle as settle_vastai
from workflows.contracts import queues
from workflows.contracts.job_submission import (
    SubmittedEnvironment,
    SubmittedPlacement,
    SubmittedSafety,
)
from workflows.contracts.providers import ProviderRequest
from workflows.contracts.statuses import ProviderKind, ProviderStatus
from workflows.providers.provider_lifecycle import ProviderLifecycle

SECONDS_OF_THE_CLOUD_IN_ONE = 100.0
IMAGE = SubmittedEnvironment(image="runpod/base:1.0")
ALIKE = 5
"""How many more machines than one a marketplace has that any of the jobs may get."""


@dataclass(frozen=True)
class Market:
    """One kind, and how its own side is seen."""

    kind: ProviderKind
    there: Callable[[], Collection[str]]
    """The names of the machines at the provider, as itself has them."""
    job: Mapping[str, Any] = field(default_factory=lambda: {"environment": IMAGE})
    """What a job asks for to be placed there."""
    key: str = ""
    at_once: int = ALIKE
    """The number of machines that the provider has at once."""
    fault: Callable[..., Fault] | None = None
    """Scripts a fault of its double, whose call for a new machine is `creation`."""
    creation: str = ""
    settle: Callable[[dict[str, Any]], None] | None = None
    """Changes the settings of its double."""
    meter: Meter | None = None
    """What its double charges."""

    def has(self, machine_name: str) -> bool:
        return any(each.partition(".")[0] == machine_name for each in self.there())


def _boot(request: pytest.FixtureRequest) -> PlainBoot:
    """Machines with a folder of the agent of their own, because they share this host."""
    environment = plain_boot._environment

    def with_root(box: plain_boot._Box) -> dict[str, str]:
        return {**environment(box), NODE_ROOT: f"{box.folder}/node"}

    request.getfixturevalue("monkeypatch").setattr(plain_boot, "_environment", with_root)
    found = PlainBoot()
    found.folder.chmod(0o755)
    return found


def _runpod(request: pytest.FixtureRequest) -> Market:
    boot = _boot(request)
    double = request.getfixturevalue("make_runpod")(rate=SECONDS_OF_THE_CLOUD_IN_ONE, boot=boot)
    pods = double.pods.by_id
    return Market(
        ProviderKind.RUNPOD,
        lambda: [pod.name for pod in tuple(pods.values())],
        key=RUNPOD_KEY,
        fault=double.fault,
        creation="pods.create",
        settle=partial(settle_runpod, double),
        meter=double.meter,
    )


def _vastai(request: pytest.FixtureRequest) -> Market:
    boot = _boot(request)
    double = request.getfixturevalue("make_vastai")(rate=SECONDS_OF_THE_CLOUD_IN_ONE, boot=boot)
    for number in range(ALIKE):
        double.market.add(Offer(7000100 + number, "A100 SXM4", 1, 40960, 0.72 + number / 100))
    limiter = Limiter(
        double.clock.now, lambda seconds: time.sleep(seconds / SECONDS_OF_THE_CLOUD_IN_ONE)
    )
    patch = request.getfixturevalue("monkeypatch")
    patch.setattr(vastai_sessions, "limiter_of", lambda endpoint, key: limiter)
    instances = double.instances.by_id
    return Market(
        ProviderKind.VASTAI,
        lambda: [str(each.label) for each in tuple(instances.values())],
        key=VASTAI_KEY,
        fault=double.fault,
        creation="asks.accept",
        settle=partial(settle_vastai, double),
        meter=double.meter,
    )


def _local(request: pytest.FixtureRequest) -> Market:
    folder: Path = request.getfixturevalue("folder")
    patch = request.getfixturevalue("monkeypatch")
    patch.setenv("BASELOAD_TRUSTED_LOCAL", "true")
    patch.setenv("BASELOAD_LOCAL_FOLDER", str(folder))
    return Market(
        ProviderKind.LOCAL,
        lambda: [asked.machine_name for _, asked in machines_in(folder)],
        job={"gpus": 0, "placement": SubmittedPlacement(providers=("local",))},
        at_once=1,
    )


OPENERS: Mapping[str, Callable[[pytest.FixtureRequest], Market]] = {
    ProviderKind.RUNPOD: _runpod,
    ProviderKind.VASTAI: _vastai,
    ProviderKind.LOCAL: _local,
}


@dataclass(frozen=True)
class Stage:
    """Workers at work, the workflow of a provider, and the API over HTTP."""

    market: Market
    client: Client
    database: Database
    region: tables.Region
    person: Person

    async def submitted(self, command: str, **safety: Any) -> str:
        """The id of a job for the market, begun as the API begins it."""
        with self.database.write() as session:
            account = session.exec(select(tables.Account)).one()
            job = add_waiting_job(
                session,
                account,
                created_at=datetime.now(UTC),
                safety=SubmittedSafety(**safety),
                **self.market.job,
            )
            job.status, job.spec = "new", {**job.spec, "workers": [{"command": command}]}
            request = create(session, job)
        await relay(self.client, [request])
        return job.id

    async def end_of(self, job_id: str, limit_s: float = 120) -> dict[str, Any]:
        handle = self.client.get_workflow_handle(f"job/{job_id}")
        found: dict[str, Any] = await asyncio.wait_for(handle.result(), limit_s)
        return found

    def job(self, job_id: str) -> tables.Job:
        with self.database.read() as session:
            return session.get_one(tables.Job, job_id)

    def leases_of(self, job_id: str) -> list[tables.Lease]:
        """The leases of the job's machines, in the order in which they were made."""
        with self.database.read() as session:
            query = (
                select(tables.Lease)
                .join(tables.Allocation, tables.Allocation.node_id == tables.Lease.holder_id)  # type: ignore[arg-type]
                .where(tables.Allocation.job_id == job_id)
                .order_by(tables.Lease.id)
            )
            return list({lease.id: lease for lease in session.exec(query)}.values())

    def events(self, resource_id: str) -> list[tuple[str, str]]:
        """The types and messages of a resource's events, in order."""
        with self.database.read() as session:
            query = select(tables.EventRow).where(tables.EventRow.resource_id == resource_id)
            rows = sorted(session.exec(query), key=lambda row: (row.sequence, row.index))
            return [(row.type, row.message) for row in rows]


def enabled(database: Database, market: Market) -> tables.Region:
    """The implied region of a ready provider of an account in credit, with its offers."""
    bootstrap()
    now = datetime.now(UTC)
    with database.write() as session:
        account = session.exec(select(tables.Account)).one()
        add_credits(session, account, 1_000_000, "first", now)
        region = add_marketplace(session, account)
        region.provider_kind = market.kind
        provider = session.get_one(tables.Provider, region.provider_id)
        provider.kind = market.kind
        if market.key:
            place = own_place(market.kind, provider.id)
            provider.credentials = seal_credentials(session, account.id, place, market.key, now)
    kind = kind_of(market.kind)
    offers = kind.required("offers", kind.offers)(region.provider_id)
    with database.write() as session:
        keep_offers(session, region.provider_id, offers, now)
    return region


@pytest.fixture
def market(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Market]:
    """The market of the kind that the test is about, with machines that can be logged in to."""
    monkeypatch.setenv("BASELOAD_SECRETS_KEY", "11" * 32)
    monkeypatch.setenv("BASELOAD_NODE_NETWORKS", "127.0.0.0/8")
    monkeypatch.setenv("BASELOAD_JOB_NETWORK_WALL", "false")
    found = OPENERS[request.param](request)
    settings.cache_clear()
    yield found
    settings.cache_clear()


@asynccontextmanager
async def staged(market: Market, database: Database, client: Client) -> AsyncIterator[Stage]:
    region = enabled(database, market)
    async with at_work(client):
        request = ProviderRequest(
            provider_id=region.provider_id,
            account_id=region.account_id,
            kind=market.kind,
            resumed_status=ProviderStatus.READY,
        )
        provider = await client.start_workflow(
            ProviderLifecycle.run, request, id=f"provider/{region.provider_id}",
            task_queue=queues.MAIN,
        )  # fmt: skip
        dispatcher = OutboxDispatcher(lambda ids: relay(client, ids))
        site = Site(database, create_app(dispatcher, client.service_client.check_health))
        yield Stage(market, client, database, region, _person(site))
        await dispatcher.settled(10)
        await provider.terminate("enough")


def _person(site: Site) -> Person:
    """The owner of the account, with a key that may do everything."""
    (account,) = site.rows(tables.Account)
    user = site.rows(tables.User, account_id=account.id)[0]
    return Person(site, account.id, user.id, account.personal_project_id, "").with_key()
