"""What the tests of the model of rows share: a server by hand, and an installation on it."""

from collections.abc import Iterable
from typing import cast

import pytest

from tests.simulation.contracts import Outside
from tests.simulation.rows_model import ModelRows
from tests.simulation.rows_model.scripted import Scripted
from tests.simulation.rows_model.temporal_double import TemporalDouble


class Store:
    """The object store of `Outside`, as far as rows use it."""

    def __init__(self) -> None:
        self.run_specs: set[tuple[str, int]] = set()
        self.snapshots: set[str] = set()

    def keep_run_specs(self, job_id: str, attempt: int) -> None:
        self.run_specs.add((job_id, attempt))

    def discard(self, job_id: str, what: str, attempt: int | None = None) -> None:
        if what == "run_specs" and attempt is not None:
            self.run_specs.discard((job_id, attempt))

    def jobs_with_snapshots(self) -> Iterable[str]:
        return sorted(self.snapshots)


@pytest.fixture
def temporal() -> TemporalDouble:
    return TemporalDouble()


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def rows(temporal: TemporalDouble, store: Store) -> ModelRows:
    return ModelRows(temporal, cast("Outside", store))


@pytest.fixture
def script(rows: ModelRows, temporal: TemporalDouble) -> Iterable[Scripted]:
    script = Scripted(rows, temporal)
    yield script
    assert rows.violations() == []
    assert rows.imbalance() == 0
