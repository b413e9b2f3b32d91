"""Placing jobs over real databases: what is reserved, what is said, what is never done twice."""

import os
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from sqlmodel import Session

from activities.billing.ledger import Entry, add_credits, post
from activities.billing.payers import credits_name
from activities.db import tables
from activities.db.session import Database
from activities.placement.allocations import ContendedError, placed_of, release_allocations, reserve
from activities.placement.inventory import held, node_offers
from activities.placement.planning import find_placement
from activities.placement.queue import waiting_queue
from tests.activities.placement.rows import (
    add_gpu_node,
    add_waiting_job,
    assert_books_agree,
    live,
    refusals,
    round_of,
    statements,
)
from tests.activities.rows import GIB, NOW, add_payer
from workflows.contracts.billing import TransactionKind
from workflows.contracts.job_submission import SubmittedSafety
from workflows.contracts.placement import Demand, PlanningRound
from workflows.effects.jobs import FindPlacement
from workflows.rules.placement.planner import PlanningContext, plan
from workflows.rules.placement.ranking import rank

CHECKOUT = Path(__file__).parents[3]


def test_a_job_is_reserved_whole_and_its_rates_are_fixed(
    migrated: Database, place: tuple[tables.Account, tables.Region]
) -> None:
    account, region = place
    with migrated.write() as session:
        first = add_gpu_node(session, region, "n1", gpus=2)
        second = add_gpu_node(session, region, "n2", gpus=1)
        job = add_waiting_job(session, account, gpus=1, workers=3)
    assert round_of() == PlanningRound(placed=1, waiting=0, more=False)
    with migrated.read() as session:
        held = [(a.worker, a.node_id, a.gpu_indices, a.cpu_count) for a in live(session)]
        rates = session.get_one(tables.Job, job.id).rates
        assert_books_agree(session)
    assert held == [(0, first.id, [0], 2), (1, first.id, [1], 2), (2, second.id, [0], 2)]
    assert rates is not None
    assert sorted(rates) == ["0", "1", "2"]
    assert rates["0"]["microcredits_per_gpu_hour"] == 250_000
    assert rates["0"]["cpu_count"] == 2


def test_a_job_that_does_not_fit_holds_nothing_and_is_told_why(
    migrated: Database, place: tuple[tables.Account, tables.Region]
) -> None:
    account, region = place
    with migrated.write() as session:
        add_gpu_node(session, region, "n1", gpus=2)
        job = add_waiting_job(session, account, gpus=1, workers=3)
    assert round_of() == PlanningRound(placed=0, waiting=1, more=False)
    with migrated.read() as session:
        assert live(session) == []
        assert_books_agree(session)
    assert refusals(migrated, job) == [
        ("workers", "node n1: asked 3 workers of 1×A100, 2 fit here and too few elsewhere")
    ]


def test_a_job_that_costs_waits_for_credits_and_one_that_does_not_is_placed(
    migrated: Database, place: tuple[tables.Account, tables.Region]
) -> None:
    account, region = place
    with migrated.write() as session:
        add_gpu_node(session, region, "n1", gpus=2)
        _spend_all(session, account)
        job = add_waiting_job(session, account, gpus=2)
        free = add_waiting_job(session, account, gpus=0)
    assert round_of() == PlanningRound(placed=1, waiting=1, more=False)
    with migrated.read() as session:
        assert [held.job_id for held in live(session)] == [free.id]
    detail = "node n1: the job costs 0.5 credits an hour, and its payer has none left: add some"
    assert refusals(migrated, job) == [("credits", detail)]
    with migrated.write() as session:
        add_credits(session, account, 1, "second", NOW)
    assert round_of().placed == 1


def test_the_credits_that_count_are_those_of_the_account_that_pays(
    migrated: Database, place: tuple[tables.Account, tables.Region]
) -> None:
    account, region = place
    with migrated.write() as session:
        add_gpu_node(session, region)
        payer = add_payer(session, "payer")
        session.get_one(tables.Account, account.id).billing_account_id = payer.id
        job = add_waiting_job(session, account)
    assert round_of().placed == 0
    assert [code for code, _ in refusals(migrated, job)] == ["credits"]
    with migrated.write() as session:
        add_credits(session, payer, 1, "payer", NOW)
    assert round_of().placed == 1


