"""Bring a database to the newest schema. Every process does so when it starts."""

import fcntl
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, make_url

from activities.db.session import Database, take_turn

_MIGRATIONS = Path(__file__).parent / "migrations"


def migrate(url: str, revision: str = "head") -> None:
    """Run every missing migration in one transaction; processes that start at once take turns."""
    with _one_process_at_a_time(url):
        database = Database(url)
        try:
            with database.write() as session:
                take_turn(session, "migrate")
                command.upgrade(configuration(session.connection()), revision)
        finally:
            database.close()


def configuration(connection: Connection) -> Config:
    """Alembic's settings for our migrations, which run on this connection."""
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS))
    config.attributes["connection"] = connection
    return config


@contextmanager
def _one_process_at_a_time(url: str) -> Generator[None, None, None]:
    """SQLite alone needs it: two processes that both make the file get in each other's way."""
    address = make_url(url)
    if address.get_backend_name() != "sqlite" or not address.database:
        yield
        return
    path = Path(address.database)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(path.name + ".migrating").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
