"""Effects of the placement workflow."""

from datetime import datetime

from workflows.contracts import queues
from workflows.contracts.base import Contract
from workflows.contracts.placement import PlanningRound
from workflows.effects.effect import HEARTBEAT_S, Effect


class PlanPlacements(Contract):
    """Place at most `limit` waiting jobs, all reservations in one transaction."""

    limit: int = 500


class NotifyPlacedJobs(Contract):
    """Signal every job that has been placed and not been told."""

    limit: int = 500


class PlacedJobsNotified(Contract):
    announced: int
    more: bool = False
    untold: tuple[str, ...] = ()
    """Jobs that could not be told now: they are told in the next round, or look by themselves."""


plan_placements = Effect(
    "plan_placements",
    PlanPlacements,
    PlanningRound,
    queue=queues.PLANNING,
    start_to_close_s=60,
    heartbeat_s=HEARTBEAT_S,
)
"""A round of 500 jobs takes seconds; until a killed one is begun anew, no job is placed."""

notify_placed_jobs = Effect(
    "notify_placed_jobs", NotifyPlacedJobs, PlacedJobsNotified, start_to_close_s=20
)
"""Some hundred signals; a worker that is killed meanwhile holds up every job so long."""


class WithdrawAllocations(Contract):
    """Take back what jobs have on a node and were never told of, on all nodes of these jobs: they
    are placed anew. Their rows tell the reason."""

    node_id: str
    reason: str
    at: datetime


class AllocationsWithdrawn(Contract):
    job_ids: tuple[str, ...] = ()


withdraw_allocations = Effect("withdraw_allocations", WithdrawAllocations, AllocationsWithdrawn)
