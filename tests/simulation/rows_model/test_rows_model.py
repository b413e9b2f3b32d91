"""The rules of steps, placement and nodes, each as a person would state it."""

from collections.abc import Sequence

import pytest
from temporalio.exceptions import ApplicationError

from tests.simulation.rows_model import ModelRows
from tests.simulation.rows_model.conftest import Store
from tests.simulation.rows_model.scripted import Scripted, submission
from tests.simulation.rows_model.temporal_double import TemporalDouble
from workflows.contracts.lifecycles import JobChanges, ProviderChanges
from workflows.contracts.nodes import NodeNotice, RunSeen
from workflows.effects.billing import PostUsage
from workflows.effects.jobs import FindPlacement, SealRunSpecs
from workflows.effects.nodes import (
    BillOrphanedRuns,
    FindNodeRuns,
    NotifyJobs,
)
from workflows.effects.placement import PlanPlacements, WithdrawAllocations


def status_of(rows: ModelRows, job_id: str) -> str:
    return next(job.status for job in rows.jobs() if job.job_id == job_id)


def held_gpus(rows: ModelRows) -> Sequence[tuple[str, int]]:
    return [(each.node_id, index) for each in rows.allocations() for index in each.gpu_indices]


# ── steps ───────────────────────────────────────────────────────────────────────────────────


def test_a_step_is_written_once_and_in_order(script: Scripted, rows: ModelRows) -> None:
    job_id = script.submit()
    assert script.step(job_id, "provisioning", sequence=5).applied
    again = script.step(job_id, "running", sequence=5)
    assert (again.applied, again.sequence) == (False, 5)
    assert not script.step(job_id, "running", sequence=4).applied
    assert status_of(rows, job_id) == "provisioning"


def test_a_run_that_knows_less_than_the_row_is_stale_and_its_own_repetition_is_not(
    script: Scripted,
) -> None:
    job_id = script.submit()
    script.step(job_id, "running", sequence=7, run="run-a", history=30)
    assert not script.step(job_id, "running", sequence=7, run="run-a", history=30).is_stale
    assert script.step(job_id, "running", sequence=7, run="run-a", history=12).is_stale
    assert script.step(job_id, "running", sequence=6, run="run-b", history=99).is_stale


def test_a_step_of_an_unknown_resource_is_not_found(script: Scripted) -> None:
    with pytest.raises(ApplicationError) as refusal:
        script.step("prv-999999", "ready", ProviderChanges())
    assert (refusal.value.type, refusal.value.non_retryable) == ("NotFound", True)


def test_a_transaction_that_fails_leaves_nothing(script: Scripted, rows: ModelRows) -> None:
    script.add_node()
    job_id = script.submit()
    script.plan()
    script.run(job_id)
    script.temporal.play(7200)
    good = script.usage(job_id, 3600)
    bad = good.model_copy(update={"job_id": "job-999999"})
    with pytest.raises(ApplicationError, match="no such job"):
        script.call("post_usage", PostUsage(usages=(good, bad)))
    assert list(rows.usage()) == []
    assert rows.tables.jobs[job_id].charged_microcredits == 0


# ── placement ───────────────────────────────────────────────────────────────────────────────


def test_a_waiting_job_is_placed_told_confirms_and_releases(
    script: Scripted, rows: ModelRows
) -> None:
    node_id = script.add_node(gpus=2)
    job_id = script.submit(submission(gpus=2))
    assert script.plan() == 1
    assert held_gpus(rows) == [(node_id, 0), (node_id, 1)]
    placement = script.run(job_id)
    assert placement.assignments[0].gpu_uuids == ("GPU-0", "GPU-1")
    assert [each.status for each in rows.allocations()] == ["running"]
    script.finish(job_id)
    assert list(rows.allocations()) == []
    assert rows.tables.nodes[node_id].reserved_cpu_count == 0


