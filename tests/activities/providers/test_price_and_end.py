"""What a rented machine costs, at every kind: never more than the job's cap, as long as its meter
runs and no longer, and while a job has its machine retained.

All of it happens on workers that are started once for a kind, in the marketplace's own time.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from sqlmodel import select
from temporalio.client import Client

from activities.db import tables
from activities.db.session import Database
from tests.activities.providers import markets
from tests.activities.providers.local.conftest import folder
from tests.activities.providers.markets import OPENERS, Market, Stage, market, staged
from tests.doubles.rented.faults import FaultKind
from tests.doubles.runpod.fixtures import make_runpod
from tests.doubles.vastai.fixtures import make_vastai
from tests.waiting import eventually
from workflows.contracts.billing import hourly
from workflows.contracts.machines import MachineOffer
from workflows.contracts.statuses import LeaseStatus, ProviderKind

__all__ = ["folder", "make_runpod", "make_vastai", "market"]
KINDS = pytest.mark.parametrize("market", list(OPENERS), indirect=True)
MARKETPLACES = pytest.mark.parametrize(
    "market", [ProviderKind.RUNPOD, ProviderKind.VASTAI], indirect=True
)
AGREE_WITHIN_S = 1.0
LISTED_S = 5.0
"""How long a marketplace lists a machine whose deletion it has accepted."""
LIMIT_S = 300.0
LITTLE = 1000
"""Microcredits an hour for which nothing is to be had."""
DURATIONS = {
    ProviderKind.RUNPOD: ("provisioning_s", "starting_s"),
    ProviderKind.VASTAI: ("created_s", "loading_s", "running_s"),
}


@dataclass
class Seen:
    """What one kind has shown."""

    market: Market
    job: tables.Job
    retained: Mapping[str, Any]
    """The lease of the retained machine, as people are shown it."""
    ended: tables.Lease
    """The same after it was killed."""
    waiting: str = ""
    """Why the job waits for which every offer costs too much."""
    created: int = 0
    """How many machines were created for that."""
    dearer: list[tables.Lease] = field(default_factory=list)
    """The leases of the job whose first machine cost more than its offer."""
    refused_nodes: set[str] = field(default_factory=set)
    """The types of the events of the first one's node."""


_seen: dict[str, Seen] = {}


@pytest.fixture
def dialect() -> str:
    return "sqlite"


@pytest.fixture(autouse=True)
def own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The marketplaces' seconds are those of the platform, so that the two can be compared."""
    monkeypatch.setattr(markets, "SECONDS_OF_THE_CLOUD_IN_ONE", 1.0)


@pytest.fixture
async def seen(own_time: None, market: Market, migrated: Database, temporal_server: Client) -> Seen:
    if market.kind not in _seen:
        if market.settle is not None:
            quick = dict.fromkeys(DURATIONS[market.kind], 0.1)
            market.settle({"durations": quick, "gone_lag_s": LISTED_S})
        async with staged(market, migrated, temporal_server) as stage:
            found = await _retained(stage)
            if market.fault is not None:
                await _without_offer(stage, found)
                await _dearer(stage, found)
        _seen[market.kind] = found
    return _seen[market.kind]


async def _retained(stage: Stage) -> Seen:
    job_id = await stage.submitted("echo done", auto_terminate=False)
    await stage.end_of(job_id, LIMIT_S)
    (lease,) = stage.leases_of(job_id)
    assert stage.market.has(lease.name)
    shown = await stage.person.get(f"/v1/leases/{lease.id}")
    answer = await stage.person.call("DELETE", f"/v1/leases/{lease.id}")
    assert answer.status_code == 202, answer.text
    await _is_over(stage, job_id)
    (ended,) = stage.leases_of(job_id)
    return Seen(stage.market, stage.job(job_id), shown.json(), ended)


async def _without_offer(stage: Stage, found: Seen) -> None:
    before = _machines(stage.market)
    job_id = await stage.submitted("echo done", price_cap_microcredits_per_hour=LITTLE)

    async def says_why() -> bool:
        shown = await stage.person.get(f"/v1/jobs/{job_id}")
        found.waiting = str(shown.json()["placement_refusals"])
        return "asked at most" in found.waiting

    await eventually(says_why, "it waits")
    found.created = _machines(stage.market) - before
    assert stage.leases_of(job_id) == []
    await stage.person.made(f"/v1/jobs/{job_id}/cancel", None)
    await stage.end_of(job_id, LIMIT_S)


