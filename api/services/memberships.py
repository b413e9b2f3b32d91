"""What a user belongs to: the accounts and others' projects, joining them and leaving them.

A membership counts for keys of the user's own account. Keys of another account that the user is a
member of act for that account alone, because its owners make keys of its users.
"""

from sqlmodel import Session, col, func, select

from activities.db import tables
from activities.db.session import advisory_lock
from activities.federation.consent import wake_federated_of_project
from api.authorization import Caller
from api.changes import ChangeContext
from api.problems import Problem, missing
from api.schemas.memberships import AccountMembership, Memberships, ProjectMembership
from api.services.api_keys import revoke
from workflows.rules.accounts.permissions import Role

MOST_SHOWN = 1000


def memberships(session: Session, caller: Caller) -> Memberships:
    """The newest memberships of the caller's user, at most `MOST_SHOWN` of each kind."""
    user = session.get_one(tables.User, caller.user_id)
    of_accounts = select(tables.AccountMember, tables.Account).join(tables.Account)
    of_accounts = of_accounts.where(tables.AccountMember.user_id == user.id)
    found = session.exec(of_accounts.order_by(col(tables.Account.id)).limit(MOST_SHOWN)).all()
    own = session.get_one(tables.Account, user.account_id)
    joined = [(own, user.role, user.created_at)]
    joined += [(account, member.role, member.created_at) for member, account in found]
    return Memberships(
        accounts=[
            AccountMembership(
                account_id=account.id,
                name=account.name,
                role=role,
                is_own=account.id == user.account_id,
                is_current=account.id == caller.home_account_id,
                created_at=created_at,
            )
            for account, role, created_at in joined
            if caller.is_at_home or account.id == caller.home_account_id
        ],
        projects=_of_projects(session, user.id) if caller.is_at_home else [],
    )


def _of_projects(session: Session, user_id: str) -> list[ProjectMembership]:
    found = select(tables.ProjectMember, tables.Project).join(tables.Project)
    found = found.where(tables.ProjectMember.user_id == user_id)
    return [
        ProjectMembership(
            project_id=project.id,
            account_id=project.account_id,
            name=project.name,
            permissions=member.permissions,
            created_at=member.created_at,
        )
        for member, project in session.exec(
            found.order_by(col(tables.Project.id)).limit(MOST_SHOWN)
        )
    ]


def check_home(caller: Caller) -> None:
    """Refuse what is the user's own affair to keys of other accounts, and to who acts for them.

    Raises: Problem `forbidden`.
    """
    if not caller.is_at_home:
        detail = f"key {caller.key_id}: asked a key of the user's own account, for that account"
        raise Problem("forbidden", detail)


def leave_project(context: ChangeContext, project_id: str) -> ProjectMembership:
    """End the membership of the caller's user in a project, and what is open by it.

    Raises: Problem `forbidden`, `not-found`; `conflict`, for a project of the user's own account.
    """
    check_home(context.caller)
    session = context.session
    own = session.get(tables.Project, project_id)
    if own is not None and own.account_id == context.caller.account_id and own.removed_at is None:
        raise Problem("conflict", f"project {own.name}: is your own account's; nobody leaves that")
    row = session.get(tables.ProjectMember, (project_id, context.caller.user_id))
    if row is None:
        raise missing("project", project_id)
    project = session.get_one(tables.Project, project_id)
    context.concerned_account_id, context.resource_id = project.account_id, project_id
    session.delete(row)
    context.requests += wake_federated_of_project(session, project_id, context.now, row.user_id)
    return ProjectMembership(
        project_id=project_id,
        account_id=project.account_id,
        name=project.name,
        permissions=row.permissions,
        created_at=row.created_at,
    )


def leave_account(context: ChangeContext, account_id: str) -> AccountMembership:
    """End the membership of the caller's user in another account, with the user's keys there.

    Raises: Problem `forbidden`, `not-found`; `conflict`, for the user's own account, or for its
    only owner.
    """
    check_home(context.caller)
    if account_id == context.caller.account_id:
        raise Problem("conflict", f"account {account_id}: is your own, which nobody leaves")
    row = context.session.get(tables.AccountMember, (account_id, context.caller.user_id))
    if row is None:
        raise missing("account", account_id)
    account = context.session.get_one(tables.Account, account_id)
    context.concerned_account_id, context.resource_id = account_id, account_id
    end_membership(context, row)
    return AccountMembership(
        account_id=account_id,
        name=account.name,
        role=row.role,
        is_own=False,
        is_current=False,
        created_at=row.created_at,
    )


def end_membership(context: ChangeContext, row: tables.AccountMember) -> None:
    """Remove a member of an account, and revoke the keys of the account that the member had."""
    check_owner_stays(context, row.account_id, row.user_id)
    context.session.delete(row)
    keys = select(tables.ApiKey).where(
        tables.ApiKey.account_id == row.account_id, tables.ApiKey.user_id == row.user_id
    )
    revoke(context, context.session.exec(keys).all())


def check_owner_stays(context: ChangeContext, account_id: str, user_id: str) -> None:
    """Refuse to take its last owner from an account.

    Raises: Problem `conflict`.
    """
    session = context.session
    advisory_lock(session, f"users/{account_id}")
    counts = (
        select(func.count()).where(
            table.role == Role.OWNER,
            col(table.account_id) == account_id,
            key != user_id,
        )
        for table, key in (
            (tables.User, col(tables.User.id)),
            (tables.AccountMember, col(tables.AccountMember.user_id)),
        )
    )
    if not sum(session.exec(count).one() for count in counts):
        detail = f"account {account_id}: user {user_id} is its only owner; make another one first"
        raise Problem("conflict", detail)
