"""The job of a federated job: created once while both parties allow it, told of, and ended."""

from typing import Any

import pytest
from sqlmodel import select
from temporalio.exceptions import ApplicationError

from activities.billing.ledger import add_credits
from activities.db import tables
from activities.db.session import Database
from activities.federation.jobs import (
    create_federated_job,
    end_federated_job,
    review_federation,
)
from activities.jobs.starts import start_job
from activities.jobs.submissions import open_variables, submission_of
from activities.lifecycles.record import record
from activities.placement.queue import waiting_queue
from tests.activities.federation.rows import Federation, federation
from tests.activities.rows import NOW
from workflows.contracts.jobs import EndRequest, JobEnding
from workflows.contracts.lifecycles import FederatedChanges, JobChanges, Record
from workflows.contracts.statuses import JobStatus
from workflows.effects.federation import (
    CreateFederatedJob,
    EndFederatedJob,
    FederatedJobCreated,
    FederationReview,
    ReviewFederation,
)
from workflows.rules.jobs.resources import demand_key


@pytest.fixture
def parties(migrated: Database) -> Federation:
    return federation(migrated)


def reviewed(parties: Federation) -> FederationReview:
    return review_federation(ReviewFederation(federated_id=parties.federated_id))


def created(parties: Federation) -> FederatedJobCreated:
    return create_federated_job(CreateFederatedJob(federated_id=parties.federated_id, at=NOW))


def outbox(parties: Federation, resource_id: str) -> list[str]:
    with parties.database.read() as session:
        row = tables.OutboxRow
        found = select(row.verb).where(row.resource_id == resource_id).order_by(row.id)
        return list(session.exec(found))


def test_the_job_is_created_once_for_the_consumer_with_its_confinement(
    parties: Federation,
) -> None:
    assert created(parties) == created(parties) == FederatedJobCreated()
    job = parties.job()
    assert job is not None
    assert (job.account_id, job.project_id) == (parties.clinic_id, parties.project_id)
    assert (job.creator_account_id, job.federated_id) == (parties.maker_id, parties.federated_id)
    assert open_variables(job.id, job.sealed_variables) == {"TOKEN": "a-variable-that-is-made-up"}
    assert outbox(parties, job.id) == ["start"]
    row = parties.row()
    assert (row.egress, row.logs) == (["api.example.com:443"], "none")
    with parties.database.read() as session:
        uses = session.exec(select(tables.ArtifactUse.artifact_id)).all()
        assert list(uses) == [parties.model_id]


def test_nothing_of_a_federated_job_is_stored_beside_the_datastore(parties: Federation) -> None:
    created(parties)
    with parties.database.read() as session:
        request = start_job(session, session.get_one(tables.Job, parties.job_id)).argument
    assert (request.keeps_output, request.state_interval_s) == (False, 0)


def _no_member(parties: Federation) -> None:
    with parties.database.write() as session:
        key = (parties.project_id, parties.maker_user_id)
        session.delete(session.get_one(tables.ProjectMember, key))


def _other_permissions(parties: Federation) -> None:
    key = (parties.project_id, parties.maker_user_id)
    parties.set(tables.ProjectMember, key, permissions={"job": "all", "credential": "all"})


WITHDRAWALS: dict[str, Any] = {
    "no permission to create federated jobs": _no_member,
    "creator has no permission": _other_permissions,
    "use_only_owned_resources": lambda it: it.set(
        tables.Project, it.project_id, use_only_owned_resources=False
    ),
    "is removed": lambda it: it.set(tables.Project, it.project_id, removed_at=NOW),
    "may not work for it any more": lambda it: it.set(
        tables.User, it.maker_user_id, role="billing"
    ),
    "asked the plan enterprise": lambda it: it.set(tables.Account, it.maker_id, plan="team"),
}


OF_CREATOR = "asked the plan enterprise"
"""What the consumer does not read: the plan and the name of the creator's account."""


