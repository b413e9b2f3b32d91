"""Alembic, run on a connection of ours and in its transaction."""

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection

from activities.db.migrate import MIGRATIONS


def upgrade(connection: Connection, revision: str) -> None:
    """Run the migrations that are missing up to a revision."""
    command.upgrade(configuration(connection), revision)


def configuration(connection: Connection) -> Config:
    """Alembic's settings for our migrations, which run on this connection."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    return config
