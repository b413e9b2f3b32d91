"""Members of a project: who of other accounts may do what there."""

from collections.abc import Sequence

from sqlmodel import Session, col, select

from activities.db import tables
from activities.federation.consent import wake_federated_of_project
from api.changes import ChangeContext
from api.problems import missing
from api.schemas.members import Member, MemberChange
from api.services.ownership import own_project


def member_responses(session: Session, rows: Sequence[tables.ProjectMember]) -> list[Member]:
    ids = [row.user_id for row in rows]
    users = session.exec(select(tables.User).where(col(tables.User.id).in_(ids)))
    emails = {user.id: user.email for user in users}
    return [Member(**row.model_dump(), email=emails[row.user_id]) for row in rows]


def change_member(
    context: ChangeContext, project_id: str, user_id: str, asked: MemberChange
) -> Member:
    """Change what a member may do; it counts at once. Raises: Problem `not-found`."""
    row = _member(context, project_id, user_id)
    row.permissions = dict(asked.permissions)
    context.requests += wake_federated_of_project(context.session, project_id, context.now, user_id)
    (shown,) = member_responses(context.session, [row])
    return shown


def remove_member(context: ChangeContext, project_id: str, user_id: str) -> Member:
    """Remove a member at once; streams that are open end within a minute.

    Raises: Problem `not-found`.
    """
    row = _member(context, project_id, user_id)
    (shown,) = member_responses(context.session, [row])
    context.session.delete(row)
    context.requests += wake_federated_of_project(context.session, project_id, context.now, user_id)
    return shown


def _member(context: ChangeContext, project_id: str, user_id: str) -> tables.ProjectMember:
    own_project(context.session, project_id, context.caller)
    context.resource_id = project_id
    row = context.session.get(tables.ProjectMember, (project_id, user_id), with_for_update=True)
    if row is None:
        raise missing("member", user_id)
    return row
