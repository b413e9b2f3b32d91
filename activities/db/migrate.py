"""Migrating a database to the newest schema, which every process does at its start."""

import fcntl
import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, inspect, make_url, text

from activities.db.session import Database, advisory_lock

if TYPE_CHECKING:
    from alembic.config import Config

MIGRATIONS = Path(__file__).parent / "migrations"
_REVISION = re.compile(r"^(revision|down_revision) = [\"'](\w+)[\"']", re.MULTILINE)


def migrate(url: str, revision: str = "head") -> None:
    """Run all missing migrations in one transaction; concurrent processes follow each other."""
    with _one_process_at_a_time(url):
        database = Database(url)
        try:
            if revision != "head" or revision_of(database) != newest_revision():
                _upgrade(database, revision)
        finally:
            database.close()


def revision_of(database: Database) -> str | None:
    """The revision of a database's schema; None when the database has no schema yet."""
    with database.read() as session:
        connection = session.connection()
        if not inspect(connection).has_table("alembic_version"):
            return None
        found = connection.execute(text("SELECT version_num FROM alembic_version")).scalars().all()
    return ",".join(sorted(found)) or None


def newest_revision() -> str:
    """The revision of the newest migration, which no other migration follows."""
    made: set[str] = set()
    followed: set[str] = set()
    for file in (MIGRATIONS / "versions").glob("*.py"):
        for word, name in _REVISION.findall(file.read_text()):
            (made if word == "revision" else followed).add(name)
    return ",".join(sorted(made - followed))


def _upgrade(database: Database, revision: str) -> None:
    """Run the missing migrations up to a revision, in one transaction."""
    # The import takes half a second, and hardly any start of a process needs it.
    from alembic import command  # noqa: PLC0415

    with database.write() as session:
        advisory_lock(session, "migrate")
        command.upgrade(configuration(session.connection()), revision)


def configuration(connection: Connection) -> "Config":
    """Alembic's settings for our migrations, which run on this connection."""
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    return config


@contextmanager
def _one_process_at_a_time(url: str) -> Generator[None, None, None]:
    """Lock the creation of an SQLite file, because two processes that create it at once collide."""
    address = make_url(url)
    if address.get_backend_name() != "sqlite" or not address.database:
        yield
        return
    path = Path(address.database)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(path.name + ".migrating").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
