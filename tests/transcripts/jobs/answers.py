"""What the world answers to the effects of a job in the stories."""

from collections.abc import Callable
from typing import Any

from tests.simulation.contracts import Sleep, Steps
from tests.transcripts.jobs.given import NO_ROUTE
from workflows.contracts.base import Contract, Done
from workflows.contracts.billing import BalanceForecast
from workflows.contracts.jobs import Exit, RunReport
from workflows.contracts.lifecycles import Recorded
from workflows.contracts.statuses import RunState
from workflows.effects.jobs import (
    LogCollected,
    OutputStored,
    PlacementFound,
    RunSpecsSealed,
    SealRunSpecs,
    SnapshotOutcome,
    SnapshotSaved,
    WorkerStaged,
)

Answer = Callable[[Any], Contract | Steps]


def runs(asked: Any) -> RunReport:
    return RunReport(run_id=asked.run_id, state=RunState.RUNNING, elapsed_s=5)


def ended_by(asked: Any, ended: Exit) -> RunReport:
    return RunReport(
        run_id=asked.run_id, state=RunState.EXITED, elapsed_s=ended.elapsed_s, exit=ended
    )


def fails(failure: Exception = NO_ROUTE) -> Answer:
    """An answer that fails like this."""

    def answer(_: Any) -> Contract:
        raise failure

    return answer


def broken(failure: Exception, *names: str) -> dict[str, Answer]:
    """Effects that fail like this."""
    return dict.fromkeys(names, fails(failure))


def slow(name: str, seconds: float) -> dict[str, Answer]:
    """An effect that takes so long."""

    def answer(asked: Any) -> Steps:
        yield Sleep(seconds)
        return ANSWERS[name](asked)  # type: ignore[return-value]

    return {name: answer}


def always(name: str, answered: Contract) -> dict[str, Answer]:
    """An effect that answers this."""
    return {name: lambda _: answered}


def in_turn(name: str, *answers: Answer | None) -> dict[str, Answer]:
    """An effect that answers its calls so, one after the other; None, and afterwards: as ever."""
    left = list(answers)

    def answer(asked: Any) -> Contract | Steps:
        given = left.pop(0) if left else None
        return (given or ANSWERS[name])(asked)

    return {name: answer}


def _sealed(asked: SealRunSpecs) -> RunSpecsSealed:
    return RunSpecsSealed(references=tuple(f"spec-{one.worker}" for one in asked.assignments))


FORECAST = BalanceForecast(
    posted_microcredits=1, balance_microcredits=10**9, burn_microcredits_per_hour=1
)
_DONE = ("begin_billing", "end_billing", "clean_worker", "remove_stored")
_DISCARDED = ("discard_run_specs", "discard_snapshots", "discard_outputs")
ANSWERS: dict[str, Answer] = {
    **dict.fromkeys((*_DONE, *_DISCARDED), lambda _: Done()),
    "record": lambda _: Recorded(applied=True),
    "find_placement": lambda _: PlacementFound(),
    "seal_run_specs": _sealed,
    "stage_worker": lambda _: WorkerStaged(),
    "start_worker": runs,
    "get_run_status": runs,
    "end_worker": lambda asked: ended_by(asked, Exit(signal=15, reason="ended", elapsed_s=8)),
    "post_usage": lambda _: FORECAST,
    "collect_log": lambda _: LogCollected(stored_bytes=2000),
    "store_output": lambda _: OutputStored(stored_bytes=3000, file_count=2),
    "save_snapshot": lambda _: SnapshotSaved(outcome=SnapshotOutcome.SAVED, stored_bytes=400),
}
