"""The decisions of a rollout: how many devices are asked next, and what a deployment came to."""

from collections.abc import Sequence
from datetime import timedelta

from workflows.contracts.deployments import DeploymentStatus, RolloutCounts, RolloutPolicy
from workflows.rules.counts import counted

LOST_LIMIT = timedelta(minutes=30)
"""How long a device that was asked may be away before the rollout waits for it no longer."""


def next_to_ask(policy: RolloutPolicy, counts: RolloutCounts, accepted_lost: int = 0) -> int:
    """How many of the waiting devices that can be reached may be asked now.

    A device that was asked is unavailable until it comes to its end, also while it is away: the
    rollout may be the reason. Those that are away when their turn comes go on waiting.
    """
    if not may_ask(policy, counts, accepted_lost):
        return 0
    return max(0, min(counts.waiting - counts.away, policy.max_unavailable - counts.asked))


def has_failed(policy: RolloutPolicy, counts: RolloutCounts) -> bool:
    """Whether so many devices have failed that no more are asked."""
    return policy.max_failures is not None and counts.failed >= policy.max_failures


def has_lost_a_step(policy: RolloutPolicy, counts: RolloutCounts, accepted_lost: int) -> bool:
    """Whether as many devices were lost as are asked at once, while others are not asked yet.

    Without a limit of failures a revision that takes devices offline would else go on from step to
    step, through all of them. A rollout that has lost a step pauses until a person resumes it.

    accepted_lost: how many were lost when a person resumed it last, which count no more.
    """
    if policy.max_failures is not None or counts.waiting == 0:
        return False
    return counts.lost - accepted_lost >= policy.max_unavailable


def may_ask(policy: RolloutPolicy, counts: RolloutCounts, accepted_lost: int) -> bool:
    """Whether the rollout may ask more devices at all."""
    return not has_failed(policy, counts) and not has_lost_a_step(policy, counts, accepted_lost)


def is_over(counts: RolloutCounts) -> bool:
    """Whether every device has come to an end."""
    return counts.waiting + counts.asked == 0


def waits_for_absent(counts: RolloutCounts) -> bool:
    """Whether all that is left is devices that are away and have not been asked."""
    return counts.asked == 0 and counts.waiting > 0 and counts.waiting == counts.away


def verdict_of(policy: RolloutPolicy, counts: RolloutCounts) -> DeploymentStatus | None:
    """What a rollout has come to; None: it goes on."""
    if has_failed(policy, counts):
        return DeploymentStatus.ROLLING_BACK if policy.rolls_back else DeploymentStatus.FAILED
    return DeploymentStatus.FINISHED if is_over(counts) else None


def described(counts: RolloutCounts) -> str:
    """The counts of a deployment in one line, those that are not 0."""
    words = f"{counts.running} of {counted(counts.total, 'device')} run it"
    parts = {
        "failed": counts.failed,
        "under way": counts.asked,
        "away": counts.away,
        "not asked yet": counts.waiting - counts.away,
        "with a newer assignment": counts.superseded,
        "left to follow it by themselves": counts.left,
        "withdrawn": counts.withdrawn,
    }
    return ", ".join((words, *(f"{number} {name}" for name, number in parts.items() if number)))


def described_loss(policy: RolloutPolicy, lost: int, failures: Sequence[str]) -> str:
    """Why a rollout pauses that has lost a step; failures: the first failed devices."""
    what = f"{counted(lost, 'device')} could not be reached since it asked them"
    words = f"paused: {what}, and it asks {policy.max_unavailable} at once"
    return "; ".join((f"{words}; resume it to go on with the others", *failures))
