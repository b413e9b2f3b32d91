"""The rows that a caller may use; rows of other accounts are answered as not found."""

from typing import Any, TypeVar

from sqlalchemy import ColumnElement
from sqlmodel import Session, SQLModel, col, or_, select

from activities.db import tables
from api.authorization import Caller
from api.problems import Problem, missing
from workflows.contracts.lifecycles import workflow_id_of
from workflows.rules.accounts.memberships import may_create_federated

Row = TypeVar("Row", bound=SQLModel)
_LOCKS: dict[str | None, Any] = {
    None: None,
    "change": True,
    "use": {"read": True, "key_share": True},
}
_LEVELS = {"read": ("read", "all"), "all": ("all",)}


def own(session: Session, table: type[Row], row_id: str, caller: Caller) -> Row:
    """The account's row of this id.

    Raises: Problem `not-found`, also when the row belongs to another account.
    """
    row = session.get(table, row_id)
    if row is None or getattr(row, "account_id", None) != caller.account_id:
        raise missing(table.__name__.lower(), row_id)
    return row


def own_locked(session: Session, table: type[Row], row_id: str, caller: Caller) -> Row:
    """The account's row of this id, locked until the transaction ends.

    Raises: Problem `not-found`, also when the row belongs to another account.
    """
    row = session.get(table, row_id, with_for_update=True)
    if row is None or getattr(row, "account_id", None) != caller.account_id:
        raise missing(table.__name__.lower(), row_id)
    return row


def projects_of(session: Session, caller: Caller, noun: str, level: str) -> list[str]:
    """The ids of other accounts' projects in which the caller's user has this permission."""
    if not caller.is_at_home:
        return []
    rows = session.exec(
        select(tables.ProjectMember).where(tables.ProjectMember.user_id == caller.user_id)
    )
    return [row.project_id for row in rows if row.permissions.get(noun) in _LEVELS[level]]


def own_project(
    session: Session, project_id: str, caller: Caller, *, lock: str | None = None
) -> tables.Project:
    """The account's project of this id, unless it was removed.

    lock: `change` lets nobody else use the project until the transaction ends, `use` lets nobody
    remove it.
    Raises: Problem `not-found`, also when the project belongs to another account.
    """
    row = session.get(
        tables.Project,
        project_id,
        with_for_update=_LOCKS[lock],
        populate_existing=lock is not None,
    )
    if row is None or row.removed_at is not None or row.account_id != caller.account_id:
        raise missing("project", project_id)
    return row


def hold_project(session: Session, project: tables.Project) -> None:
    """Let nobody remove a project until the transaction ends, in which something is made in it.

    Raises: Problem `not-found`, when somebody has just removed it.
    """
    session.refresh(project, with_for_update=_LOCKS["use"])
    if project.removed_at is not None:
        raise missing("project", project.id)


def visible_project(session: Session, caller: Caller, project_id: str) -> tables.Project:
    """A project of the account, or one that the caller's user is a member of.

    Raises: Problem `not-found`.
    """
    row = session.get(tables.Project, project_id)
    if row is not None and row.removed_at is None:
        if row.account_id == caller.account_id:
            return row
        member = session.get(tables.ProjectMember, (project_id, caller.user_id))
        if caller.is_at_home and member is not None:
            return row
    raise missing("project", project_id)


def project_for(
    session: Session, caller: Caller, project_id: str, noun: str = "job"
) -> tables.Project:
    """A project in which the caller may create resources of this noun.

    Raises: Problem `not-found`, or `forbidden` when the caller may only read there.
    """
    project = session.get(tables.Project, project_id)
    if project is not None and project.removed_at is not None:
        raise missing("project", project_id)
    if project is not None and project.account_id == caller.account_id:
        return project
    if project is None or project_id not in projects_of(session, caller, noun, "read"):
        raise missing("project", project_id)
    if project_id not in projects_of(session, caller, noun, "all"):
        raise Problem("forbidden", f"project {project_id}: its {noun}s may be read, not created")
    return project


