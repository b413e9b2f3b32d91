"""Federated jobs: their responses, their creation and their end."""

from collections.abc import Sequence
from itertools import chain
from typing import Any

from sqlalchemy import ColumnElement
from sqlmodel import Session, col, func, or_, select

from activities.db import tables
from activities.db.ids import new_id
from activities.federation.models import make_attested_key
from activities.federation.parties import confinement_of, parties_of
from activities.jobs.submissions import sealed_variables, stored_spec
from api.authorization import Caller
from api.changes import ChangeContext
from api.problems import Problem, field_error, invalid, missing
from api.schemas import federated_jobs as schemas
from api.services.account_limits import check_limit
from api.services.job_submissions import (
    ReadDocument,
    accepted_federated,
    must_have_credits,
    read_document,
)
from api.services.ownership import hold_project, lifecycle, visible_artifacts
from api.services.people import People
from api.services.plans import check_plan
from workflows.contracts.federation import LogPolicy
from workflows.contracts.job_submission import JobSubmission
from workflows.contracts.lifecycles import FEDERATED
from workflows.rules.accounts.plans import Feature
from workflows.rules.federation.parties import Party, first_of, refusals_of
from workflows.rules.federation.submissions import mistakes_of_federated
from workflows.rules.jobs.resources import needs_attestation

_MODEL = ("data", "model")


def visible_federated(caller: Caller) -> ColumnElement[bool]:
    """The condition that the account has created a federated job, or is its consumer."""
    table = tables.FederatedJob
    return or_(
        col(table.account_id) == caller.account_id,
        col(table.consumer_account_id) == caller.account_id,
    )


def visible_federated_job(
    session: Session, caller: Caller, federated_id: str, *, locked: bool = False
) -> tables.FederatedJob:
    """A federated job that the account has created or is the consumer of.

    locked: until the transaction ends. Raises: Problem `not-found`.
    """
    row = session.get(tables.FederatedJob, federated_id, with_for_update=locked)
    if row is None or caller.account_id not in (row.account_id, row.consumer_account_id):
        raise missing("federated job", federated_id)
    return row


def federated_responses(
    session: Session, caller: Caller, rows: Sequence[tables.FederatedJob]
) -> list[schemas.FederatedJob]:
    """The federated jobs as a caller may see them."""
    texts = [(row.creator_user_id, _reason(row, caller)) for row in rows]
    people = People(session, caller, chain.from_iterable(texts))
    job_ids = [row.job_id for row in rows]
    job, meter = tables.Job, tables.UsageMeter
    found = select(job.id, job.status).where(col(job.id).in_(job_ids))
    statuses = dict(session.exec(found).all())
    usage = (
        select(meter.job_id, func.sum(meter.posted_s), func.sum(meter.federated_microcredits))
        .where(col(meter.job_id).in_(job_ids))
        .group_by(col(meter.job_id))
    )
    used = {job_id: (int(seconds), int(fee)) for job_id, seconds, fee in session.exec(usage)}
    return [
        _response(row, caller, people, statuses.get(row.job_id), used.get(row.job_id, (0, 0)))
        for row in rows
    ]


def federated_response(
    session: Session, caller: Caller, row: tables.FederatedJob
) -> schemas.FederatedJob:
    return federated_responses(session, caller, [row])[0]


def _response(
    row: tables.FederatedJob,
    caller: Caller,
    people: People,
    job_status: str | None,
    used: tuple[int, int],
) -> schemas.FederatedJob:
    given = confinement_of(row)
    seconds, fee = used
    return schemas.FederatedJob(
        **lifecycle(row) | {"status_reason": people.named(_reason(row, caller))},
        role=_role(row, caller),
        consumer_account_id=row.consumer_account_id,
        project_id=row.project_id,
        model_id=row.model_id,
        type=row.type,
        creator_user_id=row.creator_user_id,
        creator_name=people.named(row.creator_user_id) or "",
        job_id=None if job_status is None else row.job_id,
        job_status=job_status,
        egress=[] if given is None else list(given.egress),
        logs=None if given is None else given.logs,
        needs_attestation=_named_model(row.spec, "needs_attestation") is True,
        worker_seconds=seconds,
        federated_fee_microcredits=fee,
    )


def _role(row: tables.FederatedJob, caller: Caller) -> schemas.FederatedRole:
    if row.account_id == row.consumer_account_id:
        return schemas.FederatedRole.BOTH
    is_creator = row.account_id == caller.account_id
    return schemas.FederatedRole.CREATOR if is_creator else schemas.FederatedRole.CONSUMER


def _reason(row: tables.FederatedJob, caller: Caller) -> str | None:
    """Why it has its status, with the causes of the reader's own side."""
    if row.status_reason is None:
        return None
    own = {
        schemas.FederatedRole.CREATOR: row.creator_reason,
        schemas.FederatedRole.CONSUMER: row.consumer_reason,
        schemas.FederatedRole.BOTH: row.creator_reason or row.consumer_reason,
    }
    return own[_role(row, caller)] or row.status_reason


def check_logs_shown(session: Session, job: tables.Job) -> None:
    """Refuse the log of a federated job, unless its project has shown all when it was created.

    Raises: Problem `forbidden`.
    """
    if job.federated_id is None:
        return
    row = session.get_one(tables.FederatedJob, job.federated_id)
    if row.logs != LogPolicy.ALL:
        words = f"job {job.name}: the log of a federated job is withheld on its node"
        raise Problem("forbidden", f"{words}; its project says so (federated_logs)")


def check_output_shown(job: tables.Job) -> None:
    """Refuse output and snapshots of a federated job, which go to the consumer's datastore alone.

    Raises: Problem `forbidden`.
    """
    if job.federated_id is not None:
        words = f"job {job.name}: the output of a federated job goes to a datastore of its consumer"
        raise Problem("forbidden", f"{words} alone")


