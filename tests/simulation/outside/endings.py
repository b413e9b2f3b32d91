"""The end of runs, which makes sure that no process is left, as activities/agent/runs/end.py."""

from collections.abc import Generator, Sequence
from typing import Any

from tests.simulation.contracts import Sleep, Until
from tests.simulation.outside.connection import Connection
from tests.simulation.outside.runs import Run

MARGIN_S = 25.0
"""As there: the further time for a supervisor, after which it is killed."""
KILL_S = 10.0
"""As activities/agent/host/process_tree.py: how long a killed process may take to end."""

Alive = dict[Run, str]
"""The runs that could not be ended, each with what of it is left."""


def end_runs(
    connection: Connection, runs: Sequence[Run], grace_s: float
) -> Generator[Sleep | Until, Any, Alive]:
    """End runs beside each other; one that never started will never start.

    When this is broken off, the supervisors that were asked go on with their ends.

    Raises: ApplicationError OUTCOME_UNKNOWN, when the connection is lost.
    """
    for run in runs:
        if run.is_supervised:
            run.ask_to_end(grace_s)
        elif run.exit is None and not run.is_started:
            run.never_start()
    if any(run.is_supervised for run in runs):
        yield from connection.until(
            lambda: not any(run.is_supervised for run in runs), grace_s + MARGIN_S
        )
    rest = [run for run in runs if run.exit is None]
    for run in rest:
        run.lose_supervisor()
    return (yield from _end_unsupervised(connection, rest, grace_s)) if rest else {}


def _end_unsupervised(
    connection: Connection, runs: Sequence[Run], grace_s: float
) -> Generator[Sleep | Until, Any, Alive]:
    """TERM, and KILL after the grace, by the agent itself."""
    for run in runs:
        if run.command is not None:
            run.command.terminate()

    def all_gone() -> bool:
        return not any(run.is_alive for run in runs)

    if not (yield from connection.until(all_gone, grace_s)):
        for run in runs:
            if run.command is not None:
                run.command.kill()
        yield from connection.until(all_gone, KILL_S)
    alive: Alive = {}
    for run in runs:
        if run.is_alive:
            run.measure_alive()
            run.process.has_resisted = True
            alive[run] = f"run {run.name}: still alive: [4711]"
        elif run.exit is None:  # Another end may have been here before.
            run.end_unsupervised()
    return alive
