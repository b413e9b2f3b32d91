"""Effects of placement."""

from datetime import datetime

from workflows.contracts import queues
from workflows.contracts.base import Contract
from workflows.contracts.placement import PlanningRound
from workflows.effects.effect import HEARTBEAT_S, Effect

UNPLANNED_S = 60


class PlanPlacements(Contract):
    """Run a planning round that places at most `limit` jobs, all allocations in one transaction."""

    limit: int = 500


class NotifyPlacedJobs(Contract):
    """Signal their placement to at most `limit` placed jobs that were not notified yet."""

    limit: int = 500
    has_no_planner: bool = False
    """Whether no process serves the planning queue: waiting jobs show that as their refusal."""
    refused_before: datetime | None = None
    """When waiting jobs were shown that refusal the last time; None: they were not."""


class PlacedJobsNotified(Contract):
    announced: int
    more: bool = False
    untold: tuple[str, ...] = ()
    """Jobs that could not be notified. The next round notifies them, or they poll."""


plan_placements = Effect(
    "plan_placements",
    PlanPlacements,
    PlanningRound,
    queue=queues.PLANNING,
    start_to_close_s=60,
    schedule_to_start_s=UNPLANNED_S,
    heartbeat_s=HEARTBEAT_S,
)
"""A round of 500 jobs takes seconds; after the kill of its worker process no job is placed until
the heartbeat timeout."""

notify_placed_jobs = Effect(
    "notify_placed_jobs", NotifyPlacedJobs, PlacedJobsNotified, start_to_close_s=20
)
"""Some hundred signals; after the kill of its worker process no job is placed until this limit."""


class WithdrawAllocations(Contract):
    """Withdraw the allocations on a node that their jobs have not confirmed yet.

    Their allocations on other nodes are withdrawn as well, and the jobs are placed anew. Their
    rows show the reason.
    """

    node_id: str
    reason: str
    at: datetime


class AllocationsWithdrawn(Contract):
    job_ids: tuple[str, ...] = ()


withdraw_allocations = Effect("withdraw_allocations", WithdrawAllocations, AllocationsWithdrawn)
