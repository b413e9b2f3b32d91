"""The folders that the tool covers: modules, and the tests that should see a mistake in them."""

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Folder:
    """Modules, and the tests that are run against each mutant of them.

    modules, tests: files or folders, from the project's root. aim: the share of mutants that the
    tests should see, in percent. options: of pytest. facts: modules of nothing but data, which a
    test could only repeat. most_s: where set, the tests of each mutant are those that enter its
    function, in the order of `tests`, and about so many seconds of
    each path; else all.
    """

    modules: tuple[str, ...]
    tests: tuple[str, ...]
    aim: int = 80
    options: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    most_s: float = 0

    def files(self) -> list[Path]:
        """Every module, from the project's root."""
        found = []
        for name in self.modules:
            path = ROOT / name
            found += sorted(path.rglob("*.py")) if path.is_dir() else [path]
        names = [path.relative_to(ROOT) for path in found if path.stat().st_size]
        return [name for name in names if str(name) not in self.facts]

    def files_of_tests(self) -> list[Path]:
        """Every file of the tests."""
        paths = [ROOT / name for name in self.tests]
        return [
            file
            for path in paths
            for file in (sorted(path.rglob("*.py")) if path.is_dir() else [path])
        ]


_PURE = ("--noconftest",)
"""No fixture of tests/conftest.py is needed, whose imports take longer than the tests."""
_ONE_DATABASE = ("-k", "not postgresql")
"""What holds on SQLite alone is enough to see a mistake that is none of the dialect."""

_WITHOUT_GUIDE = ("--ignore=tests/api/test_guide.py",)
"""The copy in which mutants are planted has no guide, which is built."""
_LIVES = "tests/mutants/lives.py"


def _rules(name: str, facts: tuple[str, ...] = ()) -> Folder:
    folder = f"workflows/rules/{name}"
    files = tuple(f"{folder}/{each}" for each in facts)
    return Folder((folder,), (f"tests/rules/{name}",), aim=90, options=_PURE, facts=files)


def _billing(*names: str) -> Folder:
    return Folder(
        tuple(f"activities/billing/{name}.py" for name in names),
        tuple(f"tests/activities/billing/test_{name}.py" for name in names),
        aim=90,
        options=_ONE_DATABASE,
    )


def _lifecycle(name: str) -> Folder:
    whole = ("tests/workflows/test_next_runs.py", "tests/transcripts")
    tests = (*whole, f"tests/workflows/{name}", _LIVES)
    return Folder((f"workflows/{name}",), tests, most_s=30)


FOLDERS = {
    "rules/accounts": _rules("accounts"),
    "rules/billing": _rules("billing"),
    "rules/catalogue": _rules("catalogue", facts=("gpu_models.py",)),
    "rules/datastores": _rules("datastores"),
    "rules/devices": _rules("devices"),
    "rules/federation": _rules("federation"),
    "rules/jobs": _rules("jobs"),
    "rules/leases": _rules("leases"),
    "rules/nodes": _rules("nodes"),
    "rules/placement": _rules("placement"),
    "rules/reservations": _rules("reservations"),
    "ledger": _billing("ledger"),
    "usage": _billing("usage", "accrued"),
    "authorization": Folder(
        ("api/authorization.py", "api/services/ownership.py"),
        ("tests/api/test_authorization.py",),
        aim=90,
        options=_ONE_DATABASE,
    ),
    "record": Folder(
        ("activities/lifecycles/record.py",),
        (
            "tests/activities/lifecycles/test_record.py",
            "tests/activities/lifecycles/test_record_allocations.py",
        ),
        options=_ONE_DATABASE,
    ),
    "archives": Folder(
        ("activities/storage/archives.py", "activities/storage/names.py"),
        ("tests/activities/storage/test_archives.py", "tests/activities/storage/test_names.py"),
    ),
    "primitives": Folder(
        ("workflows/primitives",), ("tests/workflows/primitives", _LIVES), most_s=15
    ),
    "services": Folder(
        ("api/services",), ("tests/api",), options=(*_ONE_DATABASE, *_WITHOUT_GUIDE), most_s=15
    ),
    "transport": Folder(("activities/transport",), ("tests/activities/transport",), most_s=15),
    "lifecycles/jobs": _lifecycle("jobs"),
    "lifecycles/leases": _lifecycle("leases"),
    "lifecycles/nodes": _lifecycle("nodes"),
}
