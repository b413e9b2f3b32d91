"""Users of an account: its own, and members that have accepted an invitation to it."""

from collections.abc import Sequence

from sqlmodel import Session, col, or_, select
from sqlmodel.sql.expression import SelectOfScalar

from activities.accounts import accounts
from activities.db import tables
from activities.db.session import advisory_lock
from activities.federation.consent import wake_federated_of_account
from api.changes import ChangeContext
from api.problems import Problem, missing
from api.schemas import accounts as schemas
from api.services.account_limits import check_limit
from api.services.memberships import check_owner_stays, end_membership


def users_of(account_id: str) -> SelectOfScalar[tables.User]:
    """The account's own users, and the members of other accounts' users."""
    members = select(tables.AccountMember.user_id).where(
        tables.AccountMember.account_id == account_id
    )
    return select(tables.User).where(
        or_(col(tables.User.account_id) == account_id, col(tables.User.id).in_(members))
    )


def user_responses(
    session: Session, account_id: str, rows: Sequence[tables.User]
) -> list[schemas.User]:
    """The users as one account sees them, each with the role there."""
    member = tables.AccountMember
    ids = [row.id for row in rows]
    found = session.exec(
        select(member).where(member.account_id == account_id, col(member.user_id).in_(ids))
    )
    roles = {each.user_id: each.role for each in found}
    return [_user_response(row, roles.get(row.id)) for row in rows]


def _user_response(row: tables.User, member_role: str | None = None) -> schemas.User:
    """A user; member_role: in an account that is not the user's own."""
    return schemas.User(
        id=row.id,
        account_id=row.account_id,
        email=row.claimed_email or row.email,
        email_verified=row.email_verified_at is not None,
        role=member_role or row.role,
        is_invited=member_role is not None,
        created_at=row.created_at,
    )


def create_user(context: ChangeContext, asked: schemas.UserCreation) -> schemas.User:
    """Add a user to the account; the address is a claim until its holder proves it."""
    account_id = context.caller.account_id
    advisory_lock(context.session, f"users/{account_id}")
    _check_email(context.session, account_id, asked.email)
    check_limit(context, tables.User)
    row = accounts.new_user(account_id, asked.email, asked.role, context.now)
    context.session.add(row)
    return _user_response(row)


def change_user(context: ChangeContext, user_id: str, asked: schemas.UserChange) -> schemas.User:
    """Change the role of a user in the account; it counts at once for all keys of the user.

    Raises: Problem `not-found`; `conflict`, when the account would have no owner.
    """
    user, member = _found(context, user_id)
    if asked.role != "owner":
        check_owner_stays(context, context.caller.account_id, user_id)
    if member is not None:
        member.role = asked.role
    else:
        user.role = asked.role
        session, account_id = context.session, user.account_id
        context.requests += wake_federated_of_account(session, account_id, context.now, user_id)
    return _user_response(user, member.role if member is not None else None)


def remove_user(context: ChangeContext, user_id: str) -> schemas.User:
    """Remove an invited user from the account, with the user's keys there.

    Raises: Problem `not-found`; `conflict`, for a user of the account's own, whose keys are revoked
    instead, or for its only owner.
    """
    user, member = _found(context, user_id)
    if member is None:
        detail = f"user {user_id}: belongs to the account; revoke the user's keys instead"
        raise Problem("conflict", detail)
    shown = _user_response(user, member.role)
    end_membership(context, member)
    return shown


def _found(context: ChangeContext, user_id: str) -> tuple[tables.User, tables.AccountMember | None]:
    account_id = context.caller.account_id
    advisory_lock(context.session, f"users/{account_id}")
    user = context.session.get(tables.User, user_id, populate_existing=True)
    member = context.session.get(tables.AccountMember, (account_id, user_id))
    if user is None or (user.account_id != account_id and member is None):
        raise missing("user", user_id)
    return user, member


def _check_email(session: Session, account_id: str, email: str) -> None:
    """Refuse a second user of an account with one address.

    Users of other accounts do not count: nobody has proved that an address is theirs, and an answer
    must not tell whose customer it is.
    """
    same = or_(tables.User.email == email, tables.User.claimed_email == email)
    if session.exec(select(tables.User).where(tables.User.account_id == account_id, same)).first():
        raise Problem("conflict", f"user {email}: the account has one with this address")
