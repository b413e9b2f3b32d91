"""Effects of a job: its sealed work orders, its runs on nodes, its log and output."""

from datetime import datetime
from enum import StrEnum

from workflows.contracts.base import Contract, Done
from workflows.contracts.jobs import Placement, RunReport, WorkerAssignment
from workflows.effects.effect import HEARTBEAT_S, Effect, SiteCommand


class FindPlacement(Contract):
    job_id: str
    attempt: int


class PlacementFound(Contract):
    placement: Placement | None = None


class SealRunSpecs(Contract):
    """Write what the nodes need of the job (command, packages, variables, secrets, code's hash)
    into the object store, sealed for the region's site; the workflow carries the place alone."""

    job_id: str
    attempt: int
    assignments: tuple[WorkerAssignment, ...]


class RunSpecsSealed(Contract):
    references: tuple[str, ...]
    """One place in the object store for each worker, in order of the assignments."""


class StageWorker(SiteCommand):
    """Bring code, packages, input and the sealed environment to the node, once for each set."""

    run_id: str
    run_spec: str
    assignment: WorkerAssignment
    restores_state: bool = False
    """Copies of the worker's resume state may lie in the store, from attempts before."""


class WorkerStaged(Contract):
    state_saved_at: datetime | None = None
    """When the resume state was copied that its command finds; None: it finds none."""
    state_refused: str | None = None
    """Why a copy that there is was not restored."""


class StartWorker(SiteCommand):
    run_id: str


class GetRunStatus(SiteCommand):
    run_id: str


class EndWorker(SiteCommand):
    """End the run's whole process tree; a run that never started can then never start."""

    run_id: str
    grace_s: int


class CollectLog(SiteCommand):
    """Store every byte that the run has logged and the watch has not brought yet."""

    run_id: str


class LogCollected(Contract):
    stored_bytes: int


class StoreOutput(SiteCommand):
    run_id: str


class OutputStored(Contract):
    stored_bytes: int


class SaveSnapshot(SiteCommand):
    """Copy the run's resume state into the store, whole or not at all, unless it is there already.

    at: when the workflow asked; of several copies the one that was asked for last is the newest.
    """

    run_id: str
    at: datetime


class SnapshotOutcome(StrEnum):
    SAVED = "saved"
    UNCHANGED = "unchanged"
    """Its last copy is as it is now."""
    NOTHING = "nothing"
    """The command has written none."""
    TOO_LARGE = "too_large"


class SnapshotSaved(Contract):
    outcome: SnapshotOutcome
    state_bytes: int = 0
    """What lies in its folder, not what the copy takes."""
    file_count: int = 0
    limit: str = ""
    """What is allowed, in words; where it is too large."""


class DiscardSnapshots(Contract):
    """Remove all copies of a job's resume state."""

    job_id: str


class CleanWorker(SiteCommand):
    run_id: str


class DiscardRunSpecs(Contract):
    job_id: str
    attempt: int


class RemoveStored(Contract):
    """Remove log, output and whatever else is stored of a job that is archived."""

    job_id: str


find_placement = Effect("find_placement", FindPlacement, PlacementFound)
seal_run_specs = Effect("seal_run_specs", SealRunSpecs, RunSpecsSealed, waits_for_cancellation=True)
"""Secrets lie in what it writes: it is never still writing when they are discarded."""
discard_run_specs = Effect("discard_run_specs", DiscardRunSpecs, Done)
discard_snapshots = Effect("discard_snapshots", DiscardSnapshots, Done, start_to_close_s=120)
remove_stored = Effect("remove_stored", RemoveStored, Done, start_to_close_s=120)

stage_worker = Effect(
    "stage_worker",
    StageWorker,
    WorkerStaged,
    queue=None,
    start_to_close_s=3600,
    schedule_to_close_s=7200,
    heartbeat_s=HEARTBEAT_S,
)
start_worker = Effect(
    "start_worker",
    StartWorker,
    RunReport,
    queue=None,
    start_to_close_s=30,
    schedule_to_close_s=3600,
    retry_first_s=0.5,
    retry_max_s=15,
)
get_run_status = Effect(
    "get_run_status",
    GetRunStatus,
    RunReport,
    queue=None,
    start_to_close_s=20,
    schedule_to_close_s=30,
    retry_max_s=5,
)
end_worker = Effect(
    "end_worker",
    EndWorker,
    RunReport,
    queue=None,
    start_to_close_s=180,
    schedule_to_close_s=3600,
    heartbeat_s=HEARTBEAT_S,
    retry_max_s=15,
)
collect_log = Effect(
    "collect_log",
    CollectLog,
    LogCollected,
    queue=None,
    start_to_close_s=3600,
    schedule_to_close_s=7200,
    heartbeat_s=HEARTBEAT_S,
    retry_max_s=15,
)
store_output = Effect(
    "store_output",
    StoreOutput,
    OutputStored,
    queue=None,
    start_to_close_s=4 * 3600,
    schedule_to_close_s=6 * 3600,
    heartbeat_s=HEARTBEAT_S,
    retry_max_s=15,
)
save_snapshot = Effect(
    "save_snapshot",
    SaveSnapshot,
    SnapshotSaved,
    queue=None,
    start_to_close_s=3600,
    schedule_to_close_s=3600,
    heartbeat_s=HEARTBEAT_S,
    attempts=1,
    waits_for_cancellation=True,
)
"""Tried once: the next interval tries again. It is never still writing when copies are removed."""
clean_worker = Effect(
    "clean_worker",
    CleanWorker,
    Done,
    queue=None,
    start_to_close_s=120,
    schedule_to_close_s=600,
    heartbeat_s=HEARTBEAT_S,
    retry_max_s=15,
)
