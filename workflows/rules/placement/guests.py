"""Which guests a region takes, by the policy of its owner, and at which hours."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from workflows.contracts.placement import Demand
from workflows.contracts.regions import GuestPolicy


def admits(policy: GuestPolicy, demand: Demand) -> bool:
    """Whether the policy lets in jobs of the demand's account or project."""
    if policy.is_for_all or demand.account_id in policy.accounts:
        return True
    return demand.project_id in policy.projects


def takes_guests_at(policy: GuestPolicy, at: datetime) -> bool:
    """Whether guests are placed at this UTC instant; those that run already go on running."""
    since, until = policy.from_hour, policy.until_hour
    if since is None or until is None:
        return True
    if since <= until:
        return since <= at.hour < until
    return at.hour >= since or at.hour < until


def is_open(stored: Mapping[str, Any] | None, at: datetime) -> bool:
    """`takes_guests_at` of a policy as a region's row has it."""
    return not stored or takes_guests_at(GuestPolicy.model_validate(stored), at)
