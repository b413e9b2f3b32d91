"""Activities of the task queue `planning`, whose process loads nothing else."""

from activities.placement.planning import plan_placements
from activities.registry import Activity

PLANNING: tuple[Activity, ...] = (plan_placements,)
