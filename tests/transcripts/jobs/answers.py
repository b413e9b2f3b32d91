"""What the world answers to the effects of a job in the stories."""

from typing import Any

from tests.transcripts.whole import Answer, one_after_the_other, slowly
from workflows.contracts.base import Done
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


def runs(asked: Any) -> RunReport:
    return RunReport(run_id=asked.run_id, state=RunState.RUNNING, elapsed_s=5)


def ended_by(asked: Any, ended: Exit) -> RunReport:
    return RunReport(
        run_id=asked.run_id, state=RunState.EXITED, elapsed_s=ended.elapsed_s, exit=ended
    )


def slow(name: str, seconds: float) -> dict[str, Answer]:
    """An effect that takes so long."""
    return {name: slowly(ANSWERS[name], seconds)}


def in_turn(name: str, *answers: Answer | None) -> dict[str, Answer]:
    """An effect that answers its calls so, one after the other; None, and afterwards: as ever."""
    return {name: one_after_the_other(ANSWERS[name], *answers)}


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
