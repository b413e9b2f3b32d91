"""A home folder with a database, for steps that write rows in this process."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from activities.db import session as sessions
from activities.db.migrate import migrate
from activities.db.session import Database, database
from activities.settings import settings


@contextmanager
def home(**more: str) -> Iterator[tuple[Path, Database]]:
    """A folder of its own with the newest schema on SQLite. more: settings without prefix."""
    before = dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="baseload-bench-") as folder:
        os.environ["BASELOAD_HOME"] = folder
        os.environ.update({f"BASELOAD_{name.upper()}": value for name, value in more.items()})
        settings.cache_clear()
        sessions.database.cache_clear()
        migrate(settings().database)
        opened = database()
        try:
            yield Path(folder), opened
        finally:
            opened.close()
            sessions.database.cache_clear()
            settings.cache_clear()
            os.environ.clear()
            os.environ.update(before)
