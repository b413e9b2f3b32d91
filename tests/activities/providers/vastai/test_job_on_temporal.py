"""A job that no node has room for, from its submission to its end, with Vast.ai's double: real
workflows, activities, SSH and processes on an instance that is made for it and taken away."""

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlmodel import col, select
from temporalio.client import Client

from activities.accounts.bootstrap import bootstrap
from activities.billing.ledger import add_credits
from activities.db import tables
from activities.db.session import Database
from activities.providers.rental_offers import keep_offers
from activities.providers.vastai import session as sessions
from activities.providers.vastai.catalogue import vastai_offers
from activities.providers.vastai.limits import Limiter
from activities.secrets.credentials import own_place, seal_credentials
from activities.settings import settings
from tests.activities.cloud_rows import ephemeral_nodes
from tests.activities.placement.rows import add_waiting_job
from tests.activities.placement.test_burst_nodes import round_of_planning
from tests.activities.placement.test_rental_market import add_marketplace
from tests.activities.providers.runpod.test_job_on_temporal import (
    at_work,
    distrusted,
    shunned,
    submitted,
)
from tests.doubles.rented.faults import FaultKind
from tests.doubles.vastai.double import API_KEY, VastDouble
from tests.doubles.vastai.market import Offer
from tests.waiting import eventually
from workflows.contracts.machines import MachineClaim, RentalOffer

SECONDS_OF_THE_CLOUD_IN_ONE = 100.0
ASK = 7000006
"""The only A100 of 40 GB on the double's market."""


@pytest.fixture
def dialect() -> str:
    return "sqlite"


@pytest.fixture
def double(make_vastai: Callable[..., VastDouble], monkeypatch: pytest.MonkeyPatch) -> VastDouble:
    """A marketplace whose machines can be logged in to, and the pauses in its own time."""
    monkeypatch.setenv("BASELOAD_NODE_NETWORKS", "127.0.0.0/8")
    monkeypatch.setenv("BASELOAD_JOB_NETWORK_WALL", "false")
    made = make_vastai(rate=SECONDS_OF_THE_CLOUD_IN_ONE)
    limiter = Limiter(
        made.clock.now, lambda seconds: time.sleep(seconds / SECONDS_OF_THE_CLOUD_IN_ONE)
    )
    monkeypatch.setattr(sessions, "limiter_of", lambda endpoint, key: limiter)
    settings.cache_clear()
    return made


@pytest.fixture
def region(double: VastDouble, migrated: Database, node_root: Path) -> tables.Region:
    """The implied region of a provider of an account in credit, with the offers of the moment."""
    bootstrap()
    now = datetime.now(UTC)
    with migrated.write() as session:
        account = session.exec(select(tables.Account)).one()
        add_credits(session, account, 1_000_000, "first", now)
        found = add_marketplace(session, account)
        found.node_root, found.provider_kind = str(node_root), "vastai"
        provider = session.get_one(tables.Provider, found.provider_id)
        provider.kind = "vastai"
        place = own_place("vastai", provider.id)
        provider.credentials = seal_credentials(session, account.id, place, API_KEY, now)
    offers = read_anew(found)
    with migrated.write() as session:
        keep_offers(session, found.provider_id, offers, now)
    return found


def read_anew(region: tables.Region) -> tuple[RentalOffer, ...]:
    """The offers of this moment, as when a minute has passed."""
    sessions.searches_of.cache_clear()
    return vastai_offers(region.provider_id)


def is_over(double: VastDouble, database: Database, *more: str) -> bool:
    """Whether nothing is left. more: the ends of leases that have had no machine."""
    with database.read() as session:
        nodes = session.exec(select(tables.Node.status)).all()
        leases = session.exec(select(tables.Lease.status)).all()
    is_left = double.instances.by_id
    return not is_left and {*nodes, *leases} == {"archived", "released", *more}