def test_what_is_held_is_not_placed_again_and_what_is_freed_is(
    script: Scripted, rows: ModelRows
) -> None:
    script.add_node(gpus=1)
    first, second = script.submit(), script.submit()
    assert script.plan() == 1
    assert script.plan() == 0
    script.run(first)
    script.finish(first)
    assert script.plan() == 1
    assert [each.job_id for each in rows.allocations()] == [second]


def test_an_unchanged_world_is_not_planned_again(script: Scripted, rows: ModelRows) -> None:
    script.submit(submission(gpus=4))
    assert script.call("plan_placements", PlanPlacements()).waiting == 1
    before = rows.tables.placement_version
    script.call("plan_placements", PlanPlacements())
    script.temporal.play(60)
    assert script.call("plan_placements", PlanPlacements()).waiting == 1
    assert rows.tables.placement_version == before


def test_jobs_that_wait_wake_placement_and_many_at_once_wake_it_once(script: Scripted) -> None:
    script.submit()
    script.temporal.play(1)
    assert len(script.temporal.workflows["placement"].signals) == 1
    for job_id in [script.submit() for _ in range(3)]:
        script.step(job_id, "waiting_for_resources")
    script.temporal.play(1)
    before = len(script.temporal.workflows["placement"].signals)
    for job_id in [script.rows.submit(script.account, submission()) for _ in range(5)]:
        script.step(job_id, "waiting_for_resources")
    script.temporal.play(1)
    assert len(script.temporal.workflows["placement"].signals) <= before + 2


def test_allocations_that_were_withdrawn_are_not_confirmed(
    script: Scripted, rows: ModelRows
) -> None:
    node_id = script.add_node(gpus=1)
    job_id = script.submit()
    script.plan()
    command = WithdrawAllocations(node_id=node_id, reason="no ssh", at=script.temporal.now())
    assert script.call("withdraw_allocations", command).job_ids == (job_id,)
    told = script.placement(job_id)
    confirming = JobChanges(attempt=1, confirms=told.allocation_ids)
    recorded = script.step(job_id, "provisioning", confirming)
    assert (recorded.applied, recorded.confirmed) == (False, False)
    assert status_of(rows, job_id) == "waiting_for_resources"
    assert script.plan() == 1


def test_confirmed_allocations_are_not_withdrawn(script: Scripted, rows: ModelRows) -> None:
    node_id = script.add_node(gpus=1)
    job_id = script.submit()
    script.plan()
    script.run(job_id)
    command = WithdrawAllocations(node_id=node_id, reason="no ssh", at=script.temporal.now())
    assert script.call("withdraw_allocations", command).job_ids == ()
    assert len(list(rows.allocations())) == 1


def test_a_run_that_nobody_has_seen_end_goes_over_to_its_node_and_is_freed_by_its_end(
    script: Scripted, rows: ModelRows
) -> None:
    node_id = script.add_node(gpus=1)
    job_id = script.submit()
    script.plan()
    held = script.run(job_id).allocation_ids
    script.temporal.play(100)
    script.finish(job_id, "failed", leaving=held)
    script.dispatch()
    assert [each.job_id for each in rows.allocations()] == [None]
    assert "refresh" in script.temporal.signals(f"node/{node_id}")
    found = script.call("find_node_runs", FindNodeRuns(node_id=node_id))
    assert (found.run_ids, [each.run_id for each in found.leaving]) == ((), [f"{job_id}-0-1"])
    run = RunSeen(run_id=f"{job_id}-0-1", job_id=job_id, worker=0, attempt=1, elapsed_s=50)
    alive = run.model_copy(update={"alive": "a process"})
    script.call("bill_orphaned_runs", BillOrphanedRuns(node_id="nod-999999", runs=(run,)))
    script.call("bill_orphaned_runs", BillOrphanedRuns(node_id=node_id, runs=(alive,)))
    assert len(list(rows.allocations())) == 1
    script.call("bill_orphaned_runs", BillOrphanedRuns(node_id=node_id, runs=(run,)))
    assert list(rows.allocations()) == []
    assert [each.seconds for each in rows.usage_of(job_id)] == [50]


