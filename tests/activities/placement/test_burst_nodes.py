"""Jobs that fit nothing that is there: nodes are made for them, or they are told why not."""

from datetime import UTC, datetime
from typing import Any

import pytest
from sqlmodel import Session, col, select

from activities.billing.ledger import add_credits
from activities.db import tables
from activities.db.session import Database
from activities.placement import planning
from activities.placement.planning import plan_placements
from activities.placement.refusals import refusals_of_jobs
from activities.placement.withdrawals import withdraw_allocations
from activities.settings import settings
from tests.activities.cloud_rows import (
    add_cloud_region,
    add_lease,
    add_shortage,
    ephemeral_nodes,
)
from tests.activities.placement.rows import add_gpu_node, add_waiting_job, assert_books_agree, live
from tests.activities.rows import NOW, add_payer, add_region
from workflows.contracts.billing import UsageRates
from workflows.contracts.job_submission import SubmittedEnvironment, SubmittedPlacement
from workflows.contracts.machines import MachineClaim
from workflows.contracts.placement import SpotPolicy
from workflows.effects.placement import PlanPlacements, WithdrawAllocations

BOOT_DISK = 60 * 100_000 // 730
"""Of the machine of a job that asks for 10 GB, microcredits an hour."""


def payer(session: Session) -> tables.Account:
    account = add_payer(session)
    add_credits(session, account, 1_000_000, "first", NOW)
    return account


def round_of_planning() -> int:
    return plan_placements(PlanPlacements()).placed


def refusals(session: Session, job: tables.Job) -> list[dict[str, Any]]:
    return refusals_of_jobs(session, [session.get_one(tables.Job, job.id)])[job.id]


def test_a_job_that_no_node_has_room_for_gets_a_node_made_for_it_once(
    migrated: Database,
) -> None:
    with migrated.write() as session:
        account = payer(session)
        add_gpu_node(session, add_region(session, account), gpus=1)
        region = add_cloud_region(session, account)
        first, second = (add_waiting_job(session, account) for _ in range(2))
    assert round_of_planning() == 2
    assert round_of_planning() == 0
    with migrated.read() as session:
        (node,) = ephemeral_nodes(session)
        owned, made = sorted(live(session), key=lambda place: place.node_id == node.id)
        assert {owned.job_id, made.job_id} == {first.id, second.id}
        assert (made.cpu_count, made.gpu_indices, made.notified_at) == (12, [0], None)
        assert (node.region_id, node.status, node.host) == (region.id, "new", None)
        claim = MachineClaim.model_validate(node.machine)
        assert [offer.zone for offer in claim.offers] == [f"us-central1-{zone}" for zone in "abcf"]
        assert {(offer.machine_type, offer.spot) for offer in claim.offers} == {
            ("a2-highgpu-1g", True)
        }
        assert claim.spec.disk_size_gb == 60
        job = {"project": account.personal_project_id, "job": made.job_id}
        assert claim.spec.tags == {"region": region.id, **job}
        (start,) = session.exec(select(tables.OutboxRow))
        assert (start.resource_id, start.verb) == (node.id, "start")
        (told,) = refusals(session, session.get_one(tables.Job, made.job_id))
        assert told["code"] == "being-made"
        assert "spot a2-highgpu-1g (1×A100) in us-central1-a, else us-central1-b" in told["detail"]
        rates = session.get_one(tables.Job, made.job_id).rates
        assert rates is not None
        assert rates["0"]["microcredits_per_gpu_hour"] == 250_000
        assert_books_agree(session)


