"""Migrating a database to the newest schema, which every process does at its start."""

import fcntl
import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, column, inspect, make_url, select, table, text

from activities.db.session import Database, advisory_lock
from activities.settings import StartRefusedError

if TYPE_CHECKING:
    from alembic.config import Config
    from alembic.script import ScriptDirectory

MIGRATIONS = Path(__file__).parent / "migrations"
_COMPATIBILITY = table("schema_compatibility", column("revision"), column("oldest_code_revision"))
_REVISION = re.compile(r"^(revision|down_revision) = [\"'](\w+)[\"']", re.MULTILINE)


def migrate(url: str, revision: str = "head") -> None:
    """Run all missing migrations in one transaction; concurrent processes follow each other.

    A newer schema is left as it is, if it says that this code runs beside it: an older release
    works on during an upgrade, and after one that is taken back.
    Raises: StartRefusedError, when the schema is too new for this code.
    """
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
        return _revision_in(session.connection())


def newest_revision() -> str:
    """The revision of the newest migration, which no other migration follows."""
    made, followed = _revisions()
    return ",".join(sorted(made - followed))


def declare_compatibility(connection: Connection, scripts: "ScriptDirectory") -> None:
    """Write which code runs beside the schema, as the newest migration declares.

    Migrating calls this in its transaction. A migration without `oldest_code_revision` runs
    beside no older code.
    """
    if not inspect(connection).has_table(_COMPATIBILITY.name):
        return
    revision = _revision_in(connection) or ""
    migration = scripts.get_revision(revision).module
    oldest = getattr(migration, "oldest_code_revision", revision)
    connection.execute(_COMPATIBILITY.delete())
    row = {"revision": revision, "oldest_code_revision": oldest}
    connection.execute(_COMPATIBILITY.insert().values(**row))


def _revisions() -> tuple[set[str], set[str]]:
    """The revisions of all migrations that this code has, and those that another one follows."""
    made: set[str] = set()
    followed: set[str] = set()
    for file in (MIGRATIONS / "versions").glob("*.py"):
        for word, name in _REVISION.findall(file.read_text()):
            (made if word == "revision" else followed).add(name)
    return made, followed


def _revision_in(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    found = connection.execute(text("SELECT version_num FROM alembic_version")).scalars().all()
    return ",".join(sorted(found)) or None


def _upgrade(database: Database, revision: str) -> None:
    """Run the missing migrations up to a revision, in one transaction.

    Raises: StartRefusedError, when the schema is too new for this code.
    """
    with database.write() as session:
        advisory_lock(session, "migrate")
        connection = session.connection()
        # Read after the lock, because a newer process may have migrated meanwhile.
        found = _revision_in(connection)
        if found is not None and found not in _revisions()[0]:
            _must_run_beside(connection, found)
            return
        # The import takes half a second, and hardly any start of a process needs it.
        from alembic import command  # noqa: PLC0415

        command.upgrade(configuration(connection), revision)


def _must_run_beside(connection: Connection, found: str) -> None:
    """Raises: StartRefusedError, unless the newer schema says that this code runs beside it."""
    oldest = None
    if inspect(connection).has_table(_COMPATIBILITY.name):
        query = select(_COMPATIBILITY.c.oldest_code_revision)
        oldest = connection.execute(query.where(_COMPATIBILITY.c.revision == found)).scalar()
    if oldest in _revisions()[0]:
        return
    raise StartRefusedError(
        f"database: its schema has revision {found}, which this release does not know (its newest "
        f"is {newest_revision()}); the schema asks for code that knows {oldest or found}; start "
        "the release that has migrated the database, or a newer one"
    )


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
