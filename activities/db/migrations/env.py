"""Alembic's entry: migrations run on the connection, and in the transaction, of `migrate`."""

from typing import Any

from alembic import context
from sqlmodel import SQLModel
from sqlmodel.sql.sqltypes import AutoString

import activities.db.tables  # noqa: F401 - what the metadata is of
from activities.db.instants import Instant
from activities.db.migrate import declare_compatibility


def render(kind: str, found: Any, autogenerate_context: Any) -> Any:
    """A migration names SQLAlchemy's types only, so that it stays what it was."""
    if kind == "type" and isinstance(found, Instant):
        return "sa.DateTime(timezone=True)"
    if kind == "type" and isinstance(found, AutoString):
        return "sa.String()"
    return False


connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=SQLModel.metadata,
    transactional_ddl=True,
    transaction_per_migration=False,
    render_as_batch=True,
    render_item=render,
)
context.run_migrations()
declare_compatibility(connection, context.script)