def test_a_job_without_a_workflow_keeps_its_allocations_unless_it_has_ended(
    script: Scripted, rows: ModelRows
) -> None:
    script.add_node(gpus=2)
    lost, ended = script.submit(), script.submit()
    script.call("plan_placements", PlanPlacements())
    script.step(ended, "canceled")
    for job_id in (lost, ended):
        script.temporal.end(f"job/{job_id}")
    script.plan()
    assert [each.job_id for each in rows.allocations()] == [lost]


def test_signals_that_temporal_does_not_take_are_sent_again(script: Scripted) -> None:
    script.add_node(gpus=1)
    job_id = script.submit()
    script.temporal.answers = False
    script.plan()
    assert "placed" not in script.temporal.signals(f"job/{job_id}")
    script.temporal.answers = True
    script.plan()
    assert "placed" in script.temporal.signals(f"job/{job_id}")


def test_workers_of_one_job_meet_at_a_port_that_nobody_else_holds(
    script: Scripted, rows: ModelRows, store: Store
) -> None:
    script.add_node(gpus=4)
    job_ids = [script.submit(submission(workers=2)) for _ in range(2)]
    script.plan()
    for job_id in job_ids:
        placement = script.run(job_id)
        sealing = SealRunSpecs(job_id=job_id, attempt=1, assignments=placement.assignments)
        script.call("seal_run_specs", sealing)
        script.call("seal_run_specs", sealing)
    ports = [row.port for row in rows.tables.allocations.values() if row.port is not None]
    assert len(set(ports)) == len(ports) == 2
    assert store.run_specs == {(job_id, 1) for job_id in job_ids}, "the jobs run"


# ── nodes ───────────────────────────────────────────────────────────────────────────────────


def test_all_jobs_of_a_node_are_told_once_although_the_effect_is_repeated(
    script: Scripted,
) -> None:
    node_id = script.add_node(gpus=2)
    jobs = [script.submit(), script.submit()]
    script.plan()
    command = NotifyJobs(node_id=node_id, notice=NodeNotice.UNREACHABLE, reason="no answer")
    for _ in range(2):
        assert script.call("notify_jobs", command).job_ids == tuple(jobs)
    for job_id in jobs:
        assert script.temporal.signals(f"job/{job_id}").count("node_unreachable") == 1


def test_the_allocations_that_a_node_was_left_end_with_the_node(
    script: Scripted, rows: ModelRows
) -> None:
    node_id = script.add_node(gpus=1)
    job_id = script.submit()
    script.plan()
    held = script.run(job_id).allocation_ids
    script.finish(job_id, "failed", leaving=held)
    script.step(node_id, "archived")
    assert list(rows.allocations()) == []


def test_a_placement_is_found_by_a_job_that_was_not_told(script: Scripted) -> None:
    script.add_node(gpus=1)
    job_id = script.submit()
    script.call("plan_placements", PlanPlacements())
    found = script.call("find_placement", FindPlacement(job_id=job_id, attempt=1))
    assert found.placement is not None
    assert found.sequence == 1
    earlier = script.call("find_placement", FindPlacement(job_id=job_id, attempt=2))
    assert earlier.placement is None


def test_what_rows_must_never_hold_is_found(rows: ModelRows, temporal: TemporalDouble) -> None:
    script = Scripted(rows, temporal)
    node_id = script.add_node(gpus=2)
    for _ in range(2):
        script.submit()
    script.plan()
    first, second = rows.tables.allocations.values()
    first.gpu_indices = second.gpu_indices
    rows.tables.nodes[node_id].reserved_cpu_count += 1
    rows.ledger.balances["platform/usage-fees"] = 5
    found = "\n".join(rows.violations())
    assert "is allocated 2 times" in found
    assert "its allocations hold" in found
    assert "its postings add up to" in found