@pytest.mark.parametrize("words", WITHDRAWALS)
def test_a_party_that_does_not_allow_it_any_more_is_seen_before_and_after_the_job_is_created(
    parties: Federation, words: str
) -> None:
    WITHDRAWALS[words](parties)
    before = reviewed(parties)
    assert words in (before.words.creator or "")
    assert (words in before.words.both) is (words != OF_CREATOR)
    assert created(parties).words == before.words
    assert parties.job() is None


@pytest.mark.parametrize("words", WITHDRAWALS)
def test_a_running_job_is_refused_in_the_same_words(parties: Federation, words: str) -> None:
    created(parties)
    assert reviewed(parties).refusals == ()
    WITHDRAWALS[words](parties)
    review = reviewed(parties)
    assert len(review.refusals) == 1
    assert words in (review.words.creator or "")


def test_egress_that_is_taken_away_is_a_withdrawal_and_more_egress_is_none(
    parties: Federation,
) -> None:
    created(parties)
    more = ["api.example.com:443", "b.example.com:1"]
    parties.set(tables.Project, parties.project_id, federated_egress=more)
    assert reviewed(parties).refusals == ()
    parties.set(tables.Project, parties.project_id, federated_egress=None)
    (refusal,) = reviewed(parties).refusals
    assert "does not allow api.example.com:443 any more" in refusal


def test_a_consumer_without_a_machine_is_refused_and_a_cloud_region_is_one(
    parties: Federation,
) -> None:
    with parties.database.write() as session:
        (node,) = session.exec(select(tables.Node)).all()
        node.services = ["storage"]
        (region,) = session.exec(select(tables.Region)).all()
        region_id = region.id
    words = reviewed(parties).words
    assert "owns no node and no cloud region" in (words.consumer or "")
    assert parties.clinic_id not in f"{words.both} {words.creator}"
    parties.set(tables.Region, region_id, cloud_region="europe-west4")
    assert reviewed(parties).refusals == ()


def test_who_wants_it_to_end_before_its_job_is_created_gets_no_job(parties: Federation) -> None:
    parties.set(tables.FederatedJob, parties.federated_id, end_reason="canceled")
    assert created(parties).refusals == ("canceled",)
    assert parties.job() is None
    assert reviewed(parties).end_reason == "canceled"


def test_the_job_is_asked_to_end_unless_it_has_ended(parties: Federation) -> None:
    command = EndFederatedJob(federated_id=parties.federated_id, reason="no consent", at=NOW)
    end_federated_job(command)
    created(parties)
    end_federated_job(command)
    assert outbox(parties, parties.job_id) == ["start", "cancel"]
    parties.set(tables.Job, parties.job_id, status="canceled")
    end_federated_job(command)
    assert outbox(parties, parties.job_id) == ["start", "cancel"]


def ended(parties: Federation, status: JobStatus, **changes: Any) -> None:
    step = Record(
        resource_id=parties.job_id,
        account_id=parties.clinic_id,
        sequence=1,
        at=NOW,
        status=status,
        status_reason="worker 0: exit 1: a line of its log",
        changes=JobChanges(**changes),
    )
    assert record(step).applied


def test_the_end_of_the_job_wakes_its_federated_job(parties: Federation) -> None:
    created(parties)
    ended(parties, JobStatus.RUNNING)
    assert outbox(parties, parties.federated_id) == []
    parties.set(tables.Job, parties.job_id, sequence=0)
    ended(parties, JobStatus.FAILED)
    assert outbox(parties, parties.federated_id) == ["wake"]
    review = reviewed(parties)
    assert (review.has_ended, review.job_status) == (True, JobStatus.FAILED)


@pytest.mark.parametrize(
    ("logs", "shown"),
    [("none", None), ("exit_only", None), ("all", "worker 0: exit 1: a line of its log")],
)
def test_what_the_command_has_said_is_shown_where_its_log_is(
    parties: Federation, logs: str, shown: str | None
) -> None:
    created(parties)
    parties.set(tables.FederatedJob, parties.federated_id, logs=logs)
    ended(parties, JobStatus.FAILED)
    review = reviewed(parties)
    assert (review.job_reason, review.creator_job_reason) == (shown, shown)


