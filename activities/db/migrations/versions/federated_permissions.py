"""Let members who have created federated jobs in a project create more of them there.

The permission `job: all` said so before; others who have it are to be given `federated: all` by
the project's owner.

Revision: 0046, after 0045
"""

import json

import sqlalchemy as sa
from alembic import op

revision = "0046"
down_revision = "0045"
branch_labels = None
depends_on = None
oldest_code_revision = "0027"
"""The oldest code that runs beside this schema: it only expands."""

_MEMBERS = sa.text(
    "SELECT project_id, user_id, permissions FROM project_members AS member WHERE EXISTS ("
    "SELECT 1 FROM federated_jobs AS job WHERE job.project_id = member.project_id"
    " AND job.creator_user_id = member.user_id)"
)
_CHANGE = sa.text(
    "UPDATE project_members SET permissions = :permissions"
    " WHERE project_id = :project_id AND user_id = :user_id"
).bindparams(sa.bindparam("permissions", type_=sa.JSON()))


def upgrade() -> None:
    connection = op.get_bind()
    for project_id, user_id, stored in connection.execute(_MEMBERS).all():
        permissions = json.loads(stored) if isinstance(stored, str) else dict(stored)
        if permissions.get("job") != "all":
            continue
        given = {"permissions": permissions | {"federated": "all"}}
        connection.execute(_CHANGE, given | {"project_id": project_id, "user_id": user_id})


def downgrade() -> None:
    """Nothing: older code takes no notice of the permission."""
