"""The quota of an account in the object store: what its uploads and outputs may have together."""

from typing import Any

from sqlmodel import Session, col, func, select

from activities.db.session import advisory_lock
from activities.db.tables import Job, Upload
from activities.settings import settings
from workflows.contracts.statuses import JobStatus


def refusal_of_upload(
    session: Session, account_id: str, sha256: str, size_bytes: int
) -> str | None:
    """Why the account has no room for an upload; None: it has.

    Equal bytes of the account count once. The account's uploads follow each other from here to the
    end of the transaction.
    """
    advisory_lock(session, f"stored-bytes/{account_id}")
    same = select(Upload.id).where(Upload.account_id == account_id, Upload.sha256 == sha256)
    if session.exec(same).first() is not None:
        return None
    asked = f"asked {size_bytes} bytes for the archive {sha256}"
    return _refusal(session, account_id, size_bytes, asked)


def refusal_of_output(session: Session, account_id: str) -> str | None:
    """Why the account has no room for the outputs of one more job; None: it has some."""
    return _refusal(session, account_id, 1, "asked a job whose output is stored")


def _refusal(session: Session, account_id: str, size_bytes: int, asked: str) -> str | None:
    uploads, outputs = _uploads_bytes(session, account_id), _outputs_bytes(session, account_id)
    limit = settings().account_stored_max_bytes
    if uploads + outputs + size_bytes <= limit:
        return None
    return (
        f"account {account_id}: {asked}; found {uploads} bytes of uploads and {outputs} bytes of "
        f"outputs, at most {limit} together (BASELOAD_ACCOUNT_STORED_MAX_BYTES): remove ended jobs "
        "with their outputs; an upload goes when no job has named it for 30 days"
    )


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
