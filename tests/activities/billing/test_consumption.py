"""Consumption: each consumer's seconds and microcredits, which are those that were posted."""

from datetime import datetime, timedelta

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as how
from hypothesis import strategies as st
from sqlmodel import Session, select

from activities.billing.consumption import Consumption, consumption_of
from activities.billing.periods import Cut, Period
from activities.billing.usage import post_worker_usage
from activities.db import tables
from activities.db.ids import new_id
from activities.db.session import Database
from tests.activities.cloud_rows import add_cloud_region
from tests.activities.rows import NOW, add_job, add_node, add_payer, add_region, allocate
from workflows.contracts.billing import UsageRates, WorkerUsage

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
EVER = (NOW - 100 * DAY, NOW + 100 * DAY)
RATES = UsageRates(gpu_count=2, microcredits_per_gpu_hour=250_001).model_dump(mode="json")


def used(
    session: Session, job: tables.Job, seconds: int, since: datetime = NOW, gpus: bool = True
) -> None:
    """The first worker of a job has run so long."""
    job.status, job.rates = "running", {"0": RATES if gpus else UsageRates().model_dump()}
    session.flush()
    usage = WorkerUsage(job_id=job.id, worker=0, attempt=1, started_at=since, through_s=seconds)
    post_worker_usage(session, usage)


def consumed(
    database: Database, account: tables.Account, period: Period = EVER, cut: Cut = Cut.TOTAL
) -> list[Consumption]:
    with database.read() as session:
        return consumption_of(session, account.id, period, cut, 1000)


def test_jobs_of_ones_own_count_by_project_also_when_they_cost_nothing(migrated: Database) -> None:
    with migrated.write() as session:
        account = add_payer(session)
        node = add_node(session, add_region(session, account))
        for gpu, gpus in enumerate((True, False)):
            job = add_job(session, account)
            allocate(session, job, node, gpu)
            used(session, job, 3600, gpus=gpus)
    [found] = consumed(migrated, account)
    assert (found.consumer_id, found.project_id, found.kind) == (
        account.id, account.personal_project_id, "own",
    )  # fmt: skip
    assert (found.job_count, found.seconds, found.gpu_seconds, found.microcredits) == (
        2, 7200, 7200, 500_002,
    )  # fmt: skip


def test_the_owner_of_a_machine_sees_who_used_it_and_not_for_which_project(
    migrated: Database,
) -> None:
    with migrated.write() as session:
        owner, customer = add_payer(session, "owner"), add_payer(session, "customer")
        job = add_job(session, customer)
        allocate(session, job, add_node(session, add_region(session, owner)), 0)
        used(session, job, 3600)
        nobody = add_payer(session, "nobody")
    [seen] = consumed(migrated, owner)
    assert (seen.consumer_id, seen.project_id, seen.kind) == (customer.id, None, "public")
    [own] = consumed(migrated, customer)
    assert (own.project_id, own.kind) == (customer.personal_project_id, "public")
    assert (seen.seconds, seen.microcredits) == (own.seconds, own.microcredits) == (3600, 500_002)
    assert consumed(migrated, nobody) == []


def test_machines_of_ones_own_cloud_are_rented(migrated: Database) -> None:
    with migrated.write() as session:
        account = add_payer(session)
        job = add_job(session, account)
        allocate(session, job, add_node(session, add_cloud_region(session, account)), 0)
        used(session, job, 10)
    assert [each.kind for each in consumed(migrated, account)] == ["rented"]


def test_the_owner_of_a_model_sees_each_account_that_used_it(migrated: Database) -> None:
    with migrated.write() as session:
        owner, creator = add_payer(session, "owner"), add_payer(session, "creator")
        model = tables.Model(
            id=new_id("mod"), account_id=creator.id, project_id=creator.personal_project_id,
            name="cats", status="ready", source={}, creator_user_id="usr-1",
            creator_account_id=creator.id, created_at=NOW, updated_at=NOW,
        )  # fmt: skip
        session.add(model)
        session.flush()
        job = add_job(session, owner)
        job.creator_account_id = creator.id
        session.add(tables.ArtifactUse(job_id=job.id, artifact_id=model.id, role="model"))
        used(session, job, 60)
        used(session, add_job(session, owner), 60)
    [seen] = consumed(migrated, creator)
    assert (seen.model_id, seen.consumer_id, seen.kind, seen.job_count) == (
        model.id, owner.id, "federated", 1,
    )  # fmt: skip
    assert seen.project_id is None, "it is another account's"
    assert sorted(each.kind for each in consumed(migrated, owner)) == ["federated", "own"]


@how(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.lists(st.tuples(st.integers(-200, 200), st.integers(1, 400_000)), min_size=1, max_size=5),
    st.sampled_from(Cut),
)
def test_the_periods_of_runs_add_up_to_what_is_posted(
    migrated: Database, runs: list[tuple[int, int]], cut: Cut
) -> None:
    with migrated.write() as session:
        account = add_payer(session, new_id("acme"))
        for hours, seconds in runs:
            job = add_job(session, account)
            job.created_at = NOW - 50 * DAY
            used(session, job, seconds, NOW + hours * HOUR)
        meters = session.exec(
            select(tables.UsageMeter).where(tables.UsageMeter.payer_id == account.id)
        ).all()
    found = consumed(migrated, account, cut=cut)
    assert sum(each.seconds for each in found) == sum(meter.posted_s for meter in meters)
    assert sum(each.microcredits for each in found) == sum(
        meter.posted_microcredits for meter in meters
    )
    split = NOW + timedelta(seconds=12_345)
    halves = [*consumed(migrated, account, (EVER[0], split)),
              *consumed(migrated, account, (split, EVER[1]))]  # fmt: skip
    assert sum(each.microcredits for each in halves) == sum(each.microcredits for each in found)


@pytest.mark.parametrize(("cut", "begins"), [(Cut.DAY, ["2026-03-01", "2026-03-02"]),
                                             (Cut.MONTH, ["2026-03-01"])])  # fmt: skip
def test_a_run_counts_in_each_piece_of_the_period_that_it_ran_in(
    migrated: Database, cut: Cut, begins: list[str]
) -> None:
    with migrated.write() as session:
        account = add_payer(session)
        used(session, add_job(session, account), 20 * 3600)
    found = consumed(migrated, account, (NOW - HOUR, NOW + 3 * DAY), cut)
    assert [each.begins_at.date().isoformat() for each in found] == begins
    assert sum(each.seconds for each in found) == 20 * 3600
    assert found[0].seconds == (12 if cut is Cut.DAY else 20) * 3600