def test_a_job_is_placed_where_all_its_workers_cost_no_more_than_its_cap(
    migrated: Database, place: tuple[tables.Account, tables.Region]
) -> None:
    account, region = place
    with migrated.write() as session:
        add_gpu_node(session, region, "n1", gpus=4)
        capped = SubmittedSafety(price_cap_microcredits_per_hour=499_999)
        dear = add_waiting_job(session, account, gpus=1, workers=2, safety=capped)
        add_waiting_job(session, account, gpus=1, safety=capped)
    assert round_of().placed == 1
    detail = "node n1: the job costs 0.5 credits an hour, asked at most 0.499999"
    assert refusals(migrated, dear) == [("price", detail)]


def _spend_all(session: Session, account: tables.Account) -> None:
    legs = {credits_name(account.id): -1, "platform/usage-fees": 1}
    post(session, Entry("spent", TransactionKind.USAGE_FEE, account.id, legs, NOW, "all"))


def test_the_reasons_are_gone_once_the_job_is_placed(
    migrated: Database, place: tuple[tables.Account, tables.Region]
) -> None:
    account, region = place
    with migrated.write() as session:
        job = add_waiting_job(session, account)
    round_of()
    assert [code for code, _ in refusals(migrated, job)] == ["no-offers"]
    with migrated.write() as session:
        add_gpu_node(session, region)
    assert round_of().placed == 1
    assert refusals(migrated, job) == []


def test_an_attempt_is_placed_once_and_the_next_attempt_again(
    migrated: Database, place: tuple[tables.Account, tables.Region]
) -> None:
    account, region = place
    with migrated.write() as session:
        add_gpu_node(session, region)
        job = add_waiting_job(session, account)
    assert [round_of().placed, round_of().placed] == [1, 0]
    with migrated.write() as session:
        release_allocations(session, job.id, NOW)
    assert round_of().placed == 0
    with migrated.write() as session:
        session.get_one(tables.Job, job.id).attempt = 2
    assert round_of().placed == 1
    assert find_placement(FindPlacement(job_id=job.id, attempt=1)).placement is None
    found = find_placement(FindPlacement(job_id=job.id, attempt=2)).placement
    assert found is not None
    assert found.assignments[0].gpu_uuids == ("GPU-n1-0",)


def test_who_asks_for_a_placement_learns_the_last_step_of_the_job(
    migrated: Database, place: tuple[tables.Account, tables.Region]
) -> None:
    with migrated.write() as session:
        job = add_waiting_job(session, place[0])
        job.sequence = 7
    assert find_placement(FindPlacement(job_id=job.id, attempt=1)).sequence == 7


def test_what_is_released_is_given_to_the_next(
    migrated: Database, place: tuple[tables.Account, tables.Region]
) -> None:
    account, region = place
    with migrated.write() as session:
        add_gpu_node(session, region, gpus=4)
        first = add_waiting_job(session, account, gpus=4)
        second = add_waiting_job(session, account, gpus=4, created_at=NOW + timedelta(seconds=1))
    assert round_of().placed == 1
    assert refusals(migrated, second) == [("gpu-count", "node n1: asked 4×A100, 0 free of 4")]
    with migrated.write() as session:
        release_allocations(session, first.id, NOW)
    assert round_of().placed == 1
    with migrated.read() as session:
        assert {allocation.job_id for allocation in live(session)} == {second.id}
        assert_books_agree(session)


def test_nodes_in_maintenance_and_in_regions_that_are_offline_take_nothing(
    migrated: Database, place: tuple[tables.Account, tables.Region]
) -> None:
    account, region = place
    with migrated.write() as session:
        node = add_gpu_node(session, region)
        node.status = "maintenance"
        job = add_waiting_job(session, account)
    assert round_of().placed == 0
    assert [code for code, _ in refusals(migrated, job)] == ["inactive"]
    with migrated.write() as session:
        session.get_one(tables.Node, node.id).status = "active"
        session.get_one(tables.Region, region.id).status = "offline"
    assert round_of().placed == 0
    with migrated.write() as session:
        session.get_one(tables.Region, region.id).status = "healthy"
    assert round_of().placed == 1


def test_nodes_of_another_account_are_neither_used_nor_named(
    migrated: Database, place: tuple[tables.Account, tables.Region]
) -> None:
    _, region = place
    with migrated.write() as session:
        add_gpu_node(session, region, "secret")
        stranger = add_payer(session, "stranger")
        job = add_waiting_job(session, stranger)
    assert round_of().placed == 0
    assert [code for code, _ in refusals(migrated, job)] == ["no-offers"]


