"""Effects of a job: its sealed work orders, its runs on nodes, its log and output."""

from workflows.contracts.base import Contract, Done
from workflows.contracts.job import Placement, RunReport, WorkerAssignment
from workflows.effects.effect import HEARTBEAT_S, Effect, SiteCommand


class FindPlacement(Contract):
    job_id: str
    attempt: int


class PlacementFound(Contract):
    placement: Placement | None = None


class SealWorkOrders(Contract):
    """Write what the nodes need of the job (command, packages, variables, secrets, code's hash)
    into the object store, sealed for the region's site; the workflow carries the place alone."""

    job_id: str
    attempt: int
    assignments: tuple[WorkerAssignment, ...]


class WorkOrdersSealed(Contract):
    references: tuple[str, ...]
    """One place in the object store for each worker, in order of the assignments."""


class StageWorker(SiteCommand):
    """Bring code, packages, input and the sealed environment to the node, once for each set."""

    run_id: str
    work_order: str
    assignment: WorkerAssignment


class StartWorker(SiteCommand):
    run_id: str


class LookAtRun(SiteCommand):
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


class CleanWorker(SiteCommand):
    run_id: str


class DiscardWorkOrders(Contract):
    job_id: str
    attempt: int


class RemoveStored(Contract):
    """Remove log and output of a job that is archived."""

    job_id: str


find_placement = Effect("find_placement", FindPlacement, PlacementFound)
seal_work_orders = Effect("seal_work_orders", SealWorkOrders, WorkOrdersSealed, is_waited_for=True)
"""Secrets lie in what it writes: it is never still writing when they are discarded."""
discard_work_orders = Effect("discard_work_orders", DiscardWorkOrders, Done)
remove_stored = Effect("remove_stored", RemoveStored, Done, start_to_close_s=120)

stage_worker = Effect(
    "stage_worker",
    StageWorker,
    Done,
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
    retry_most_s=15,
)
look_at_run = Effect(
    "look_at_run",
    LookAtRun,
    RunReport,
    queue=None,
    start_to_close_s=20,
    schedule_to_close_s=30,
    retry_most_s=5,
)
end_worker = Effect(
    "end_worker",
    EndWorker,
    RunReport,
    queue=None,
    start_to_close_s=180,
    schedule_to_close_s=3600,
    heartbeat_s=HEARTBEAT_S,
    retry_most_s=15,
)
collect_log = Effect(
    "collect_log",
    CollectLog,
    LogCollected,
    queue=None,
    start_to_close_s=3600,
    schedule_to_close_s=7200,
    heartbeat_s=HEARTBEAT_S,
    retry_most_s=15,
)
store_output = Effect(
    "store_output",
    StoreOutput,
    OutputStored,
    queue=None,
    start_to_close_s=4 * 3600,
    schedule_to_close_s=6 * 3600,
    heartbeat_s=HEARTBEAT_S,
    retry_most_s=15,
)
clean_worker = Effect(
    "clean_worker",
    CleanWorker,
    Done,
    queue=None,
    start_to_close_s=120,
    schedule_to_close_s=600,
    heartbeat_s=HEARTBEAT_S,
    retry_most_s=15,
)