def test_the_cpus_of_a_machine_made_for_a_job_are_paid_to_its_cloud_alone(
    migrated: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twelve of them, at a credit an hour each, would make it dearer than the job allows."""
    monkeypatch.setenv("BASELOAD_CPU_CORE_HOUR_MICROCREDITS", "1000000")
    settings.cache_clear()
    with migrated.write() as session:
        account = payer(session)
        add_cloud_region(session, account)
        job = add_waiting_job(session, account)
    assert round_of_planning() == 1
    with migrated.read() as session:
        rates = session.get_one(tables.Job, job.id).rates
        assert rates is not None
        assert UsageRates.model_validate(rates["0"]).microcredits_per_hour == 250_000


def test_a_job_without_gpus_gets_the_cheapest_machine_for_it_with_podman_for_its_image(
    migrated: Database,
) -> None:
    with migrated.write() as session:
        account = payer(session)
        add_cloud_region(session, account)
        job = add_waiting_job(
            session, account, gpus=0, environment=SubmittedEnvironment(image="alpine:3")
        )
    assert round_of_planning() == 1
    with migrated.read() as session:
        (node,) = ephemeral_nodes(session)
        assert (node.gpu_type, node.gpu_count, node.cpu_count) == (None, 0, 2)
        (place,) = live(session)
        assert (place.cpu_count, place.gpu_indices) == (2, [])
        claim = MachineClaim.model_validate(node.machine)
        assert {(offer.machine_type, offer.spot) for offer in claim.offers} == {
            ("e2-standard-2", True)
        }
        assert {offer.microcredits_per_hour for offer in claim.offers} == {29_396 + BOOT_DISK}
        assert claim.price_cap_microcredits_per_hour is None
        assert claim.spec.containers
        rates = session.get_one(tables.Job, job.id).rates
        assert rates is not None
        assert UsageRates.model_validate(rates["0"]).microcredits_per_hour == 0


def test_each_worker_gets_a_node_of_its_own_in_one_region(migrated: Database) -> None:
    with migrated.write() as session:
        account = payer(session)
        add_cloud_region(session, account)
        add_cloud_region(session, account, "us-east1")
        job = add_waiting_job(session, account, workers=3)
    assert round_of_planning() == 1
    with migrated.read() as session:
        nodes = ephemeral_nodes(session)
        assert [node.name for node in nodes] == [f"{job.id}-{worker}-1" for worker in range(3)]
        assert len({node.region_id for node in nodes}) == 1
        assert [place.node_id for place in live(session)] == [node.id for node in nodes]
        assert_books_agree(session)


def test_nothing_is_written_where_a_region_is_not_healthy_any_more(
    migrated: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    with migrated.write() as session:
        account = payer(session)
        region = add_cloud_region(session, account)
        job = add_waiting_job(session, account)
    planned = planning._plan

    def meanwhile(*given: Any) -> Any:
        made = planned(*given)
        with migrated.write() as session:
            session.get_one(tables.Region, region.id).status = "removing"
        return made

    with monkeypatch.context() as changed:
        changed.setattr(planning, "_plan", meanwhile)
        assert round_of_planning() == 0
    with migrated.read() as session:
        assert ephemeral_nodes(session) == []
        assert live(session) == []
        assert session.exec(select(tables.OutboxRow)).all() == []
        assert [told["code"] for told in refusals(session, job)] == ["no-offers"]


@pytest.mark.parametrize(
    ("changed", "where"),
    [
        ({"status": "failed"}, tables.Provider),
        ({"status": "offline"}, tables.Region),
        ({"account_id": "other"}, tables.Region),
    ],
)
def test_only_a_healthy_region_of_a_ready_provider_of_ones_own_is_used(
    migrated: Database, changed: dict[str, str], where: type[tables.LifecycleRow]
) -> None:
    with migrated.write() as session:
        account, other = payer(session), add_payer(session, "other")
        region = add_cloud_region(session, account)
        rows: dict[type[tables.LifecycleRow], str] = {
            tables.Provider: region.provider_id,
            tables.Region: region.id,
        }
        values = {name: other.id if value == "other" else value for name, value in changed.items()}
        session.get_one(where, rows[where]).sqlmodel_update(values)
        add_waiting_job(session, account)
    assert round_of_planning() == 0
    with migrated.read() as session:
        assert ephemeral_nodes(session) == []


def test_zones_that_have_none_are_left_out_and_a_region_without_any_is_named(
    migrated: Database,
) -> None:
    with migrated.write() as session:
        account = payer(session)
        region = add_cloud_region(session, account, "asia-northeast1")
        scope = "asia-northeast1-a/a2-highgpu-1g+1xA100/spot"
        add_shortage(session, region, scope, "out of stock")
        add_waiting_job(session, account)
    assert round_of_planning() == 1
    with migrated.write() as session:
        (node,) = ephemeral_nodes(session)
        claim = MachineClaim.model_validate(node.machine)
        assert [offer.zone for offer in claim.offers] == ["asia-northeast1-c"]
        scope = "asia-northeast1-c/a2-highgpu-1g+1xA100/spot"
        add_shortage(session, region, scope, "none here either")
        needs_spot = SubmittedPlacement(spot=SpotPolicy.REQUIRED)
        job = add_waiting_job(session, account, placement=needs_spot)
    assert round_of_planning() == 0
    with migrated.read() as session:
        codes = {told["code"]: told["detail"] for told in refusals(session, job)}
        assert codes.keys() == {"shortage", "spot"}
        assert "spot a2-highgpu-1g (1×A100): out of stock; not asked again" in codes["shortage"]


def test_a_machine_that_came_to_nothing_is_not_asked_for_again_at_once(
    migrated: Database,
) -> None:
    with migrated.write() as session:
        account = payer(session)
        add_cloud_region(session, account, "asia-northeast1")
        job = add_waiting_job(session, account)
    assert round_of_planning() == 1
    with migrated.read() as session:
        (first,) = ephemeral_nodes(session)
    reason = "image: not found"
    withdraw_allocations(WithdrawAllocations(node_id=first.id, reason=reason, at=datetime.now(UTC)))
    with migrated.read() as session:
        assert live(session) == []
        assert [told["detail"] for told in refusals(session, job)] == [reason]
    assert round_of_planning() == 1
    with migrated.read() as session:
        (second,) = [node for node in ephemeral_nodes(session) if node.id != first.id]
        claim = MachineClaim.model_validate(second.machine)
        assert {(offer.machine_type, offer.spot) for offer in claim.offers} == {
            ("a2-highgpu-1g", False)
        }


@pytest.mark.parametrize(("policy", "fails"), [("fail", True), ("reroute", False)])
def test_a_job_out_of_quota_fails_or_goes_elsewhere_as_its_project_says(
    migrated: Database, policy: str, fails: bool
) -> None:
    with migrated.write() as session:
        account = payer(session)
        project = session.get_one(tables.Project, account.personal_project_id)
        project.on_quota_exhausted = policy
        cheapest = add_cloud_region(session, account, "europe-west4")
        elsewhere = add_cloud_region(session, account)
        reason = "Quota 'PREEMPTIBLE_NVIDIA_A100_GPUS' exceeded."
        add_shortage(session, cheapest, "europe-west4-b/a2-highgpu-1g+1xA100/spot", reason)
        job = add_waiting_job(session, account)
    assert round_of_planning() == (0 if fails else 1)
    assert round_of_planning() == 0
    with migrated.read() as session:
        asked = session.exec(select(tables.OutboxRow).where(tables.OutboxRow.verb == "cancel"))
        ends = [request.argument for request in asked]
        if fails:
            (end,) = ends
            assert end is not None
            assert (end["code"], reason in end["reason"]) == ("quota-exhausted", True)
            assert refusals(session, job)[0]["code"] == "quota"
            assert ephemeral_nodes(session) == []
        else:
            (node,) = ephemeral_nodes(session)
            assert (ends, node.region_id) == ([], elsewhere.id)


def test_a_provider_is_preferred_and_its_fee_waived_while_its_credits_last(
    migrated: Database,
) -> None:
    given: dict[str, Any] = {"preferred_credits_microcredits": 1_000_000, "fee_waived": True}
    with migrated.write() as session:
        account = payer(session)
        add_gpu_node(session, add_region(session, account))
        region = add_cloud_region(session, account, **given)
        before = add_waiting_job(session, account)
    assert round_of_planning() == 1
    with migrated.write() as session:
        (node,) = ephemeral_nodes(session)
        rates = session.get_one(tables.Job, before.id).rates
        assert rates is not None
        assert rates["0"]["microcredits_per_gpu_hour"] == 0
        hour = {"began_at": NOW, "ended_at": NOW.replace(hour=NOW.hour + 1)}
        add_lease(session, region, node.id, microcredits_per_hour=1_000_000, **hour)
        after = add_waiting_job(session, account)
    assert round_of_planning() == 1
    with migrated.read() as session:
        assert len(ephemeral_nodes(session)) == 1
        (place,) = [place for place in live(session) if place.job_id == after.id]
        assert place.node_id != node.id


def test_no_other_job_is_placed_on_a_node_that_was_made_for_one(migrated: Database) -> None:
    with migrated.write() as session:
        account = payer(session)
        add_cloud_region(session, account)
        add_waiting_job(session, account)
    assert round_of_planning() == 1
    with migrated.write() as session:
        (node,) = ephemeral_nodes(session)
        there = {"status": "active", "host": "10.0.0.1", "cpu_count": 96, "gpu_count": 8}
        session.get_one(tables.Node, node.id).sqlmodel_update(there)
        add_waiting_job(session, account, gpus=0)
    assert round_of_planning() == 1
    with migrated.read() as session:
        assert len(ephemeral_nodes(session)) == 2
        held = select(tables.Allocation.job_id).where(col(tables.Allocation.node_id) == node.id)
        assert len(session.exec(held).all()) == 1
