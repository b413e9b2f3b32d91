"""Effects of a job: its run specs, its runs on nodes, its log, output and state snapshots."""

from datetime import datetime
from enum import StrEnum

from pydantic import Field

from workflows.contracts.base import Contract, Done
from workflows.contracts.errors import CONTENT_MISSING, DATASTORE_AWAY, NON_RETRYABLE
from workflows.contracts.jobs import Placement, RunReport, WorkerAssignment
from workflows.effects.effect import HEARTBEAT_S, Effect, SiteCommand


class FindPlacement(Contract):
    job_id: str
    attempt: int


class PlacementFound(Contract):
    placement: Placement | None = None
    sequence: int = 0
    """The sequence of the last step in the job's row, which is ahead of a workflow that Temporal
    has restored."""


class SealRunSpecs(Contract):
    """Write the run specs of a job into the object store, encrypted for the region's site.

    A run spec holds command, packages, variables, secrets and the hash of the code; the workflow
    holds its key in the object store alone.
    """

    job_id: str
    attempt: int
    assignments: tuple[WorkerAssignment, ...]


class RunSpecsSealed(Contract):
    references: tuple[str, ...]
    """The key of each worker's run spec in the object store, in order of the assignments."""
    data_bytes: int = 0
    """The bytes of the datasets, models and checkpoints that each worker's node must have."""


class StageWorker(SiteCommand):
    """Bring code, packages, input and run spec to the node; equal content is brought once."""

    run_id: str
    run_spec: str
    assignment: WorkerAssignment
    restores_state: bool = False
    """Whether the object store may hold state snapshots of the worker from earlier attempts."""


class ContentsBrought(Contract):
    """The datasets, the model and the checkpoints of a run, which are on its node now."""

    bytes: int
    """The bytes of all of them."""
    fetched_bytes: int
    """What was sent to the node for this run; the rest was there."""
    cached_bytes: int = 0
    """What of it came from the region's cache."""
    seconds: float


class WorkerStaged(Contract):
    state_saved_at: datetime | None = None
    """When the restored state snapshot was taken; None: the command starts without one."""
    state_refused: str | None = None
    """Why an existing state snapshot was not restored."""
    contents: ContentsBrought | None = None
    """How datasets, models and checkpoints came to the node; None: the run has none."""
    volume_marks: dict[str, str] = Field(default_factory=dict)
    """The fingerprint of each volume that the run writes to, by its id, as the run finds it."""


class StartWorker(SiteCommand):
    run_id: str


class GetRunStatus(SiteCommand):
    run_id: str


class EndWorker(SiteCommand):
    """End the run's whole process tree; a run that has not started cannot start afterwards."""

    run_id: str
    grace_s: int


class CollectLog(SiteCommand):
    """Store every byte of the run's log that the watch has not stored yet."""

    run_id: str


class LogCollected(Contract):
    stored_bytes: int


class StoreOutput(SiteCommand):
    run_id: str


class OutputStored(Contract):
    """The output of a run, as a tar.gz of so many bytes; 0, where it is on a datastore."""

    stored_bytes: int
    file_count: int | None = None
    """None, where it had been stored before."""
    place: str = ""
    """The datastore that it is on, in words; empty: the object store."""


class RunFolder(StrEnum):
    """A folder of a run whose files a state snapshot can hold."""

    STATE = "state"
    WORK = "work"
    OUTPUT = "output"


class SaveSnapshot(SiteCommand):
    """Store a state snapshot of the run, whole or not at all; an unchanged state is not stored.

    at: when the workflow asked; of several snapshots the one with the latest `at` is the newest.
    """

    run_id: str
    at: datetime
    folders: tuple[RunFolder, ...] = (RunFolder.STATE,)
    """What the snapshot holds."""


class SnapshotOutcome(StrEnum):
    SAVED = "saved"
    UNCHANGED = "unchanged"
    """The last state snapshot equals the resume state."""
    NOTHING = "nothing"
    """The command has written no resume state."""
    TOO_LARGE = "too_large"


class SnapshotSaved(Contract):
    outcome: SnapshotOutcome
    state_bytes: int = 0
    """The size of the files in the folders, not of the stored snapshot."""
    stored_bytes: int | None = None
    """The size of the stored snapshot; with `SAVED` alone."""
    file_count: int = 0
    limit: str = ""
    """The limit in words; with `TOO_LARGE` alone."""


class DiscardSnapshots(Contract):
    """Remove all state snapshots of a job."""

    job_id: str


class DiscardOutputs(Contract):
    """Remove all outputs of a job, of every attempt; its logs stay."""

    job_id: str


class CleanWorker(SiteCommand):
    run_id: str


class DiscardRunSpecs(Contract):
    job_id: str
    attempt: int


class RemoveStored(Contract):
    """Remove log, output and everything else that is stored of an archived job."""

    job_id: str


_TOLD = (*NON_RETRYABLE, DATASTORE_AWAY)
"""The job tells a person that a datastore is away, and asks again itself."""

find_placement = Effect("find_placement", FindPlacement, PlacementFound)
seal_run_specs = Effect("seal_run_specs", SealRunSpecs, RunSpecsSealed, waits_for_cancellation=True)
"""Run specs hold secrets, so no late attempt may write them after they are discarded."""
discard_run_specs = Effect("discard_run_specs", DiscardRunSpecs, Done)
discard_snapshots = Effect("discard_snapshots", DiscardSnapshots, Done, start_to_close_s=120)
discard_outputs = Effect("discard_outputs", DiscardOutputs, Done, start_to_close_s=120)
remove_stored = Effect("remove_stored", RemoveStored, Done, start_to_close_s=120)

stage_worker = Effect(
    "stage_worker",
    StageWorker,
    WorkerStaged,
    queue=None,
    start_to_close_s=3600,
    schedule_to_close_s=7200,
    heartbeat_s=HEARTBEAT_S,
    non_retryable=_TOLD,
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
    non_retryable=(*NON_RETRYABLE, CONTENT_MISSING),
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
    non_retryable=_TOLD,
    waits_for_cancellation=True,
)
"""No late attempt may store an output after the outputs are discarded or removed."""
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
"""One attempt, because the next interval tries again; no late attempt may write a snapshot after
the snapshots are removed."""
save_last_snapshot = Effect(
    "save_snapshot",
    SaveSnapshot,
    SnapshotSaved,
    queue=None,
    start_to_close_s=590,
    schedule_to_close_s=590,
    heartbeat_s=HEARTBEAT_S,
    retry_max_s=15,
    waits_for_cancellation=True,
)
"""The snapshot before the files of the run are removed from its node: no interval tries again."""
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