@pytest.mark.parametrize("logs", ["none", "exit_only", "all"])
def test_why_the_job_was_ended_is_for_the_consumer_unless_the_log_is_shown(
    parties: Federation, logs: str
) -> None:
    created(parties)
    parties.set(tables.FederatedJob, parties.federated_id, logs=logs)
    asked = JobEnding(request=EndRequest(reason="node ward-1: is removed"))
    ended(parties, JobStatus.CANCELED, ending=asked)
    review = reviewed(parties)
    assert review.job_reason == "node ward-1: is removed"
    assert review.creator_job_reason == (review.job_reason if logs == "all" else None)


def test_the_words_of_each_party_are_kept_with_the_step(parties: Federation) -> None:
    step = Record(
        resource_id=parties.federated_id,
        account_id=parties.maker_id,
        sequence=1,
        at=NOW,
        status="refused",
        status_reason="the model cannot be read",
        changes=FederatedChanges(creator_reason="the model cannot be read: no object"),
    )
    assert record(step).applied
    row = parties.row()
    assert (row.status_reason, row.consumer_reason) == ("the model cannot be read", None)
    assert row.creator_reason == "the model cannot be read: no object"


def test_usage_that_could_not_be_posted_is_not_billed(parties: Federation) -> None:
    created(parties)
    usage = {"job_id": parties.job_id, "worker": 0, "attempt": 1, "started_at": NOW.isoformat()}
    parties.set(tables.Job, parties.job_id, unsettled=[usage | {"through_s": 1}])
    assert not reviewed(parties).is_billed


def test_what_is_not_there_is_not_found(parties: Federation) -> None:
    with pytest.raises(ApplicationError, match="fed-none: there is no such federated job"):
        review_federation(ReviewFederation(federated_id="fed-none"))


@pytest.mark.parametrize("status", ["refused", "withdrawing", "settled"])
def test_an_attempt_that_was_held_up_creates_no_job_after_the_end(
    parties: Federation, status: str
) -> None:
    parties.set(tables.FederatedJob, parties.federated_id, status=status)
    assert created(parties).refusals == (f"{parties.federated_id}: is {status} already",)
    assert parties.job() is None


def test_a_job_waits_for_the_credits_of_both_parties(parties: Federation) -> None:
    created(parties)
    waits = JobStatus.WAITING_FOR_RESOURCES.value
    parties.set(tables.Job, parties.job_id, status=waits)
    able: list[tuple[bool, bool]] = []
    for account_id in (parties.clinic_id, parties.maker_id):
        with parties.database.write() as session:
            account = session.get_one(tables.Account, account_id)
            add_credits(session, account, 25_000_000, account_id, NOW)
        with parties.database.read() as session:
            (demand,) = [each.demand for each in waiting_queue(session, {"A100"}).demands]
        assert demand.needs_confinement
        able.append((demand.has_credits, demand.has_fee_credits))
    assert able == [(False, False), (True, True)]


def test_a_job_waits_for_the_credits_of_its_creator_alone_where_it_costs_the_project_nothing(
    parties: Federation,
) -> None:
    created(parties)
    parties.set(tables.Job, parties.job_id, status=JobStatus.WAITING_FOR_RESOURCES.value)
    with parties.database.write() as session:
        account = session.get_one(tables.Account, parties.maker_id)
        add_credits(session, account, 25_000_000, account.id, NOW)
    with parties.database.read() as session:
        (demand,) = [each.demand for each in waiting_queue(session, {"A100"}).demands]
    assert (demand.has_credits, demand.has_fee_credits) == (False, True)


def test_the_federated_jobs_of_two_creators_share_no_demand(parties: Federation) -> None:
    created(parties)
    job = parties.job()
    assert job is not None
    asked = submission_of(job.spec), job.account_id, job.data_bytes
    assert job.demand_key == demand_key(*asked, parties.maker_id)
    assert job.demand_key not in (demand_key(*asked), demand_key(*asked, "acc-other"))
