"""Keep each party's words for the end of a federated job, and the permission of who creates them.

The permission `job: all` included federated jobs before: members who have created some keep that by
`federated: all`, which the project's owner gives to others.

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
    for name in ("creator_reason", "consumer_reason"):
        op.add_column("federated_jobs", sa.Column(name, sa.Text(), nullable=True))
    connection = op.get_bind()
    for project_id, user_id, stored in connection.execute(_MEMBERS).all():
        permissions = json.loads(stored) if isinstance(stored, str) else dict(stored)
        if permissions.get("job") != "all":
            continue
        given = {"permissions": permissions | {"federated": "all"}}
        connection.execute(_CHANGE, given | {"project_id": project_id, "user_id": user_id})


def downgrade() -> None:
    """Older code takes no notice of the permission."""
    for name in ("consumer_reason", "creator_reason"):
        op.drop_column("federated_jobs", name)
