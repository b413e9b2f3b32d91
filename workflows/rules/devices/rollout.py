"""The decisions of a rollout: how many devices are asked next, and what a deployment came to."""

from workflows.contracts.deployments import DeploymentStatus, RolloutCounts, RolloutPolicy
from workflows.rules.counts import counted


def next_to_ask(policy: RolloutPolicy, counts: RolloutCounts) -> int:
    """How many of the waiting devices that can be reached may be asked now.

    Devices that are away are asked whatever the policy says of those that are unavailable, because
    the rollout makes them no less available than they are.
    """
    if has_failed(policy, counts):
        return 0
    busy = counts.asked - counts.away
    return max(0, min(counts.waiting, policy.max_unavailable - busy))


def has_failed(policy: RolloutPolicy, counts: RolloutCounts) -> bool:
    """Whether so many devices have failed that no more are asked."""
    return policy.max_failures is not None and counts.failed >= policy.max_failures


def is_over(counts: RolloutCounts) -> bool:
    """Whether every device has come to an end."""
    return counts.waiting + counts.asked == 0


def waits_for_absent(counts: RolloutCounts) -> bool:
    """Whether all that is left is devices that are away."""
    return counts.waiting == 0 and counts.asked > 0 and counts.asked == counts.away


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
        "under way": counts.asked - counts.away,
        "away": counts.away,
        "not asked yet": counts.waiting,
        "with a newer assignment": counts.superseded,
        "left to follow it by themselves": counts.left,
        "withdrawn": counts.withdrawn,
    }
    return ", ".join((words, *(f"{number} {name}" for name, number in parts.items() if number)))
