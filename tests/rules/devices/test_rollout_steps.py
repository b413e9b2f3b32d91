"""Which devices a rollout asks next, and what it comes to."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflows.contracts.deployments import DeploymentStatus, RolloutCounts, RolloutPolicy
from workflows.rules.devices.rollout import (
    described,
    has_failed,
    is_over,
    next_to_ask,
    verdict_of,
    waits_for_absent,
)

_few = st.integers(0, 12)


@st.composite
def all_counts(draw: st.DrawFn) -> RolloutCounts:
    asked = draw(_few)
    away = draw(st.integers(0, asked))
    fields = ("waiting", "running", "failed", "superseded", "left", "withdrawn")
    others = {name: draw(_few) for name in fields}
    return RolloutCounts(asked=asked, away=away, **others)


policies = st.builds(
    RolloutPolicy,
    max_unavailable=st.integers(1, 10),
    max_failures=st.one_of(st.none(), st.integers(1, 10)),
    rolls_back=st.booleans(),
)


@pytest.mark.parametrize(
    ("counts", "most", "asks"),
    [
        ({"waiting": 10}, 3, 3),
        ({"waiting": 2}, 3, 2),
        ({"waiting": 10, "asked": 2}, 3, 1),
        ({"waiting": 10, "asked": 3}, 3, 0),
        ({"waiting": 10, "asked": 3, "away": 3}, 3, 3),
        ({"waiting": 10, "asked": 5}, 3, 0),
        ({"asked": 1}, 3, 0),
        ({"waiting": 10, "failed": 2}, 3, 3),
    ],
)
def test_so_many_are_asked_next(counts: dict[str, int], most: int, asks: int) -> None:
    policy = RolloutPolicy(max_unavailable=most)
    assert next_to_ask(policy, RolloutCounts.model_validate(counts)) == asks


@pytest.mark.parametrize(
    ("counts", "policy", "verdict"),
    [
        ({"running": 3}, {}, "finished"),
        ({"running": 3, "asked": 1, "away": 1}, {}, None),
        ({"running": 3, "waiting": 1}, {}, None),
        ({"failed": 4}, {}, "finished"),
        ({"failed": 1, "waiting": 9}, {"max_failures": 2}, None),
        ({"failed": 2, "waiting": 9}, {"max_failures": 2}, "failed"),
        ({"failed": 2, "asked": 9}, {"max_failures": 2, "rolls_back": True}, "rolling_back"),
        ({"failed": 2, "running": 9}, {"max_failures": 2, "rolls_back": True}, "rolling_back"),
        ({"superseded": 2, "running": 1}, {"max_failures": 1}, "finished"),
    ],
)
def test_a_rollout_comes_to_an_end(
    counts: dict[str, int], policy: dict[str, object], verdict: str | None
) -> None:
    it = verdict_of(RolloutPolicy.model_validate(policy), RolloutCounts.model_validate(counts))
    assert it == (DeploymentStatus(verdict) if verdict else None)


def test_only_devices_that_are_away_are_left() -> None:
    assert waits_for_absent(RolloutCounts(asked=2, away=2, running=1))
    assert not waits_for_absent(RolloutCounts(asked=2, away=1))
    assert not waits_for_absent(RolloutCounts(asked=2, away=2, waiting=1))
    assert not waits_for_absent(RolloutCounts(running=2))


def test_a_line_says_what_is_not_0() -> None:
    assert described(RolloutCounts(running=1)) == "1 of 1 device run it"
    counts = RolloutCounts(waiting=1, asked=5, away=2, running=3, failed=1, left=0, superseded=1)
    assert described(counts) == (
        "3 of 11 devices run it, 1 failed, 3 under way, 2 away, 1 not asked yet, "
        "1 with a newer wish"
    )


@given(policies, all_counts())
def test_never_are_more_unavailable_than_the_policy_allows(
    policy: RolloutPolicy, counts: RolloutCounts
) -> None:
    more = next_to_ask(policy, counts)
    busy = counts.asked - counts.away
    assert 0 <= more <= counts.waiting
    assert more == 0 or busy + more <= policy.max_unavailable


@given(policies, all_counts())
def test_a_rollout_that_goes_on_has_somebody_to_ask_or_to_wait_for(
    policy: RolloutPolicy, counts: RolloutCounts
) -> None:
    if verdict_of(policy, counts) is None:
        assert next_to_ask(policy, counts) > 0 or counts.asked > 0


@given(policies, all_counts())
def test_nobody_is_asked_once_it_is_over_or_has_failed(
    policy: RolloutPolicy, counts: RolloutCounts
) -> None:
    if is_over(counts) or has_failed(policy, counts):
        assert next_to_ask(policy, counts) == 0
        assert verdict_of(policy, counts) is not None


@given(policies, st.integers(1, 40), st.sets(st.integers(0, 39)), st.data())
def test_every_rollout_ends_however_its_devices_come_to_an_end(
    policy: RolloutPolicy, devices: int, bad: set[int], data: st.DataObject
) -> None:
    waiting, asked = list(range(devices)), list[int]()
    running = failed = rounds = 0
    while True:
        counts = RolloutCounts(
            waiting=len(waiting), asked=len(asked), running=running, failed=failed
        )
        assert counts.total == devices
        if verdict_of(policy, counts) is not None:
            break
        more = next_to_ask(policy, counts)
        asked, waiting = asked + waiting[:more], waiting[more:]
        assert 0 < len(asked) <= policy.max_unavailable
        ends = data.draw(st.integers(1, len(asked)))
        for device in asked[:ends]:
            running, failed = (running, failed + 1) if device in bad else (running + 1, failed)
        asked = asked[ends:]
        rounds += 1
    assert rounds <= devices
    if not bad:
        assert running == devices
