"""What Temporal limits, measured once more with its server on PostgreSQL."""

from dataclasses import replace

from tests.bench import submit, throughput
from tests.bench.measure import Row
from tests.bench.postgresql_engine import OnPostgresqlStack, postgresql_engine
from tests.bench.stack import running_stack

WHAT = "Temporal on PostgreSQL"


def rows() -> list[Row]:
    """The rows of other steps; one that says why, where it cannot be measured here."""
    try:
        with postgresql_engine() as engine:
            OnPostgresqlStack.engine = engine
            running_stack.set(OnPostgresqlStack)
            measured = [*submit.rows(), *throughput.rows()]
    except FileNotFoundError as missing:
        return [Row(f"{WHAT}: submissions and whole jobs", "not measured", str(missing))]
    return [replace(row, name=f"{WHAT}: {row.name}") for row in measured]