def test_a_limit_places_the_first_and_asks_for_another_round(
    migrated: Database, place: tuple[tables.Account, tables.Region]
) -> None:
    account, region = place
    with migrated.write() as session:
        add_gpu_node(session, region, gpus=4)
        for age in range(4):
            add_waiting_job(session, account, created_at=NOW + timedelta(seconds=age))
    assert round_of(limit=3) == PlanningRound(placed=3, waiting=1, more=True)
    assert round_of(limit=3) == PlanningRound(placed=1, waiting=0, more=False)


def test_a_plan_that_is_out_of_date_reserves_nothing(
    migrated: Database, place: tuple[tables.Account, tables.Region]
) -> None:
    account, region = place
    with migrated.write() as session:
        node = add_gpu_node(session, region)
        add_waiting_job(session, account)
    with migrated.read() as session:
        offers = {offer.node_id: offer for offer in node_offers(session, NOW, held(session))}
        queue = waiting_queue(session, [])
        made = plan(queue.demands, offers.values(), PlanningContext(now=NOW))
    chosen = [placed_of(assignment, queue.read, offers) for assignment in made.assignments]
    assert chosen
    with migrated.write() as session:
        session.get_one(tables.Node, node.id).status = "maintenance"
    with pytest.raises(ContendedError), migrated.write() as session:
        reserve(session, chosen, NOW)
    with migrated.read() as session:
        assert live(session) == []
        assert_books_agree(session)


def test_a_job_that_was_canceled_meanwhile_is_not_placed(
    migrated: Database,
    place: tuple[tables.Account, tables.Region],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    account, region = place
    with migrated.write() as session:
        add_gpu_node(session, region)
        job = add_waiting_job(session, account)
        other = add_waiting_job(session, account)

    def plan_late(*given: object) -> object:
        with migrated.write() as session:
            session.get_one(tables.Job, job.id).status = "canceled"
        return plan(*given)  # type: ignore[arg-type]

    monkeypatch.setattr("activities.placement.planning.plan", plan_late)
    assert round_of().placed == 1
    with migrated.read() as session:
        assert {allocation.job_id for allocation in live(session)} == {other.id}


def test_two_planners_in_two_processes_never_reserve_a_thing_twice(
    migrated: Database, place: tuple[tables.Account, tables.Region]
) -> None:
    account, region = place
    with migrated.write() as session:
        for index in range(4):
            add_gpu_node(session, region, f"n{index}", gpus=4)
        for age in range(12):
            add_waiting_job(
                session, account, workers=1 + age % 2, created_at=NOW + timedelta(seconds=age)
            )
    command = [sys.executable, "-m", "tests.activities.placement.planner_process"]
    environment = os.environ | {"BASELOAD_DATABASE_URL": migrated.url}
    done = subprocess.run(
        command,
        cwd=CHECKOUT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers = done.stdout.split()
    assert len(answers) == 2
    with migrated.read() as session:
        held = live(session)
        assert_books_agree(session)
    assert len({allocation.job_id for allocation in held}) == sum(int(a) for a in answers)
    assert len(held) in (15, 16)


def test_a_round_asks_as_often_for_many_jobs_and_nodes_as_for_few(
    migrated: Database, place: tuple[tables.Account, tables.Region]
) -> None:
    account, region = place
    counts = []
    for many in (2, 20):
        with migrated.write() as session:
            for index in range(many):
                add_gpu_node(session, region, f"n{many}-{index}", gpus=1)
                add_waiting_job(session, account, gpus=2)
        with statements() as seen:
            assert round_of().placed == 0
        counts.append(len([text for text in seen if text.startswith("SELECT")]))
    assert counts[0] == counts[1]


def test_offers_rank_the_node_that_placement_would_take_and_refuse_with_reasons(
    migrated: Database, place: tuple[tables.Account, tables.Region]
) -> None:
    account, region = place
    with migrated.write() as session:
        add_gpu_node(session, region, "large", gpus=4)
        add_gpu_node(session, region, "small", gpus=1)
        plain = add_gpu_node(session, region, "plain", gpus=0)
    with migrated.read() as session:
        offers = node_offers(session, NOW)
    wanted = Demand(
        account_id=account.id, gpu_types=("A100",), gpu_count=1, cpu_count=2, memory_bytes=GIB
    )
    ranking = rank(wanted, offers)
    elsewhere = rank(replace(wanted, region_id="reg-other"), offers)
    assert ranking.placeable
    assert [item.node_name for item in ranking.items] == ["small", "large"]
    assert ranking.items[0].microcredits_per_gpu_hour == 250_000
    assert [(r.offer_id, r.code) for r in ranking.refusals] == [(plain.id, "gpu-type")]
    assert {refusal.code for refusal in elsewhere.refusals} == {"wrong-region"}
