"""How many resources one account, or one project, may have: refusals of more."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement
from sqlmodel import Session, col, func, literal, select, text

from activities.db.session import advisory_lock
from activities.db.tables import (
    ARTIFACT_TABLES,
    Account,
    ApiKey,
    ArtifactRow,
    BootDriveRequest,
    Device,
    DeviceConfiguration,
    DeviceDeployment,
    FederatedJob,
    Invitation,
    Job,
    JoinToken,
    Project,
    Reservation,
    StoredSecret,
    Upload,
    User,
)
from activities.settings import settings
from workflows.rules.counts import counted

Limited = (
    Job | ApiKey | JoinToken | Project | User | StoredSecret | Upload | Reservation | ArtifactRow
    | BootDriveRequest | Invitation | Device | DeviceConfiguration | DeviceDeployment
    | FederatedJob
)  # fmt: skip
Counted = Callable[[str, datetime], tuple[ColumnElement[bool], ...]]
AT_ONCE = 1000
"""More transactions than all processes have open at once. So far from the limit nobody waits."""


@dataclass(frozen=True, slots=True)
class Limit:
    """The limit of one kind of resource.

    noun: what an error calls one of them. counted: the conditions whose rows count, by the id of
    who has them and the present time; an index answers each, and no row meets two. advice: how to
    make room. holder: what has them, an `account` or a `project`.
    """

    setting: str
    noun: str
    counted: Counted
    advice: str
    holder: str = "account"


def _of(table: type[Any]) -> Counted:
    return lambda account_id, _: (col(table.account_id) == account_id,)


def _there(table: type[ArtifactRow]) -> Counted:
    is_there = text("status != 'archived'")
    return lambda account_id, _: ((col(table.account_id) == account_id) & is_there,)


def _open_jobs(account_id: str, _: datetime) -> tuple[ColumnElement[bool], ...]:
    # As text, because SQLite uses a partial index for its own condition alone.
    is_open = text("status NOT IN ('finished', 'failed', 'canceled', 'archived')")
    return ((col(Job.account_id) == account_id) & is_open,)


def _valid_keys(account_id: str, now: datetime) -> tuple[ColumnElement[bool], ...]:
    unrevoked = (col(ApiKey.account_id) == account_id) & col(ApiKey.revoked_at).is_(None)
    expires_at = col(ApiKey.expires_at)
    return unrevoked & expires_at.is_(None), unrevoked & (expires_at > now)


def _unbound_tokens(account_id: str, _: datetime) -> tuple[ColumnElement[bool], ...]:
    return ((col(JoinToken.account_id) == account_id) & col(JoinToken.minion_id).is_(None),)


def _kept_projects(account_id: str, _: datetime) -> tuple[ColumnElement[bool], ...]:
    return ((col(Project.account_id) == account_id) & col(Project.removed_at).is_(None),)


def _open_invitations(account_id: str, now: datetime) -> tuple[ColumnElement[bool], ...]:
    is_open = col(Invitation.accepted_at).is_(None) & col(Invitation.withdrawn_at).is_(None)
    of_account = col(Invitation.account_id) == account_id
    return (of_account & is_open & (col(Invitation.expires_at) > now),)


def _kept_reservations(account_id: str, _: datetime) -> tuple[ColumnElement[bool], ...]:
    is_kept = col(Reservation.removed_at).is_(None)
    return ((col(Reservation.account_id) == account_id) & is_kept,)


def _kept_devices(account_id: str, _: datetime) -> tuple[ColumnElement[bool], ...]:
    is_there = text("status != 'archived'")
    return ((col(Device.account_id) == account_id) & is_there,)


def _kept_configurations(account_id: str, _: datetime) -> tuple[ColumnElement[bool], ...]:
    is_kept = col(DeviceConfiguration.removed_at).is_(None)
    return ((col(DeviceConfiguration.account_id) == account_id) & is_kept,)


def _open_deployments(account_id: str, _: datetime) -> tuple[ColumnElement[bool], ...]:
    is_open = text("status NOT IN ('finished', 'stopped', 'failed', 'rolled_back')")
    return ((col(DeviceDeployment.account_id) == account_id) & is_open,)


def _open_boot_drive_requests(account_id: str, _: datetime) -> tuple[ColumnElement[bool], ...]:
    is_open = text("status IN ('requested', 'approved', 'shipped')")
    return ((col(BootDriveRequest.account_id) == account_id) & is_open,)


def _open_federated_jobs(project_id: str, _: datetime) -> tuple[ColumnElement[bool], ...]:
    is_open = text("status NOT IN ('settled', 'refused')")
    return ((col(FederatedJob.project_id) == project_id) & is_open,)


LIMITS: Mapping[type[Limited], Limit] = {
    Job: Limit(
        "account_most_open_jobs",
        "open job",
        _open_jobs,
        "wait until jobs have ended, or cancel some",
    ),
    ApiKey: Limit("account_most_api_keys", "valid API key", _valid_keys, "revoke some"),
    JoinToken: Limit(
        "account_most_join_tokens",
        "join token that no machine has used",
        _unbound_tokens,
        "one goes a week after it has expired",
    ),
    Project: Limit("account_most_projects", "project", _kept_projects, "remove some"),
    User: Limit("account_most_users", "user", _of(User), "use one that is there already"),
    Invitation: Limit(
        "account_most_invitations",
        "open invitation",
        _open_invitations,
        "withdraw some; one expires after 7 days",
    ),
    StoredSecret: Limit("account_most_secrets", "secret", _of(StoredSecret), "remove some"),
    Upload: Limit(
        "account_most_uploads",
        "upload",
        _of(Upload),
        "name one that is there already; an upload goes when no job has named it for 30 days",
    ),
    Reservation: Limit(
        "account_most_reservations", "reservation", _kept_reservations, "remove some"
    ),
    Device: Limit("account_most_devices", "device", _kept_devices, "remove some"),
    DeviceConfiguration: Limit(
        "account_most_device_configurations",
        "device configuration",
        _kept_configurations,
        "remove some",
    ),
    DeviceDeployment: Limit(
        "account_most_open_deployments",
        "open deployment",
        _open_deployments,
        "wait until deployments have ended, or stop some",
    ),
    FederatedJob: Limit(
        "project_most_open_federated_jobs",
        "open federated job",
        _open_federated_jobs,
        "wait until some are settled, or cancel some",
        holder="project",
    ),
    BootDriveRequest: Limit(
        "account_most_boot_drive_requests",
        "open boot-drive request",
        _open_boot_drive_requests,
        "say which drives were received, or withdraw a request",
    ),
    **{
        table: Limit(
            "account_most_artifacts", str(table.__tablename__)[:-1], _there(table), "remove some"
        )
        for table in ARTIFACT_TABLES.values()
    },
}


def refusal_of_more(
    session: Session, table: type[Limited], holder_id: str, now: datetime, count: int
) -> str | None:
    """Why `count` further rows of this table are too many; None: they are not.

    holder_id: of the account that has them, or of the project, as their limit says. Close to the
    limit, those who ask for one holder follow each other to the end of their transactions, so that
    they get no more together.
    """
    limit = LIMITS[table]
    most: int = getattr(settings(), limit.setting)
    if not settings().administrators_have_limits and _is_administrator(session, holder_id):
        return None
    found = _count(session, table, holder_id, now)
    if found + count + AT_ONCE > most:
        advisory_lock(session, f"{limit.setting}/{holder_id}")
        found = _count(session, table, holder_id, now)
    if found + count <= most:
        return None
    return (
        f"{limit.holder} {holder_id}: asked for {counted(count, f'more {limit.noun}')}; "
        f"found {found}, at most {most} "
        f"(BASELOAD_{limit.setting.upper()}): {limit.advice}"
    )


def _count(session: Session, table: type[Limited], holder_id: str, now: datetime) -> int:
    counts = (
        select(func.count(literal(1))).select_from(table).where(condition)
        for condition in LIMITS[table].counted(holder_id, now)
    )
    return sum(int(session.exec(count).one()) for count in counts)


def _is_administrator(session: Session, account_id: str) -> bool:
    account = session.get(Account, account_id)
    return account is not None and account.is_administrator
