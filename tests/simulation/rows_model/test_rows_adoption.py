"""The rules of adoption: what is lost goes on, and only what a person has ended ends."""

from collections.abc import Sequence
from typing import Any, cast

import pytest

from tests.simulation.contracts import Verb
from tests.simulation.rows_model import ModelRows
from tests.simulation.rows_model.scripted import Scripted, submission
from workflows.contracts.jobs import JobRequest
from workflows.contracts.nodes import NodeRequest
from workflows.effects.reconciliation import RestartLostWorkflows


def status_of(rows: ModelRows, job_id: str) -> str:
    return next(job.status for job in rows.jobs() if job.job_id == job_id)


def held_gpus(rows: ModelRows) -> Sequence[tuple[str, int]]:
    return [(each.node_id, index) for each in rows.allocations() for index in each.gpu_indices]


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
