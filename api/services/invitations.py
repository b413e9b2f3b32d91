"""Invitations: making them, withdrawing them, and accepting them with their one-time tokens."""

import hmac
import secrets
from datetime import datetime
from typing import Any

from sqlmodel import Session, or_, select

from activities.accounts.accounts import role_in
from activities.db import tables
from activities.db.ids import new_id
from activities.federation.consent import wake_federated_of_project
from api.authorization import hash_of
from api.changes import ChangeContext
from api.problems import Problem, field_error, invalid
from api.schemas import invitations as schemas
from api.services.account_limits import check_limit
from api.services.memberships import check_home
from api.services.ownership import own_locked, own_project
from workflows.rules.accounts.memberships import (
    INVITATION_LASTS,
    Invited,
    invitation_status,
    refusal_of_acceptance,
)
from workflows.rules.accounts.permissions import Role

ATTEMPTS_PER_MINUTE = 20
"""How often the keys of one account may try tokens, which nobody can guess anyway."""


def invitation_response(row: tables.Invitation, now: datetime) -> schemas.Invitation:
    status = invitation_status(row.accepted_at, row.withdrawn_at, row.expires_at, now)
    return schemas.Invitation(
        **row.model_dump(exclude={"secret_sha256", "accepted_at", "withdrawn_at"}),
        status=status.value,
    )


def create_invitation(
    context: ChangeContext, asked: schemas.InvitationCreation
) -> schemas.NewInvitation:
    """Invite a person to a project or to the account; who invites passes the token on.

    Raises: Problem `invalid-request`; `not-found`, when the project is another account's;
    `conflict`, for the Personal project, or a user of the account; `limit-reached`.
    """
    _check_target(context, asked)
    account_id = context.caller.account_id
    same = or_(tables.User.email == asked.email, tables.User.claimed_email == asked.email)
    users = select(tables.User).where(tables.User.account_id == account_id, same)
    if context.session.exec(users).first() is not None:
        raise Problem("conflict", f"user {asked.email}: is of the account already")
    check_limit(context, tables.Invitation)
    # The secret has 256 random bits, so nobody can guess it, and a plain hash is safe to store.
    secret = f"inv_{secrets.token_urlsafe(32)}"
    row = tables.Invitation(
        id=new_id("inv"),
        account_id=account_id,
        project_id=asked.project_id,
        permissions=dict(asked.permissions) if asked.permissions else None,
        role=asked.role,
        email=asked.email,
        secret_sha256=hash_of(secret),
        inviter_user_id=context.caller.user_id,
        created_at=context.now,
        expires_at=context.now + INVITATION_LASTS,
    )
    context.session.add(row)
    shown = invitation_response(row, context.now)
    return schemas.NewInvitation(**shown.model_dump(), secret=secret)


def _check_target(context: ChangeContext, asked: schemas.InvitationCreation) -> None:
    if asked.project_id is None:
        if asked.role is None:
            raise invalid(field_error("role", "is needed, or project_id with permissions"))
        if asked.permissions is not None:
            raise invalid(field_error("permissions", "is for a project: project_id is needed"))
        return
    project = own_project(context.session, asked.project_id, context.caller, lock="use")
    if project.personal:
        raise Problem("conflict", f"project {project.name}: the Personal project is not shared")
    if asked.role is not None:
        raise invalid(field_error("role", "is for the account; a project has permissions"))
    if asked.permissions is None:
        raise invalid(field_error("permissions", "is needed with project_id"))


def withdraw_invitation(context: ChangeContext, invitation_id: str) -> schemas.Invitation:
    """Withdraw an invitation; a second call changes nothing.

    Raises: Problem `not-found`; `conflict`, when it is accepted.
    """
    row = own_locked(context.session, tables.Invitation, invitation_id, context.caller)
    if row.accepted_at is not None:
        where = "the project" if row.project_id else "the account"
        raise Problem(
            "conflict", f"invitation {row.id}: is accepted; remove the member from {where}"
        )
    row.withdrawn_at = row.withdrawn_at or context.now
    return invitation_response(row, context.now)


