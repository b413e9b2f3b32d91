"""The Temporal server that keeps its state in PostgreSQL, and the tool that makes its tables.

The bench measures it beside the dev server. Both are built from the server's Go module, on which
the pinned Temporal binary depends. Prints their paths, a line each.
"""

from pathlib import Path

from console import CACHE, main_of, say
from gobuild import build
from temporal import PIN, VERSION

MODULE = "go.temporal.io/server"
SERVER = CACHE / f"temporal-server-of-{VERSION}"
SQL_TOOL = CACHE / f"temporal-sql-tool-of-{VERSION}"


def set_up_temporal_server() -> None:
    """Build the server and its tool, unless they are in the cache, and print where they are."""
    for package, target in (("cmd/server", SERVER), ("cmd/tools/sql", SQL_TOOL)):
        say(str(_built(package, target)))


def _built(package: str, target: Path) -> Path:
    return build(PIN, f"{MODULE}/{package}", target, "about 3 minutes on two cores")


if __name__ == "__main__":
    main_of(set_up_temporal_server)
