"""Alembic's entry: migrations run on the connection, and in the transaction, of `migrate`."""

from alembic import context
from sqlmodel import SQLModel

from activities.db import tables  # noqa: F401 - makes the metadata

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=SQLModel.metadata,
    transactional_ddl=True,
    transaction_per_migration=False,
)
context.run_migrations()
