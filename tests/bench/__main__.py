"""Every measurement as one table. The ratios are of this run and this machine."""

import sys

from tests.bench import engine, rules, state
from tests.bench.measure import table


def main() -> None:
    rows = [*rules.rows(), *state.rows(), *engine.rows()]
    sys.stdout.write(f"{table(rows)}\n")


if __name__ == "__main__":
    main()