def read_federated(document: Any) -> ReadDocument:
    """Check the document of a federated job, of which the model is of another project.

    No transaction is open meanwhile, because that takes a while.
    """
    is_attested = _named_model(document, "needs_attestation")
    ordinary: dict[str, Any] = {"project_id": None}
    if is_attested is True:  # Anything else is read as it is, and refused where it is no boolean.
        ordinary["needs_attestation"] = False
    asked = read_document(_with_model(document, ordinary))
    reading = asked.reading
    if reading.submission is None:
        return asked
    submission = _attested(reading.submission) if is_attested is True else reading.submission
    mistakes = mistakes_of_federated(submission)
    update = {"submission": submission, "mistakes": (*reading.mistakes, *mistakes)}
    return ReadDocument(document, reading.model_copy(update=update), asked.known_gpu_types)


def _attested(submission: JobSubmission) -> JobSubmission:
    """The submission whose model needs an attestation."""
    named = submission.data.model
    if named is None:
        return submission
    model = named.model_copy(update={"needs_attestation": True})
    return submission.model_copy(
        update={"data": submission.data.model_copy(update={"model": model})}
    )


def _with_model(document: Any, update: dict[str, Any] | None) -> Any:
    """The document with other fields of its model; None: without a model."""
    data = document.get("data") if isinstance(document, dict) else None
    model = data.get("model") if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(model, dict):
        return document
    changed = None if update is None else model | update
    return document | {"data": data | {"model": changed}}


def create_federated_job(context: ChangeContext, asked: ReadDocument) -> schemas.FederatedJob:
    """Create a federated job in the project of a consumer, from a document that breaks no rule.

    What the consumer has to allow is asked by its lifecycle, which refuses it where that is not so.
    Raises: Problem `plan-required`; `invalid-request`, with every mistake in the document;
    `forbidden`, without the permission, and as `conflict` by a rule for the creator;
    `insufficient-credits`; `not-found`, for the project; `limit-reached`, for the project
    or its owner; `storage-exhausted`, for its owner.
    """
    without_model = ReadDocument(
        _with_model(asked.document, None), asked.reading, asked.known_gpu_types
    )
    submission, project = accepted_federated(context, without_model)
    check_plan(context, Feature.FEDERATED_JOBS)
    model = _model(context, submission, asked.document)
    hold_project(context.session, project)
    check_limit(context, tables.FederatedJob, project.id)
    row = _row(context, submission, project, model.id)
    refusal = first_of(Party.CREATOR, refusals_of(parties_of(context.session, row)))
    if refusal is not None:
        raise Problem(refusal.code.value, refusal.words)
    if row.account_id != row.consumer_account_id:
        must_have_credits(context.session, row.account_id, "start a federated job")
    context.concerned_account_id = row.consumer_account_id
    context.create(row)
    return federated_response(context.session, context.caller, row)


def _row(
    context: ChangeContext, submission: JobSubmission, project: tables.Project, model_id: str
) -> tables.FederatedJob:
    job_id = new_id("job")
    owned = submission.placement.model_copy(update={"only_owned": True})
    submission = submission.model_copy(update={"placement": owned})
    row = tables.FederatedJob(
        id=new_id("fed"),
        account_id=context.caller.account_id,
        name=submission.name,
        consumer_account_id=project.account_id,
        project_id=project.id,
        model_id=model_id,
        creator_user_id=context.caller.user_id,
        type=submission.type.value,
        job_id=job_id,
        spec=stored_spec(submission),
        sealed_variables=sealed_variables(job_id, submission),
        created_at=context.now,
        updated_at=context.now,
    )
    if needs_attestation(submission):
        make_attested_key(row)
    return row


def _model(context: ChangeContext, submission: JobSubmission, document: Any) -> tables.Model:
    """The model that a document names, locked against its removal.

    Raises: Problem `invalid-request`, when the account cannot see it, or it is of another project.
    """
    named, table = submission.data.model, tables.Model
    model_id = "" if named is None else named.id
    query = select(table).where(
        table.id == model_id, visible_artifacts(context.session, context.caller, table)
    )
    row = context.session.exec(query.with_for_update(read=True)).first()
    if row is None:
        rule = "is a model of your account, whose owner alone starts federated jobs: not found"
        raise invalid(field_error("data.model.id", rule, model_id))
    project_id = _named_model(document, "project_id")
    if project_id is not None and project_id != row.project_id:
        rule = f"is the project of the model: this one is of {row.project_id}"
        raise invalid(field_error("data.model.project_id", rule, project_id))
    return row


def _named_model(document: Any, field: str) -> Any:
    """A field of the model, as the document has it."""
    for part in (*_MODEL, field):
        document = document.get(part) if isinstance(document, dict) else None
    return document


def cancel_federated_job(context: ChangeContext, federated_id: str) -> schemas.FederatedJob:
    """Let a federated job end, whichever party asks; a second call changes nothing.

    Raises: Problem `not-found`; `conflict`, when it has ended.
    """
    row = visible_federated_job(context.session, context.caller, federated_id, locked=True)
    if row.status in FEDERATED.final_statuses:
        raise Problem("conflict", f"federated job {row.name}: is {row.status}; cannot be canceled")
    if row.end_reason is None:
        party = _role(row, context.caller).value
        by = "its owner" if party == "both" else f"the {party}"
        row.end_reason = f"canceled for {by} by {context.caller.user_id}"
        row.end_requested_at = context.now
        context.session.add(row)
    is_creators = row.account_id == context.caller.account_id
    context.concerned_account_id = row.consumer_account_id if is_creators else row.account_id
    context.wake(row.id)
    return federated_response(context.session, context.caller, row)
