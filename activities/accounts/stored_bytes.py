"""The quota of an account in the object store: uploads, what jobs have stored, and artifacts."""

from typing import Any

from sqlmodel import Session, col, func, select, update

from activities.db.session import advisory_lock
from activities.db.tables import ARTIFACT_TABLES, Account, ArtifactRow, Job, Upload
from activities.settings import settings
from workflows.contracts.artifacts import ArtifactStatus
from workflows.contracts.statuses import JobStatus


def refusal_of_upload(
    session: Session, account_id: str, sha256: str, size_bytes: int
) -> str | None:
    """Why the account has no room for an upload; None: it has.

    Equal bytes of the account count once. The account's uploads follow each other from here to the
    end of the transaction.
    """
    follow_each_other(session, account_id)
    same = select(Upload.id).where(Upload.account_id == account_id, Upload.sha256 == sha256)
    if session.exec(same).first() is not None:
        return None
    asked = f"asked {size_bytes} bytes for the archive {sha256}"
    return _refusal(session, account_id, size_bytes, asked)


def follow_each_other(session: Session, account_id: str) -> None:
    """Let those who store for the account follow each other to the end of their transactions.

    It is taken before the rows of what is stored are locked.
    """
    advisory_lock(session, f"stored-bytes/{account_id}")


def refusal_of_job(session: Session, account_id: str) -> str | None:
    """Why the account has no room for what one more job stores; None: it has some."""
    return _refusal(session, account_id, 1, "asked a job, whose log and output are stored")


def job_bytes(session: Session, job_id: str) -> int:
    """What a job counts for in the `job_bytes` of its account."""
    query = select(Job.log_bytes, Job.state_bytes).where(
        Job.id == job_id, Job.status != JobStatus.ARCHIVED
    )
    return sum(bytes_ or 0 for row in session.exec(query) for bytes_ in row)


def add_job_bytes(session: Session, account_id: str, more: int) -> None:
    """Add to the `job_bytes` of an account, which so never have to be summed."""
    if more:
        total = col(Account.job_bytes) + more
        changed = update(Account).where(col(Account.id) == account_id).values(job_bytes=total)
        session.execute(changed)


def refusal_of_artifact(session: Session, account_id: str, size_bytes: int) -> str | None:
    """Why the account has no room for so many more bytes of an artifact; None: it has."""
    return _refusal(session, account_id, size_bytes, f"asked {size_bytes} bytes of an artifact")


def room_of_artifact(session: Session, artifact: ArtifactRow) -> int:
    """How many bytes the content of an artifact may have in all, by its account's quota."""
    own = _artifact_size(type(artifact))
    stored = session.exec(select(own).where(type(artifact).id == artifact.id)).first() or 0
    used = sum(_stored(session, artifact.account_id)) - int(stored)
    return max(0, settings().account_stored_max_bytes - used)


def _refusal(session: Session, account_id: str, size_bytes: int, asked: str) -> str | None:
    uploads, outputs, logs, artifacts = _stored(session, account_id)
    limit = settings().account_stored_max_bytes
    if uploads + outputs + logs + artifacts + size_bytes <= limit:
        return None
    return (
        f"account {account_id}: {asked}; found {uploads} bytes of uploads, {outputs} bytes of "
        f"outputs, {logs} bytes of logs and state snapshots and {artifacts} bytes of datasets, "
        f"models, checkpoints and volumes, at most {limit} together "
        "(BASELOAD_ACCOUNT_STORED_MAX_BYTES): remove ended jobs with their logs and outputs, or "
        "such as no job uses; an upload goes when no job has named it for 30 days"
    )


def _stored(session: Session, account_id: str) -> tuple[int, int, int, int]:
    """The bytes of uploads, of outputs, of logs with state snapshots, and of artifacts."""
    account = select(Account.job_bytes).where(Account.id == account_id)
    return (
        _uploads_bytes(session, account_id),
        _outputs_bytes(session, account_id),
        session.exec(account).first() or 0,
        _artifacts_bytes(session, account_id),
    )


def _artifacts_bytes(session: Session, account_id: str) -> int:
    """What is stored of artifacts that are not archived, complete or not."""
    sums: list[Any] = [
        select(func.coalesce(func.sum(_artifact_size(table)), 0)).where(
            table.account_id == account_id, table.status != ArtifactStatus.ARCHIVED
        )
        for table in ARTIFACT_TABLES.values()
    ]
    return sum(int(session.exec(one).one() or 0) for one in sums)


def _artifact_size(table: type[ArtifactRow]) -> Any:
    return func.coalesce(col(table.size_bytes), col(table.bytes_transferred))


def _uploads_bytes(session: Session, account_id: str) -> int:
    sizes: Any = select(col(Upload.sha256), col(Upload.size_bytes).label("size_bytes"))
    own = sizes.where(Upload.account_id == account_id).distinct().subquery()
    return int(session.exec(select(func.coalesce(func.sum(own.c.size_bytes), 0))).one())


def _outputs_bytes(session: Session, account_id: str) -> int:
    """The outputs of jobs that are not archived; with a job goes its output."""
    query = select(func.coalesce(func.sum(col(Job.output_bytes)), 0)).where(
        Job.account_id == account_id,
        col(Job.output_bytes).is_not(None),
        Job.status != JobStatus.ARCHIVED,
    )
    return int(session.exec(query).one() or 0)
