"""Costs by day and subject: the periods of each lease and of each charge add up to the whole."""

import random
from datetime import datetime, timedelta

import pytest

from activities.billing.charges import charges_by
from activities.billing.ledger import add_credits
from activities.billing.machine_costs import MachineCost, costs_by, costs_of_jobs
from activities.billing.periods import Cut, pieces, whole_days
from activities.billing.reversals import reverse
from activities.db import tables
from activities.db.session import Database
from tests.activities.billing.test_machine_costs import cost
from tests.activities.billing.test_statements import move
from tests.activities.cloud_rows import add_cloud_region, add_lease
from tests.activities.rows import NOW, add_job, add_node, add_payer, allocate
from workflows.contracts.statuses import NodeType
from workflows.rules.billing.metering import cumulative_microcredits

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
MARCH = whole_days((NOW - 10 * DAY, NOW + 10 * DAY))


def test_whole_days_reach_from_midnight_to_midnight() -> None:
    midnight = NOW.replace(hour=0)
    assert whole_days((NOW, NOW + HOUR)) == (midnight, midnight + DAY)
    assert whole_days((midnight, midnight + DAY)) == (midnight, midnight + DAY)


@pytest.mark.parametrize("cut", Cut)
def test_the_pieces_of_a_period_are_the_whole_period(cut: Cut) -> None:
    period = (NOW - 40 * DAY, NOW + 3 * DAY)
    found = list(pieces(period, cut))
    assert (found[0][0], found[-1][1]) == period
    assert [ends for _, ends in found[:-1]] == [begins for begins, _ in found[1:]]
    assert len(found) == {Cut.TOTAL: 1, Cut.DAY: 44, Cut.MONTH: 3}[cut]


def test_the_days_of_leases_add_up_to_what_each_has_cost(migrated: Database) -> None:
    dice = random.Random(3)
    wanted: dict[str, int] = {}
    with migrated.write() as session:
        account, other = add_payer(session, "acme"), add_payer(session, "other")
        regions = [add_cloud_region(session, account, zone, name=zone) for zone in "ab"]
        for number in range(40):
            region = dice.choice(regions)
            began_at = NOW - timedelta(seconds=dice.randrange(700_000))
            ended_at = began_at + timedelta(seconds=dice.randrange(500_000))
            lease = {
                "began_at": began_at,
                "ended_at": ended_at if dice.random() < 0.7 else None,
                "microcredits_per_hour": dice.choice((1, 359_999, 88_000_000)),
                "offer": {"price_is_estimate": number == 7},
                "earlier_microcredits": dice.choice((0, 12_345)),
            }
            add_lease(session, region, "nod-1", **lease)
            wanted[region.id] = wanted.get(region.id, 0) + cost(lease, NOW)
        add_lease(session, add_cloud_region(session, other, "c"), "nod-1", began_at=NOW - DAY,
                  microcredits_per_hour=1000)  # fmt: skip
    with migrated.read() as session:
        days = costs_by(session, account.id, "day", list(pieces(MARCH, Cut.DAY)), NOW)
        whole = list(pieces(MARCH, Cut.TOTAL))
        by_region = costs_by(session, account.id, "region", whole, NOW)
        by_provider = costs_by(session, account.id, "provider", whole, NOW)
    assert sum(each.microcredits for each in days.values()) == sum(wanted.values())
    assert {name: each.microcredits for name, each in by_region.items()} == wanted
    providers = {region.provider_id: wanted[region.id] for region in regions}
    assert {name: each.microcredits for name, each in by_provider.items()} == providers
    assert sorted(each.is_estimate for each in by_region.values()) == [False, True]


def test_a_day_costs_the_seconds_of_that_day(migrated: Database) -> None:
    with migrated.write() as session:
        account = add_payer(session)
        region = add_cloud_region(session, account)
        lease = {"began_at": NOW, "ended_at": NOW + 30 * HOUR, "microcredits_per_hour": 1_000_000}
        add_lease(session, region, "nod-1", **lease)
    with migrated.read() as session:
        days = list(pieces(MARCH, Cut.DAY))
        found = costs_by(session, account.id, "day", days, NOW + 9 * DAY)
    assert {day: each.microcredits for day, each in found.items()} == {
        "2026-03-01": 12_000_000, "2026-03-02": 18_000_000,
    }  # fmt: skip


def leased_job(
    database: Database, node_type: NodeType, ran: timedelta, **node: int
) -> tuple[tables.Job, tables.Lease]:
    """A job with one of four GPUs of a node, whose machine costs four credits an hour for a day."""
    with database.write() as session:
        account = add_payer(session)
        region = add_cloud_region(session, account)
        made = add_node(session, region).sqlmodel_update({"type": node_type.value, **node})
        job = add_job(session, account)
        held = allocate(session, job, made, 0)
        held.created_at, held.released_at = NOW + HOUR, NOW + HOUR + ran
        lease = add_lease(session, region, made.id, began_at=NOW, ended_at=NOW + DAY,
                          microcredits_per_hour=4_000_000)  # fmt: skip
        return job, lease