def project_for_federated(session: Session, caller: Caller, project_id: str) -> tables.Project:
    """A project in which the caller may create federated jobs.

    Raises: Problem `not-found`, or `forbidden` when the caller is a member who may not.
    """
    project = visible_project(session, caller, project_id)
    if project.account_id == caller.account_id:
        return project
    member = session.get_one(tables.ProjectMember, (project_id, caller.user_id))
    if not may_create_federated(member.permissions):
        found = ", ".join(f"{noun}:{level}" for noun, level in sorted(member.permissions.items()))
        words = f"project {project_id}: asked to create a federated job, found {found}"
        raise Problem("forbidden", f"{words}; its owner gives the permission federated:all")
    return project


def visible_jobs(session: Session, caller: Caller, level: str = "read") -> ColumnElement[bool]:
    """The condition that a job is the account's, or in a project that its user is a member of."""
    shared = projects_of(session, caller, "job", level)
    return or_(
        col(tables.Job.account_id) == caller.account_id, col(tables.Job.project_id).in_(shared)
    )


def visible_job(session: Session, caller: Caller, job_id: str, level: str = "read") -> tables.Job:
    """A job that the caller may read, or change with level `all`.

    Raises: Problem `not-found`, or `forbidden` when the caller may only read it.
    """
    job = session.get(tables.Job, job_id)
    if job is not None and job.account_id == caller.account_id:
        return job
    if job is None or job.project_id not in projects_of(session, caller, "job", "read"):
        raise missing("job", job_id)
    if job.project_id not in projects_of(session, caller, "job", level):
        raise Problem("forbidden", f"job {job_id}: may be read, not changed")
    return job


def has_known_output(caller: Caller) -> ColumnElement[bool]:
    """The condition that a caller who reads a job may know how much it writes.

    Of a federated job the consumer's account alone may: by sizes and counts of files the model
    could say to its owner what it has read.
    """
    of_account = col(tables.Job.account_id) == caller.account_id
    return or_(of_account, col(tables.Job.federated_id).is_(None))


def knows_output(caller: Caller, job: tables.Job) -> bool:
    """Whether a caller who reads the job may know how much it writes; see `has_known_output`."""
    return job.federated_id is None or job.account_id == caller.account_id


def visible_artifacts(
    session: Session, caller: Caller, table: type[tables.ArtifactRow], level: str = "read"
) -> ColumnElement[bool]:
    """The condition that a dataset, model, checkpoint or volume is the account's, or in a project
    in which its user has this permission for them."""
    shared = projects_of(session, caller, table.__name__.lower(), level)
    return or_(col(table.account_id) == caller.account_id, col(table.project_id).in_(shared))


def visible_artifact(
    session: Session, caller: Caller, artifact_id: str, level: str = "read", *, locked: bool = False
) -> tables.ArtifactRow:
    """A dataset, model, checkpoint or volume that the caller may read, or change with `all`.

    locked: until the transaction ends.
    Raises: Problem `not-found`, or `forbidden` when the caller may only read it.
    """
    try:
        table = tables.table_of_artifact(artifact_id)
    except ValueError:
        raise missing("artifact", artifact_id) from None
    noun = table.__name__.lower()
    row = session.get(table, artifact_id, with_for_update=locked)
    if row is not None and row.account_id == caller.account_id:
        return row
    if row is None or row.project_id not in projects_of(session, caller, noun, "read"):
        raise missing(noun, artifact_id)
    if row.project_id not in projects_of(session, caller, noun, level):
        raise Problem("forbidden", f"{noun} {artifact_id}: may be read, not changed")
    return row


def lifecycle(row: tables.LifecycleRow) -> dict[str, Any]:
    """The fields that every response of a resource with a lifecycle has."""
    return {
        "id": row.id,
        "account_id": row.account_id,
        "name": row.name,
        "status": row.status,
        "status_reason": row.status_reason,
        "created_at": row.created_at,
        "updated_at": row.updated_at,
        "workflow_id": workflow_id_of(row.id),
    }
