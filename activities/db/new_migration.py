"""`python -m activities.db.new_migration 0002 "Say what changes"`: draft the next migration.

The draft holds the differences between the newest migration and the tables. Read the draft before
you commit it.
"""

import sys
import tempfile
from pathlib import Path

from alembic import command
from alembic.script import Script

from activities.db.migrate import configuration, migrate
from activities.db.session import Database


def new_migration(revision: str, message: str, folder: Path | None = None) -> Path:
    """Write the draft beside the other migrations, or into a folder; return its path.

    Raises: TypeError, when Alembic makes no migration or several.
    """
    with tempfile.TemporaryDirectory() as scratch:
        url = f"sqlite:///{scratch}/newest.db"
        migrate(url)
        database = Database(url)
        try:
            with database.connection() as connection:
                config = configuration(connection)
                if folder is not None:
                    locations = f"{config.get_main_option('script_location')}/versions {folder}"
                    config.set_main_option("version_locations", locations)
                    config.set_main_option("path_separator", "space")
                made = command.revision(
                    config,
                    message,
                    autogenerate=True,
                    rev_id=revision,
                    version_path=None if folder is None else str(folder),
                )
        finally:
            database.close()
    if not isinstance(made, Script):
        raise TypeError(f"asked for one migration, made {made}")
    return Path(made.path)


if __name__ == "__main__":
    sys.stdout.write(f"{new_migration(sys.argv[1], sys.argv[2])}\n")
