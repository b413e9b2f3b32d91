"""The rules of the outbox, of requests and of money, each as a person would state it."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from temporalio.exceptions import ApplicationError

from tests.simulation.contracts import Refused, Verb
from tests.simulation.rows_model import ModelRows, ProcessDied
from tests.simulation.rows_model.scripted import ATTEMPT, Scripted, submission
from workflows.contracts.billing import BillingRequest
from workflows.contracts.jobs import EndRequest, JobRequest
from workflows.contracts.lifecycles import NodeChanges
from workflows.contracts.removals import Removal
from workflows.effects.billing import PostUsage, TellJobToEnd
from workflows.effects.lifecycles import FindDependents, RemoveDependents
from workflows.effects.nodes import (
    FindWantedStatus,
)
from workflows.effects.reconciliation import RelayOutbox, RestartLostWorkflows


def status_of(rows: ModelRows, job_id: str) -> str:
    return next(job.status for job in rows.jobs() if job.job_id == job_id)


def held_gpus(rows: ModelRows) -> Sequence[tuple[str, int]]:
    return [(each.node_id, index) for each in rows.allocations() for index in each.gpu_indices]


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
