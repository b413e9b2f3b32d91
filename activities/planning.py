"""What the planning queue serves: apart from the others, since its process loads nothing else."""

from collections.abc import Callable
from typing import Any

from activities.placement import plan_placements

PLANNING: tuple[Callable[..., Any], ...] = (plan_placements,)
