"""Alembic, run on a given connection and in its transaction."""

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection

from activities.db.migrate import MIGRATIONS


def upgrade(connection: Connection, revision: str) -> None:
    """Run the missing migrations up to a revision."""
    command.upgrade(configuration(connection), revision)


def configuration(connection: Connection) -> Config:
    """Alembic's configuration for migrations that run on this connection."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    return config
