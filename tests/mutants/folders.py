"""The folders that the tool covers: modules, and the tests that should see a mistake in them."""

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Folder:
    """Modules, and the tests that are run against each mutant of them.

    modules, tests: files or folders, from the project's root. aim: the share of mutants that the
    tests should see, in percent. pure: the tests need no fixture of tests/conftest.py, whose
    imports take longer than they do.
    """

    modules: tuple[str, ...]
    tests: tuple[str, ...]
    aim: int = 80
    pure: bool = False

    def files(self) -> list[Path]:
        """Every module, from the project's root."""
        found = []
        for name in self.modules:
            path = ROOT / name
            found += sorted(path.rglob("*.py")) if path.is_dir() else [path]
        return [path.relative_to(ROOT) for path in found if path.stat().st_size]


def _rules(name: str, *more: str) -> Folder:
    return Folder((f"workflows/rules/{name}",), (f"tests/rules/{name}", *more), aim=90, pure=True)


FOLDERS = {
    "rules/billing": _rules("billing"),
    "rules/catalogue": _rules("catalogue"),
    "rules/jobs": _rules("jobs"),
    "rules/leases": Folder(
        ("workflows/rules/leases",), ("tests/activities/leases/test_reconciliation.py",), aim=90
    ),
    "rules/nodes": _rules("nodes"),
    "rules/placement": _rules("placement"),
    "ledger": Folder(
        ("activities/billing/ledger.py",), ("tests/activities/billing/test_ledger.py",), aim=90
    ),
    "usage": Folder(
        (
            "activities/billing/usage.py",
            "activities/billing/accrued.py",
            "activities/billing/runway.py",
        ),
        (
            "tests/activities/billing/test_accrued.py",
            "tests/activities/billing/test_runway.py",
            "tests/activities/billing/test_job_billing.py",
        ),
        aim=90,
    ),
    "authorization": Folder(
        ("api/authorization.py", "api/services/ownership.py"),
        ("tests/api/test_access.py", "tests/api/test_keys.py"),
        aim=90,
    ),
    "record": Folder(
        ("activities/lifecycles/record.py",), ("tests/activities/lifecycles/test_record.py",)
    ),
    "archives": Folder(
        ("activities/storage/archives.py", "activities/storage/names.py"),
        ("tests/activities/storage/test_archives.py", "tests/activities/storage/test_names.py"),
    ),
    "primitives": Folder(("workflows/primitives",), ("tests/workflows/primitives",)),
    "services": Folder(("api/services",), ("tests/api",)),
    "transport": Folder(("activities/transport",), ("tests/activities/transport",)),
    "lifecycles/jobs": Folder(("workflows/jobs",), ("tests/workflows/jobs",)),
    "lifecycles/leases": Folder(("workflows/leases",), ("tests/workflows/leases",)),
    "lifecycles/nodes": Folder(("workflows/nodes",), ("tests/workflows/nodes",)),
}
