"""The rules of the model of rows, each as a person would state it."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
from temporalio.exceptions import ApplicationError

from tests.simulation.contracts import Outside, Refused, Verb
from tests.simulation.rows_model import ModelRows, ProcessDied
from tests.simulation.rows_model.scripted import ATTEMPT, Scripted, submission
from tests.simulation.rows_model.temporal_double import TemporalDouble
from workflows.contracts.billing import BillingRequest
from workflows.contracts.jobs import EndRequest, JobRequest
from workflows.contracts.lifecycles import JobChanges, NodeChanges, ProviderChanges
from workflows.contracts.nodes import NodeNotice, NodeRequest, RunSeen
from workflows.contracts.removals import Removal
from workflows.effects.billing import PostUsage, TellJobToEnd
from workflows.effects.jobs import FindPlacement, SealRunSpecs
from workflows.effects.lifecycles import FindDependents, RemoveDependents
from workflows.effects.nodes import (
    BillOrphanedRuns,
    FindNodeRuns,
    FindWantedStatus,
    NotifyJobs,
)
from workflows.effects.placement import PlanPlacements, WithdrawAllocations
from workflows.effects.reconciliation import RelayOutbox, RestartLostWorkflows


class Store:
    """The object store of `Outside`, as far as rows use it."""

    def __init__(self) -> None:
        self.run_specs: set[tuple[str, int]] = set()
        self.snapshots: set[str] = set()

    def keep_run_specs(self, job_id: str, attempt: int) -> None:
        self.run_specs.add((job_id, attempt))

    def discard(self, job_id: str, what: str, attempt: int | None = None) -> None:
        if what == "run_specs" and attempt is not None:
            self.run_specs.discard((job_id, attempt))

    def jobs_with_snapshots(self) -> Iterable[str]:
        return sorted(self.snapshots)


@pytest.fixture
def temporal() -> TemporalDouble:
    return TemporalDouble()


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def rows(temporal: TemporalDouble, store: Store) -> ModelRows:
    return ModelRows(temporal, cast("Outside", store))


@pytest.fixture
def script(rows: ModelRows, temporal: TemporalDouble) -> Iterable[Scripted]:
    script = Scripted(rows, temporal)
    yield script
    assert rows.violations() == []
    assert rows.imbalance() == 0


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
    assert store.run_specs == set(), "the jobs run already"


# ── the outbox ──────────────────────────────────────────────────────────────────────────────


def test_requests_of_a_resource_arrive_in_order_and_wait_for_the_first(
    script: Scripted, rows: ModelRows
) -> None:
    job_id = script.rows.submit(script.account, submission())
    rows.ask(job_id, Verb.CANCEL)
    script.temporal.answers = False
    assert rows.relay() == 0
    script.temporal.answers = True
    assert script.call("relay_outbox", RelayOutbox()).delivered == 0, "not due yet"
    script.temporal.play(6)
    assert script.call("relay_outbox", RelayOutbox()).delivered == 2
    assert script.temporal.signals(f"job/{job_id}") == ["cancel"]
    assert rows.waiting_requests() == 0


def test_a_signal_to_a_lost_workflow_waits_and_one_to_an_ended_lifecycle_does_not(
    script: Scripted, rows: ModelRows
) -> None:
    lost, ended = script.submit(), script.submit()
    for job_id in (lost, ended):
        rows.ask(job_id, Verb.CANCEL)
        script.temporal.end(f"job/{job_id}")
    script.step(ended, "canceled")
    assert rows.relay() == 1
    assert rows.waiting_requests() == 1


def test_a_request_that_was_refused_for_a_day_is_parked_and_says_so(
    script: Scripted, rows: ModelRows
) -> None:
    job_id = script.submit()
    script.temporal.end(f"job/{job_id}")
    rows.ask(job_id, Verb.CANCEL)
    for _ in range(26 * 30):
        script.call("relay_outbox", RelayOutbox())
        script.temporal.play(120)
    assert rows.waiting_requests() == 0
    assert rows.tables.events[job_id][-1].type == "job.request-parked"


def test_wakes_of_strangers_come_at_most_every_ten_seconds(
    script: Scripted, rows: ModelRows
) -> None:
    node_id = script.add_node()
    script.step(node_id, "offline")
    for _ in range(3):
        rows.announce("SHA256:a", "10.0.0.2")
        rows.relay()
    assert script.temporal.signals(f"node/{node_id}").count("wake") == 1
    script.temporal.play(11)
    script.call("relay_outbox", RelayOutbox())
    assert script.temporal.signals(f"node/{node_id}").count("wake") == 2


def test_a_process_that_dies_after_its_commit_leaves_the_request_to_the_relay(
    script: Scripted, rows: ModelRows
) -> None:
    node_id = script.add_node(gpus=1)
    job_id = script.submit()
    script.plan()
    held = script.run(job_id).allocation_ids

    def dies() -> None:
        raise ProcessDied

    rows.between = dies
    with pytest.raises(ProcessDied):
        script.finish(job_id, "failed", leaving=held)
    rows.between = lambda: None
    assert status_of(rows, job_id) == "failed"
    script.temporal.play(10)
    assert "refresh" not in script.temporal.signals(f"node/{node_id}")
    script.call("relay_outbox", RelayOutbox())
    assert "refresh" in script.temporal.signals(f"node/{node_id}")


# ── requests ────────────────────────────────────────────────────────────────────────────────


def test_the_api_refuses_what_the_status_does_not_allow(script: Scripted, rows: ModelRows) -> None:
    node_id, job_id = script.add_node(gpus=1), script.submit()
    with pytest.raises(Refused, match="cancel it instead"):
        rows.ask(job_id, Verb.STOP)
    with pytest.raises(Refused, match="must be stopped"):
        rows.ask(job_id, Verb.START)
    with pytest.raises(Refused, match="must be ended"):
        rows.ask(job_id, Verb.REMOVE)
    with pytest.raises(Refused, match="there is no route"):
        rows.ask(job_id, Verb.REBOOT)
    script.plan()
    with pytest.raises(Refused, match="force ends them"):
        rows.ask(node_id, Verb.REMOVE)
    with pytest.raises(Refused, match="force ends them"):
        rows.ask(node_id, Verb.REBOOT)
    with pytest.raises(Refused, match="force ends them"):
        rows.ask(script.region, Verb.REMOVE)
    with pytest.raises(Refused, match="is that of node"):
        rows.add_node(script.region, "SHA256:a")
    script.finish(job_id, "finished")
    with pytest.raises(Refused, match="cannot be canceled"):
        rows.ask(job_id, Verb.CANCEL)


def test_without_credits_no_job_with_gpus_is_taken(script: Scripted, rows: ModelRows) -> None:
    poor = rows.add_account(0)
    with pytest.raises(Refused, match="more than 0 credits"):
        rows.submit(poor, submission())
    rows.ask(poor, Verb.TOP_UP, microcredits=1)
    rows.submit(poor, submission())


def test_a_resubmission_is_a_job_of_its_own(script: Scripted, rows: ModelRows) -> None:
    job_id = script.submit()
    again = rows.ask(job_id, Verb.RESUBMIT)
    assert again not in (None, job_id)
    assert {job.job_id for job in rows.jobs()} == {job_id, again}


def test_the_removal_of_an_ended_job_starts_its_workflow_once_more(
    script: Scripted, rows: ModelRows
) -> None:
    job_id = script.submit()
    script.step(job_id, "canceled")
    rows.ask(job_id, Verb.REMOVE)
    assert rows.relay() == 0, "its earlier run has not closed yet"
    script.temporal.end(f"job/{job_id}")
    script.temporal.play(60)
    script.call("relay_outbox", RelayOutbox())
    request = script.temporal.workflows[f"job/{job_id}"].request
    assert isinstance(request, JobRequest)
    assert request.removal


def test_each_wanted_status_is_read_until_the_lifecycle_has_followed_it(
    script: Scripted, rows: ModelRows
) -> None:
    node_id = script.add_node()
    rows.ask(node_id, Verb.MAINTAIN)
    found = script.call("find_wanted_status", FindWantedStatus(node_id=node_id))
    assert (found.status, found.revision) == ("maintenance", 1)
    script.step(node_id, "maintenance", NodeChanges(seen_revision=1))
    assert script.call("find_wanted_status", FindWantedStatus(node_id=node_id)).status is None
    rows.ask(node_id, Verb.ACTIVATE)
    assert script.call("find_wanted_status", FindWantedStatus(node_id=node_id)).revision == 2


def test_a_region_with_nodes_asks_them_to_leave_unless_its_row_is_ahead(
    script: Scripted,
) -> None:
    node_id = script.add_node()
    found = script.call("find_dependents", FindDependents(resource_id=script.region))
    assert found.ids == (node_id,)
    removal = Removal(force=True)
    script.step(script.region, "removing")
    for sequence, heard in ((1, 0), (2, 1)):
        command = RemoveDependents(resource_id=script.region, removal=removal, sequence=sequence)
        script.call("remove_dependents", command)
        assert script.temporal.signals(f"node/{node_id}").count("remove") == heard


# ── money ───────────────────────────────────────────────────────────────────────────────────


def test_usage_is_posted_once_and_never_beyond_what_the_allocation_has_lasted(
    script: Scripted, rows: ModelRows
) -> None:
    script.add_node(gpus=1)
    job_id = script.submit()
    script.plan()
    script.run(job_id)
    script.temporal.play(7200)
    posted = [
        script.call("post_usage", PostUsage(usages=(script.usage(job_id, through_s),)))
        for through_s in (3600, 3600, 1800, 5400)
    ]
    assert [each.posted_microcredits for each in posted] == [50_000, 0, 0, 25_000]
    script.call("post_usage", PostUsage(usages=(script.usage(job_id, 10**6),)))
    assert 7200 <= next(iter(rows.usage_of(job_id))).seconds <= 7270
    assert rows.tables.events[job_id][-1].type == "job.usage-refused"


def test_a_short_runway_rechecks_the_other_jobs_of_the_payer(
    script: Scripted, rows: ModelRows
) -> None:
    payer = rows.add_account(60_000)
    other_region = replace_owner(script, payer)
    script.add_node(gpus=2, minion_id="SHA256:b")
    jobs = [script.submit(), script.submit()]
    script.plan()
    for job_id in jobs:
        script.run(job_id)
    script.temporal.play(60)
    begin = BillingRequest(
        job_id=jobs[0],
        account_id=payer,
        attempt=1,
        started_at=script.temporal.now(),
        workers=(),
    )
    script.call("begin_billing", begin)
    for job_id in jobs:
        script.call("post_usage", PostUsage(usages=(script.usage(job_id, 30),)))
    script.dispatch()
    assert script.temporal.signals(f"job/{jobs[0]}/billing") == ["recheck_balance"]
    assert other_region == script.region


def replace_owner(script: Scripted, account_id: str) -> str:
    """From now on the script acts for another account, with a region of its own."""
    script.account = account_id
    script.provider = script.rows.add_provider(account_id, "physical")
    script.dispatch()
    script.step(script.provider, "ready")
    script.region = script.rows.add_region(script.provider)
    script.dispatch()
    script.step(script.region, "healthy")
    return script.region


def test_the_billing_of_an_earlier_attempt_ends_before_the_next_begins(script: Scripted) -> None:
    job_id = script.submit()
    request = BillingRequest(
        job_id=job_id,
        account_id=script.account,
        attempt=1,
        started_at=script.temporal.now(),
        workers=(),
    )
    script.call("begin_billing", request)
    script.call("begin_billing", request)
    workflow_id = f"job/{job_id}/billing"
    assert script.temporal.signals(workflow_id) == ["nodes_moved"]
    following = request.model_copy(update={"attempt": 2})
    with pytest.raises(ApplicationError):
        script.call("begin_billing", following)
    assert script.temporal.signals(workflow_id) == ["nodes_moved", "settled"]
    script.temporal.end(workflow_id)
    script.call("begin_billing", following)


def test_usage_that_was_left_unsettled_is_posted_by_the_reconciliation(
    script: Scripted, rows: ModelRows
) -> None:
    script.add_node(gpus=1)
    job_id = script.submit()
    script.plan()
    script.run(job_id)
    script.temporal.play(3600)
    script.finish(job_id, "finished", unsettled=(script.usage(job_id, 1800),))
    assert rows.unsettled_of(job_id) == 1800
    script.temporal.play(180)
    script.call("restart_lost_workflows", RestartLostWorkflows())
    assert rows.unsettled_of(job_id) == 0
    assert [each.seconds for each in rows.usage_of(job_id)] == [1800]


def test_a_repeated_attempt_sends_its_signal_once(script: Scripted) -> None:
    job_id = script.submit()
    command = TellJobToEnd(job_id=job_id, request=EndRequest(reason="no credits"))
    script.call("tell_job_to_end", command)
    script.call("tell_job_to_end", command, replace(ATTEMPT, number=2))
    assert script.temporal.signals(f"job/{job_id}") == ["stop"]
    script.temporal.answers = False
    with pytest.raises(ApplicationError) as failure:
        script.call("tell_job_to_end", command, replace(ATTEMPT, number=3))
    assert not failure.value.non_retryable


# ── adoption ────────────────────────────────────────────────────────────────────────────────


def reconcile(script: Scripted) -> Sequence[str]:
    script.temporal.play(600)
    found: Any = script.call("restart_lost_workflows", RestartLostWorkflows())
    return cast("Sequence[str]", found.restarted)


def show_all(script: Scripted, rows: ModelRows) -> None:
    """Each workflow shows the status of its row, as lifecycles do."""
    for kind in rows.tables.open.values():
        for row in kind.values():
            script.temporal.shows(f"{row.noun.name}/{row.id}", row.status)


def test_a_lost_job_goes_on_from_its_row_and_hears_again_what_it_has_not_acted_upon(
    script: Scripted, rows: ModelRows
) -> None:
    script.add_node(gpus=1)
    job_id = script.submit()
    script.plan()
    script.run(job_id)
    show_all(script, rows)
    assert reconcile(script) == (f"job/{job_id}/billing",)
    rows.ask(job_id, Verb.CANCEL)
    rows.relay()
    script.temporal.end(f"job/{job_id}", "failed")
    assert reconcile(script) == (job_id,)
    script.dispatch()
    request = script.temporal.workflows[f"job/{job_id}"].request
    assert isinstance(request, JobRequest)
    assert request.resumed_from is not None
    assert request.ending is None
    assert request.resumed_from.status == "running"
    assert request.resumed_from.workers[0].run_id == f"{job_id}-0-1"
    assert script.temporal.signals(f"job/{job_id}") == ["cancel"]


@pytest.mark.parametrize(
    ("by", "ends"), [("person", True), ("worker", True), ("history-service", False)]
)
def test_only_a_job_that_a_person_has_terminated_is_ended(
    script: Scripted, rows: ModelRows, by: str, ends: bool
) -> None:
    script.add_node(gpus=1)
    job_id = script.submit()
    script.plan()
    script.run(job_id)
    show_all(script, rows)
    script.temporal.end(f"job/{job_id}", "terminated", by=by)
    assert reconcile(script) == (job_id,)
    request = script.temporal.workflows[f"job/{job_id}"].request
    assert isinstance(request, JobRequest)
    assert (request.ending is not None) is ends


def test_when_many_are_lost_at_once_none_is_ended(script: Scripted, rows: ModelRows) -> None:
    jobs = [script.submit(submission(gpus=0)) for _ in range(12)]
    show_all(script, rows)
    for job_id in jobs:
        script.temporal.end(f"job/{job_id}", "terminated", by="person")
    assert set(reconcile(script)) == set(jobs)
    for job_id in jobs:
        request = script.temporal.workflows[f"job/{job_id}"].request
        assert isinstance(request, JobRequest)
        assert request.ending is None


def test_a_stale_workflow_is_replaced_by_one_that_knows_the_row(
    script: Scripted, rows: ModelRows
) -> None:
    job_id = script.submit()
    show_all(script, rows)
    run_id = script.temporal.workflows[f"job/{job_id}"].execution.run_id
    script.temporal.shows(f"job/{job_id}", "provisioning")
    assert reconcile(script) == (job_id,)
    execution = script.temporal.workflows[f"job/{job_id}"].execution
    assert (execution.status, execution.run_id == run_id) == ("running", False)
    assert execution.search_attributes["ResourceStatus"] == "waiting_for_resources"


def test_a_stuck_workflow_is_found_once_another_was_lost(script: Scripted, rows: ModelRows) -> None:
    stuck, lost = script.submit(), script.submit()
    show_all(script, rows)
    script.temporal.shows(f"job/{stuck}", "waiting_for_resources", task_attempt=9)
    assert reconcile(script) == ()
    script.temporal.end(f"job/{lost}", "timed_out")
    assert set(reconcile(script)) == {lost, stuck}


def test_an_adopted_node_comes_back_as_it_was_used(script: Scripted, rows: ModelRows) -> None:
    node_id = script.add_node()
    script.step(node_id, "offline", reason="no answer")
    show_all(script, rows)
    script.temporal.end(f"node/{node_id}", "failed")
    assert reconcile(script) == (node_id,)
    request = script.temporal.workflows[f"node/{node_id}"].request
    assert isinstance(request, NodeRequest)
    assert request.resumed_from is not None
    assert request.resumed_from.status == "offline"
    assert request.resumed_from.resume_status == "active"


def test_a_job_billing_that_is_lost_is_begun_again(script: Scripted, rows: ModelRows) -> None:
    script.add_node(gpus=1)
    job_id = script.submit()
    script.plan()
    script.run(job_id)
    show_all(script, rows)
    assert reconcile(script) == (f"job/{job_id}/billing",)
    assert reconcile(script) == ()


def test_the_workflow_of_an_ended_row_that_does_not_know_it_is_terminated(
    script: Scripted, rows: ModelRows
) -> None:
    job_id = script.submit()
    script.temporal.shows(f"job/{job_id}", "running")
    script.step(job_id, "finished")
    reconcile(script)
    assert script.temporal.workflows[f"job/{job_id}"].execution.status == "terminated"


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
