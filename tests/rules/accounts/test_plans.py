"""What each plan unlocks, and what is said to accounts of a lower one."""

import pytest

from workflows.rules.accounts.plans import PLANS, UNLOCKS, Feature, Plan, plan_for, refusal_of

EXPECTED = {
    Feature.DATASTORES: {"team", "enterprise"},
    Feature.RESERVATIONS: {"team", "enterprise"},
    Feature.FEDERATED_JOBS: {"enterprise"},
}


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("feature", Feature)
def test_a_plan_unlocks_what_it_and_the_lower_ones_have(plan: Plan, feature: Feature) -> None:
    refused = refusal_of(feature, plan, "acme")
    assert (refused is None) is (plan in EXPECTED[feature])
    if refused is not None:
        higher = "" if plan_for(feature) == "enterprise" else " or a higher one"
        asked = f"{feature}: asked the plan {plan_for(feature)}{higher}"
        assert refused == f"{asked}, account acme has {plan}"


def test_every_plan_and_every_feature_is_in_the_table() -> None:
    assert tuple(UNLOCKS) == PLANS == ("individual", "team", "enterprise")
    assert frozenset.union(*UNLOCKS.values()) == set(Feature)
    assert sum(map(len, UNLOCKS.values())) == len(Feature), "each is unlocked once"


def test_an_unknown_plan_unlocks_nothing() -> None:
    assert all(refusal_of(feature, "galaxy", "acme") for feature in Feature)