def costs(database: Database, *jobs: tables.Job, now: datetime) -> dict[str, MachineCost]:
    with database.read() as session:
        return costs_of_jobs(session, jobs, now)


def test_a_machine_that_is_leased_for_a_job_costs_it_all_its_seconds(migrated: Database) -> None:
    job, _ = leased_job(migrated, NodeType.EPHEMERAL, HOUR)
    price = 4_000_000
    for until, spent in ((NOW + 2 * DAY, 24 * price), (NOW + DAY / 2, 12 * price)):
        wanted = MachineCost(spent, microcredits_per_hour=price)
        assert costs(migrated, job, now=until) == {job.id: wanted}
    with migrated.read() as session:
        whole = list(pieces(MARCH, Cut.TOTAL))
        found = costs_by(session, job.account_id, "project", whole, NOW + 2 * DAY)
    assert found == {job.project_id: MachineCost(24 * 4_000_000)}


def test_a_leased_permanent_node_costs_a_job_its_share_of_the_time_and_the_gpus(
    migrated: Database,
) -> None:
    job, _ = leased_job(migrated, NodeType.PERMANENT, HOUR / 2)
    share = MachineCost(500_000, microcredits_per_hour=1_000_000)
    assert costs(migrated, job, now=NOW + DAY) == {job.id: share}
    with migrated.read() as session:
        whole = list(pieces(MARCH, Cut.TOTAL))
        found = costs_by(session, job.account_id, "project", whole, NOW + DAY)
    assert found == {"": MachineCost(96_000_000)}


def test_without_gpus_the_share_is_that_of_the_cpus(migrated: Database) -> None:
    job, _ = leased_job(migrated, NodeType.PERMANENT, HOUR, gpu_count=0, cpu_count=8)
    share = MachineCost(1_000_000, microcredits_per_hour=1_000_000)
    assert costs(migrated, job, now=NOW + DAY) == {job.id: share}


def test_the_price_of_a_job_is_that_of_its_newest_machine_and_the_cost_is_of_all(
    migrated: Database,
) -> None:
    job, lease = leased_job(migrated, NodeType.EPHEMERAL, HOUR)
    with migrated.write() as session:
        region = session.get_one(tables.Region, lease.region_id)
        node = add_node(session, region, "second").sqlmodel_update({"type": "ephemeral"})
        row = session.get_one(tables.Job, job.id)
        row.attempt = 2
        allocate(session, row, node, 0)
        add_lease(session, region, node.id, began_at=NOW, ended_at=NOW + HOUR,
                  microcredits_per_hour=2_500_000)  # fmt: skip
    found = costs(migrated, job, now=NOW + DAY)[job.id]
    assert found == MachineCost(96_000_000 + 2_500_000, microcredits_per_hour=2_500_000)


def test_a_price_of_a_list_makes_the_cost_of_a_job_an_estimate(migrated: Database) -> None:
    job, lease = leased_job(migrated, NodeType.EPHEMERAL, HOUR)
    with migrated.write() as session:
        row = session.get_one(tables.Lease, lease.id)
        row.microcredits_per_hour = None
        row.offer = {"microcredits_per_hour": 7, "price_is_estimate": True}
        row.earlier_microcredits = 100
    spent = 100 + cumulative_microcredits(7, 24 * 3600)
    assert costs(migrated, job, now=NOW + DAY) == {job.id: MachineCost(spent, True, 7)}


def test_what_another_account_has_leased_costs_a_job_nothing(migrated: Database) -> None:
    job, lease = leased_job(migrated, NodeType.EPHEMERAL, HOUR)
    with migrated.write() as session:
        other = add_payer(session, "other")
        session.get_one(tables.Lease, lease.id).account_id = other.id
    assert costs(migrated, job, now=NOW + DAY) == {}
    assert costs(migrated, now=NOW) == {}


def test_charges_are_added_up_without_credits_and_what_was_taken_back(migrated: Database) -> None:
    with migrated.write() as session:
        account = add_payer(session)
        given = add_credits(session, account, 1000, "first", NOW)
    first = move(migrated, account.id, -100, NOW, provider_id="prv-1", project_id="prj-1")
    move(migrated, account.id, -10, NOW + DAY, provider_id="prv-1")
    move(migrated, account.id, -1, NOW + DAY)
    move(migrated, account.id, -7, NOW - 30 * DAY)
    with migrated.write() as session:
        reverse(session, session.get_one(tables.LedgerTransaction, first), "why", NOW + 2 * DAY)
        reverse(session, given, "why", NOW + 2 * DAY)

    def by(key: str) -> dict[str, int]:
        with migrated.read() as session:
            return charges_by(session, account.id, key, MARCH)

    assert by("day") == {"2026-03-01": 100, "2026-03-02": 11, "2026-03-03": -100}
    assert by("provider") == {"prv-1": 10, "": 1}
    assert by("project") == {"prj-1": 0, "": 11}
    assert by("region") == {"": 11}