def accept_invitation(
    context: ChangeContext, invitation_id: str, token: str
) -> schemas.AcceptedInvitation:
    """Make the caller's user a member, and prove the user's address by the token.

    Raises: Problem `not-found`, unless the token is that of the invitation; `conflict`, when the
    invitation does not count for this user; `forbidden`, with a key of another account than the
    user's own.
    """
    session, caller = context.session, context.caller
    check_home(caller)
    row = session.get(tables.Invitation, invitation_id)
    if row is None or not hmac.compare_digest(row.secret_sha256, hash_of(token)):
        # The same words for both, so that nobody learns which invitations there are.
        raise Problem("not-found", f"invitation {invitation_id}: not found with this token")
    is_there = _is_there(session, row)  # It is locked before the row, as by its removal.
    session.refresh(row, with_for_update=True)
    user = session.get_one(tables.User, caller.user_id)
    refusal = refusal_of_acceptance(_invited(context, row, user, is_there=is_there))
    if refusal is not None:
        raise Problem("conflict", f"invitation {row.id}: {refusal}")
    context.concerned_account_id = row.account_id
    row.accepted_at, row.accepted_by = context.now, user.id
    user.email, user.claimed_email = row.email, row.email
    user.email_verified_at = user.email_verified_at or context.now
    key = None
    if row.project_id is not None:
        _join_project(context, row, user)
    else:
        key = _join_account(context, row, user)
    return schemas.AcceptedInvitation(
        id=row.id,
        account_id=row.account_id,
        project_id=row.project_id,
        permissions=row.permissions,
        role=row.role,
        key_id=key[0] if key else None,
        secret=key[1] if key else None,
    )


def _invited(
    context: ChangeContext, row: tables.Invitation, user: tables.User, *, is_there: bool
) -> Invited:
    session = context.session
    status = invitation_status(row.accepted_at, row.withdrawn_at, row.expires_at, context.now)
    provers = select(tables.User).where(tables.User.email == row.email, tables.User.id != user.id)
    inviter = session.get_one(tables.User, row.inviter_user_id)
    return Invited(
        status=status,
        is_addressee=row.email in (user.claimed_email, user.email),
        proved_by_another=session.exec(provers).first() is not None,
        is_of_account=user.account_id == row.account_id,
        inviter_may=role_in(session, inviter, row.account_id) == Role.OWNER
        or _is_administrators(session, inviter),
        is_there=is_there,
    )


def _is_administrators(session: Session, user: tables.User) -> bool:
    """Whether a user is an owner of the administrators' account, who may act for any account."""
    account = session.get_one(tables.Account, user.account_id)
    return account.is_administrator and user.role == Role.OWNER


def _is_there(session: Session, row: tables.Invitation) -> bool:
    """Whether the project and the account are there, which nobody then removes meanwhile.

    They are locked in this order, as whoever makes something in a project locks them.
    """
    locked: Any = {"populate_existing": True, "with_for_update": {"read": True, "key_share": True}}
    if row.project_id is not None:
        project = session.get_one(tables.Project, row.project_id, **locked)
        if project.removed_at is not None:
            return False
    return session.get_one(tables.Account, row.account_id, **locked).removed_at is None


def _join_project(context: ChangeContext, row: tables.Invitation, user: tables.User) -> None:
    context.session.merge(
        tables.ProjectMember(
            project_id=row.project_id or "",
            user_id=user.id,
            permissions=row.permissions or {},
            created_at=context.now,
        )
    )
    # An earlier membership may have allowed more.
    context.requests += wake_federated_of_project(
        context.session, row.project_id or "", context.now, user.id
    )


def _join_account(
    context: ChangeContext, row: tables.Invitation, user: tables.User
) -> tuple[str, str]:
    """Make the user a member of the account, with a key there; the key's id and the key itself.

    The token has proved who the person is. The key lasts no longer than the one that accepts, has
    no other scopes, the same rate limit of its own, and is revoked with it.
    """
    role = row.role or Role.MEMBER
    member = tables.AccountMember(
        account_id=row.account_id, user_id=user.id, role=role, created_at=context.now
    )
    context.session.merge(member)
    check_limit(context, tables.ApiKey, row.account_id)
    secret = f"bl_{secrets.token_urlsafe(32)}"
    key = tables.ApiKey(
        id=new_id("key"),
        account_id=row.account_id,
        user_id=user.id,
        parent_key_id=context.caller.key_id,
        name=f"invitation of {user.email}"[:100],
        secret_sha256=hash_of(secret),
        scopes=sorted(context.caller.scopes),
        requests_per_minute=context.caller.requests_per_minute,
        expires_at=context.caller.expires_at,
        created_at=context.now,
    )
    context.session.add(key)
    return key.id, secret