async def test_a_job_runs_on_an_instance_that_is_destroyed_and_paid_for_after(
    double: VastDouble, region: tables.Region, migrated: Database, temporal_server: Client
) -> None:
    double.fault(FaultKind.LOST_REPLY, "asks.accept")
    async with at_work(temporal_server):
        job_id = await submitted(temporal_server, migrated)
        handle = temporal_server.get_workflow_handle(f"job/{job_id}")
        ended = await asyncio.wait_for(handle.result(), 120)
        await eventually(lambda: is_over(double, migrated), "nothing is left of its machine")
    assert ended["status"] == "finished", ended
    assert double.instances.made == 1
    assert double.meter.running() == []
    with migrated.read() as session:
        (lease,) = session.exec(select(tables.Lease)).all()
        (node,) = session.exec(select(tables.Node)).all()
    assert node.region_id == region.id
    disk_gb = double.meter.charges[0].price / (0.15 / 720 * 1_000_000)
    price = 710_000 + disk_gb * 0.15 / 720 * 1_000_000
    assert lease.microcredits_per_hour == pytest.approx(price, abs=2)
    assert lease.began_at is not None
    charged_from = double.meter.charges[0].began_at
    assert lease.began_at.timestamp() == pytest.approx(charged_from, abs=1), "with its storage"


async def test_hosts_that_lie_are_left_before_any_work_and_not_rented_from_again(
    double: VastDouble, region: tables.Region, migrated: Database, temporal_server: Client
) -> None:
    now = datetime.now(UTC)
    double.market.add(Offer(7000020, "A100 SXM4", 1, 40960, 0.51, machine_id=31))
    double.market.add(Offer(7000021, "A100 SXM4", 1, 40960, 0.52, machine_id=32, cpu_ram=10**9))
    double.fault(FaultKind.OTHER_MACHINE, "asks.accept")
    offers = read_anew(region)
    with migrated.write() as session:
        keep_offers(session, region.provider_id, offers, now)
    async with at_work(temporal_server):
        job_id = await submitted(temporal_server, migrated)
        handle = temporal_server.get_workflow_handle(f"job/{job_id}")
        ended = await asyncio.wait_for(handle.result(), 120)
        await eventually(lambda: is_over(double, migrated), "nothing is left of the machines")
    assert ended["status"] == "finished", ended
    assert double.instances.made == 3
    assert double.meter.running() == []
    other, smaller = sorted(distrusted(migrated).values())
    assert "host 31" in other
    assert "was created with A100, has RTX3060" in other
    assert "host 32" in smaller
    assert "GiB of memory, has" in smaller
    week = {scope for scope, left in shunned(migrated).items() if left > timedelta(days=6)}
    assert week == {"host/31", "host/32"}
    double.market.add(Offer(7000022, "A100 SXM4", 1, 40960, 0.53, machine_id=31))
    offers = read_anew(region)
    with migrated.write() as session:
        keep_offers(session, region.provider_id, offers, now)
        job = add_waiting_job(session, session.exec(select(tables.Account)).one())
    round_of_planning()
    with migrated.read() as session:
        (node,) = (each for each in ephemeral_nodes(session) if each.name.startswith(job.id))
    claim = MachineClaim.model_validate(node.machine)
    assert claim.offers[0].provider_offer_id == str(ASK), "and not the new ask of host 31"


async def test_an_ask_that_is_gone_by_then_is_not_accepted_and_the_next_one_is(
    double: VastDouble, region: tables.Region, migrated: Database, temporal_server: Client
) -> None:
    double.market.add(Offer(8000000, "A100 SXM4", 1, 40960, 0.9, disk_space=4000.0))
    offers = read_anew(region)
    with migrated.write() as session:
        before = datetime.now(UTC) - timedelta(seconds=2 * settings().rental_offer_valid_s)
        keep_offers(session, region.provider_id, offers, before)
    double.market.offers[ASK].renter = 1
    sessions.searches_of.cache_clear()
    async with at_work(temporal_server):
        job_id = await submitted(temporal_server, migrated)
        handle = temporal_server.get_workflow_handle(f"job/{job_id}")
        ended = await asyncio.wait_for(handle.result(), 120)
        await eventually(
            lambda: is_over(double, migrated, "refused"), "nothing is left of its machine"
        )
    assert ended["status"] == "finished", ended
    assert double.calls.count("asks.accept") == 1, "of the ask that was there"
    with migrated.read() as session:
        shortages = session.exec(select(tables.ShortageRow)).all()
        known = session.exec(select(tables.RentalOfferRow.offer_id)).all()
        lease = session.exec(select(tables.Lease).where(col(tables.Lease.host).is_not(None))).one()
    assert ["is not offered any more" in each.reason for each in shortages] == [True]
    assert not any(offer_id.endswith(f"/{ASK}") for offer_id in known)
    assert lease.offer is not None
    assert lease.offer["provider_offer_id"] == "8000000"
