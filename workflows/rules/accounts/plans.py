"""Plans: what each unlocks beside what the lower ones do."""

from collections.abc import Mapping
from enum import StrEnum


class Plan(StrEnum):
    """The plans, from the lowest to the highest; an administrator sets them."""

    INDIVIDUAL = "individual"
    TEAM = "team"
    ENTERPRISE = "enterprise"


PLANS = tuple(Plan)


class Feature(StrEnum):
    """What needs a plan, in the words of a refusal."""

    DATASTORES = "datastores"
    RESERVATIONS = "reservations"
    FEDERATED_JOBS = "federated jobs"


UNLOCKS: Mapping[Plan, frozenset[Feature]] = {
    Plan.INDIVIDUAL: frozenset(),
    Plan.TEAM: frozenset({Feature.DATASTORES, Feature.RESERVATIONS}),
    Plan.ENTERPRISE: frozenset({Feature.FEDERATED_JOBS}),
}


def plan_for(feature: Feature) -> Plan:
    """The lowest plan that unlocks a feature."""
    return next(plan for plan in PLANS if feature in UNLOCKS[plan])


def refusal_of(feature: Feature, plan: str, account: str) -> str | None:
    """Why an account of this plan does not have a feature, naming the plan that has; None: it has.

    An unknown plan, which a later release has written, unlocks nothing.
    """
    needed = plan_for(feature)
    if plan in PLANS and PLANS.index(Plan(plan)) >= PLANS.index(needed):
        return None
    higher = "" if needed is PLANS[-1] else " or a higher one"
    return f"{feature}: asked the plan {needed}{higher}, account {account} has {plan}"
