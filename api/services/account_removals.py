"""The removal of accounts, which is refused with what they have."""

from collections.abc import Iterator

from sqlmodel import Session, col, or_, select

from activities.billing.device_days import uncharged_day
from activities.billing.payers import credits_name
from activities.db import tables
from activities.db.session import advisory_lock
from activities.lifecycles.kinds import KINDS
from api.changes import ChangeContext
from api.problems import Problem
from api.schemas import accounts as schemas
from api.services.accounts import account_response, find_account
from api.services.api_keys import revoke
from api.services.lifecycles import names_of
from workflows.contracts.billing import MICROCREDITS
from workflows.rules.counts import some_of


def remove_account(context: ChangeContext, account_id: str) -> schemas.Account:
    """Remove an account; a second call changes nothing.

    Raises: Problem `not-found`; `conflict`, with all that the account still has.
    """
    session = context.session
    advisory_lock(session, "billing-accounts")  # Another account could get this one as its payer.
    row = find_account(session, account_id)
    of_account = select(tables.Project).where(tables.Project.account_id == account_id)
    ordered = of_account.order_by(col(tables.Project.id)).with_for_update()
    projects = session.exec(ordered).all()  # Whoever makes something in one locks it first too.
    session.refresh(row, with_for_update=True)
    context.concerned_account_id = row.id
    if row.removed_at is not None:
        return account_response(session, row)
    has = [f"{kind} {some_of(names)}" for kind, names in _holds(session, row) if names]
    has += _balances(session, row)
    if row.is_administrator:
        has.append("the administrators")
    if has:
        raise Problem("conflict", f"account {row.name}: has {'; '.join(has)}")
    for each in projects:
        each.removed_at = each.removed_at or context.now
    row.removed_at = row.updated_at = context.now
    _end(context, row)
    return account_response(session, row)


def _balances(session: Session, row: tables.Account) -> Iterator[str]:
    """The balances of the account itself, whoever pays for it, and what is not charged yet."""
    own = tables.LedgerAccount.account_id == row.id
    ordered = select(tables.LedgerAccount).where(own).order_by(tables.LedgerAccount.name)
    for each in session.exec(ordered):
        amount = f"{each.balance_microcredits / MICROCREDITS:.6f} credits"
        if each.balance_microcredits and each.name == credits_name(row.id):
            yield f"a balance of {amount}"
        elif each.balance_microcredits:
            yield f"earnings of {each.name.rpartition('/')[2]} that are not paid out: {amount}"
    if (day := uncharged_day(session, row.id)) is not None:
        yield f"device fees until {day} that are not charged yet"


def _holds(session: Session, row: tables.Account) -> Iterator[tuple[str, list[str]]]:
    """What the account has that runs, is kept or is paid for, by its kind, with names."""
    for kind in KINDS:
        table, ended = kind.table, kind.noun.final_statuses
        there = [table.account_id == row.id, col(table.status).not_in(ended)]
        yield kind.noun.plural, names_of(session, table, tuple(there))
    unbilled = (tables.Job.account_id == row.id, col(tables.Job.unsettled).is_not(None))
    yield "jobs whose usage is not posted yet", names_of(session, tables.Job, unbilled)
    projects = (
        tables.Project.account_id == row.id,
        col(tables.Project.removed_at).is_(None),
        col(tables.Project.personal).is_(False),
    )
    yield "projects", names_of(session, tables.Project, projects)
    paid = (tables.Account.billing_account_id == row.id, col(tables.Account.removed_at).is_(None))
    yield "accounts that it pays for", names_of(session, tables.Account, paid)


def _end(context: ChangeContext, row: tables.Account) -> None:
    """Revoke the account's keys, and end what its users and others' belong to by it."""
    session = context.session
    keys = select(tables.ApiKey).where(tables.ApiKey.account_id == row.id)
    revoke(context, session.exec(keys).all())
    users = select(tables.User.id).where(tables.User.account_id == row.id)
    projects = select(tables.Project.id).where(tables.Project.account_id == row.id)
    of_accounts, of_projects = tables.AccountMember, tables.ProjectMember
    for member in session.exec(
        select(of_accounts).where(
            or_(of_accounts.account_id == row.id, col(of_accounts.user_id).in_(users))
        )
    ):
        session.delete(member)
    for each in session.exec(
        select(of_projects).where(
            or_(col(of_projects.project_id).in_(projects), col(of_projects.user_id).in_(users))
        )
    ):
        session.delete(each)
    for invitation in session.exec(
        select(tables.Invitation).where(
            tables.Invitation.account_id == row.id, col(tables.Invitation.accepted_at).is_(None)
        )
    ):
        invitation.withdrawn_at = invitation.withdrawn_at or context.now