async def _dearer(stage: Stage, found: Seen) -> None:
    assert stage.market.fault is not None
    stage.market.fault(FaultKind.DEARER, stage.market.creation, factor=3.0)
    offer = MachineOffer.model_validate(found.ended.offer)
    cap = 2 * offer.microcredits_per_hour
    job_id = await stage.submitted("echo done", price_cap_microcredits_per_hour=cap)
    await stage.end_of(job_id, LIMIT_S)
    await _is_over(stage, job_id)

    def all_over() -> bool:
        with stage.database.read() as session:
            leases = session.exec(select(tables.Lease).order_by(tables.Lease.id)).all()
        found.dearer = [each for each in leases if each.price_cap_microcredits_per_hour == cap]
        return all(LeaseStatus(each.status).is_final for each in found.dearer)

    await eventually(all_over, "no lease of the job is live")
    first = found.dearer[0].holder_id
    found.refused_nodes = {kind for kind, _ in stage.events(first)}


async def _is_over(stage: Stage, job_id: str) -> None:
    def gone() -> bool:
        return all(
            each.status == LeaseStatus.RELEASED and not stage.market.has(each.name)
            for each in stage.leases_of(job_id)
        )

    await eventually(gone, f"{job_id}: nothing is left of its machine")


def _machines(market: Market) -> int:
    assert market.meter is not None
    return len({each.machine_id for each in market.meter.charges})


def _metered_s(market: Market, lease: tables.Lease) -> float:
    assert market.meter is not None
    charges = [each for each in market.meter.charges if each.name.startswith(f"{lease.name}.")]
    ends = [each.ended_at for each in charges if each.ended_at is not None]
    assert len(ends) == len(charges) > 0, "the meter has ended"
    return max(ends) - min(each.began_at for each in charges)


def _leased_s(lease: tables.Lease) -> float:
    assert lease.began_at is not None
    assert lease.ended_at is not None
    return (lease.ended_at - lease.began_at).total_seconds()


@KINDS
async def test_a_retained_machine_stays_with_its_price_until_a_person_kills_it(
    seen: Seen, market: Market
) -> None:
    assert seen.job.status == "finished"
    assert (seen.retained["status"], seen.retained["ended_at"]) == ("ready", None)
    assert (seen.retained["microcredits_per_hour"] > 0) == (market.settle is not None)
    assert str(seen.ended.status_reason).startswith("killed by ")


@MARKETPLACES
async def test_a_lease_lasts_as_long_as_the_meter_however_long_the_machine_is_listed(
    seen: Seen,
) -> None:
    leased_s, metered_s = _leased_s(seen.ended), _metered_s(seen.market, seen.ended)
    assert leased_s == pytest.approx(metered_s, abs=AGREE_WITHIN_S)
    assert seen.ended.updated_at.timestamp() - _ended_at(seen.ended) > LISTED_S / 2


@MARKETPLACES
async def test_no_machine_is_created_when_every_offer_costs_more_than_the_cap(seen: Seen) -> None:
    assert seen.created == 0
    assert "credits an hour, asked at most 0.001" in seen.waiting


@MARKETPLACES
async def test_a_machine_that_costs_more_than_its_offer_ends_before_any_work(seen: Seen) -> None:
    first, *others = seen.dearer
    cap, price = first.price_cap_microcredits_per_hour, first.microcredits_per_hour
    assert cap is not None
    assert price is not None
    assert price > cap
    assert first.status == LeaseStatus.REFUSED
    assert f"costs {hourly(price)}, the cap is {hourly(cap)}" in str(first.status_reason)
    assert not seen.refused_nodes & {"node.preparing", "node.active"}
    assert [each.status for each in others] == [LeaseStatus.RELEASED]
    metered = _metered_s(seen.market, first) * price / 3600
    assert _cost(first) == pytest.approx(metered, abs=AGREE_WITHIN_S * price / 3600)


def _ended_at(lease: tables.Lease) -> float:
    assert lease.ended_at is not None
    return lease.ended_at.timestamp()


def _cost(lease: tables.Lease) -> float:
    assert lease.microcredits_per_hour is not None
    return lease.earlier_microcredits + _leased_s(lease) * lease.microcredits_per_hour / 3600
