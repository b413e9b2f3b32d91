"""Effects of a deployment: its devices are asked, counted and left."""

from datetime import datetime

from workflows.contracts.base import Contract
from workflows.contracts.deployments import RolloutCounts, RolloutPolicy
from workflows.effects.effect import Effect


class AdvanceRollout(Contract):
    """Ask as many more devices as the policy allows, and count all.

    Those that are away go on waiting.
    """

    deployment_id: str
    policy: RolloutPolicy
    asks: bool = True
    """Whether more devices are asked; a paused deployment is only counted."""
    leaves_absent: bool = False
    """Whether those that are away are asked instead, and `left` to follow when they are back."""
    accepted_lost: int = 0
    """How many lost devices a person goes on with; see `has_lost_a_step`."""
    at: datetime


class EndRollout(Contract):
    """Ask no more devices; those that were asked keep their assignment, as `left`.

    Those that were not asked are withdrawn.
    """

    deployment_id: str
    at: datetime


class RollBack(Contract):
    """Ask the devices that run the deployment's revision, or are to, to run what they ran before.

    Those that were not asked are withdrawn.
    """

    deployment_id: str
    at: datetime


class RolloutState(Contract):
    counts: RolloutCounts
    failures: tuple[str, ...] = ()
    """The first failed devices, each with its reason in a line."""
    has_more: bool = False
    """Whether the same command is to be given again: each changes a bounded number of devices."""
    sequence: int = 0
    """The sequence of the last step in the deployment's row."""


advance_rollout = Effect("advance_rollout", AdvanceRollout, RolloutState, start_to_close_s=60)
end_rollout = Effect("end_rollout", EndRollout, RolloutState, start_to_close_s=60)
roll_back = Effect("roll_back", RollBack, RolloutState, start_to_close_s=60)
