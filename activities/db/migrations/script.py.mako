"""${message}

Revision: ${up_revision}, after ${down_revision | comma,n}
"""

import sqlalchemy as sa
from alembic import op
${imports if imports else ""}
revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = None
depends_on = None
oldest_code_revision = ${repr(up_revision)}
"""The oldest code that runs beside this schema: ${repr(down_revision)} if this only expands."""


def upgrade() -> None:
    ${upgrades if upgrades else "pass"}


def downgrade() -> None:
    ${downgrades if downgrades else "pass"}
