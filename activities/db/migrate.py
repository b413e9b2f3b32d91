"""Bring a database to the newest schema. Every process does so when it starts."""

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
    """Run every missing migration in one transaction; processes that start at once take turns."""
    with _one_process_at_a_time(url):
        database = Database(url)
        try:
            if revision != "head" or revision_of(database) != newest_revision():
                _upgrade(database, revision)
        finally:
            database.close()


def revision_of(database: Database) -> str | None:
    """The schema that a database has; None where it has none yet."""
    with database.read() as session:
        connection = session.connection()
        if not inspect(connection).has_table("alembic_version"):
            return None
        found = connection.execute(text("SELECT version_num FROM alembic_version")).scalars().all()
    return ",".join(sorted(found)) or None


def newest_revision() -> str:
    """The last of our migrations: the one that no other follows."""
    made: set[str] = set()
    followed: set[str] = set()
    for file in (MIGRATIONS / "versions").glob("*.py"):
        for word, name in _REVISION.findall(file.read_text()):
            (made if word == "revision" else followed).add(name)
    return ",".join(sorted(made - followed))


def _upgrade(database: Database, revision: str) -> None:
    """Run the missing migrations up to a revision, in one transaction."""
    # Half a second of imports, for what hardly any start of a process has to do.
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
