"""The decisions of a rollout, for all counts of devices."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflows.contracts.deployments import DeploymentStatus, RolloutCounts, RolloutPolicy
from workflows.rules.devices.rollout import (
    described,
    has_lost_a_step,
    is_over,
    next_to_ask,
    verdict_of,
    waits_for_absent,
)

FEW = st.integers(0, 9)
POLICIES = st.builds(
    RolloutPolicy,
    max_unavailable=st.integers(1, 9),
    max_failures=st.none() | st.integers(1, 4),
    rolls_back=st.booleans(),
)


@st.composite
def rollouts(draw: st.DrawFn) -> RolloutCounts:
    waiting = draw(FEW)
    return RolloutCounts(
        waiting=waiting,
        asked=draw(FEW),
        away=draw(st.integers(0, waiting)),
        running=draw(FEW),
        failed=draw(FEW),
        superseded=draw(FEW),
        left=draw(FEW),
        withdrawn=draw(FEW),
    )


COUNTS = rollouts()


@pytest.mark.parametrize(
    ("counts", "most", "asks"),
    [
        ({"waiting": 10}, 3, 3),
        ({"waiting": 2}, 3, 2),
        ({"waiting": 10, "asked": 2}, 3, 1),
        ({"waiting": 10, "asked": 3}, 3, 0),
        ({"waiting": 10, "asked": 1, "away": 9}, 3, 1),
        ({"waiting": 10, "away": 10}, 3, 0),
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
        ({"running": 3, "waiting": 1, "away": 1}, {}, None),
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
    assert waits_for_absent(RolloutCounts(waiting=2, away=2, running=1))
    assert not waits_for_absent(RolloutCounts(waiting=2, away=1))
    assert not waits_for_absent(RolloutCounts(waiting=2, away=2, asked=1))
    assert not waits_for_absent(RolloutCounts(running=2))


@given(POLICIES, COUNTS)
def test_no_more_are_under_way_than_the_policy_says(
    policy: RolloutPolicy, counts: RolloutCounts
) -> None:
    more = next_to_ask(policy, counts)
    assert 0 <= more <= counts.waiting - counts.away
    assert more == 0 or counts.asked + more <= policy.max_unavailable


@given(POLICIES, COUNTS)
def test_a_rollout_that_goes_on_asks_somebody_or_waits_for_somebody(
    policy: RolloutPolicy, counts: RolloutCounts
) -> None:
    if verdict_of(policy, counts) is None:
        is_busy = counts.asked > 0 or waits_for_absent(counts)
        assert next_to_ask(policy, counts) > 0 or is_busy


@pytest.mark.parametrize(
    ("counts", "accepted", "most", "failures", "is_lost"),
    [
        ({"waiting": 10, "failed": 3, "lost": 3}, 0, 3, None, True),
        ({"waiting": 10, "failed": 3, "lost": 2}, 0, 3, None, False),
        ({"waiting": 10, "failed": 9}, 0, 3, None, False),
        ({"waiting": 0, "asked": 2, "failed": 3, "lost": 3}, 0, 3, None, False),
        ({"waiting": 10, "failed": 5, "lost": 5}, 3, 3, None, False),
        ({"waiting": 10, "failed": 6, "lost": 6}, 3, 3, None, True),
        ({"waiting": 10, "failed": 3, "lost": 3}, 0, 3, 9, False),
    ],
)
def test_a_rollout_that_has_lost_a_step_asks_nobody_unless_a_person_has_chosen_a_limit(
    counts: dict[str, int], accepted: int, most: int, failures: int | None, *, is_lost: bool
) -> None:
    policy = RolloutPolicy(max_unavailable=most, max_failures=failures)
    it = RolloutCounts.model_validate(counts)
    assert has_lost_a_step(policy, it, accepted) is is_lost
    assert not is_lost or next_to_ask(policy, it, accepted) == 0


@given(POLICIES, COUNTS)
def test_too_many_failures_end_a_rollout_which_then_asks_nobody(
    policy: RolloutPolicy, counts: RolloutCounts
) -> None:
    has_failed = policy.max_failures is not None and counts.failed >= policy.max_failures
    verdict = verdict_of(policy, counts)
    bad = DeploymentStatus.ROLLING_BACK if policy.rolls_back else DeploymentStatus.FAILED
    assert (verdict is bad) is has_failed
    assert not has_failed or next_to_ask(policy, counts) == 0


@given(COUNTS)
def test_a_rollout_is_over_once_none_is_waited_for(counts: RolloutCounts) -> None:
    if is_over(counts):
        assert not waits_for_absent(counts)
        assert verdict_of(RolloutPolicy(), counts) is DeploymentStatus.FINISHED


@dataclass
class Fleet:
    """Devices of a rollout, all of which can be reached and come to an end well."""

    counts: RolloutCounts

    def step(self, policy: RolloutPolicy) -> None:
        """Ask as many as may be, then let one that is asked come to an end."""
        more, now = next_to_ask(policy, self.counts), self.counts
        asked = now.asked + more
        update = {"waiting": now.waiting - more, "asked": asked - 1, "running": now.running + 1}
        self.counts = now.model_copy(update=update)


@given(st.integers(1, 40), st.integers(1, 9))
def test_every_device_of_a_rollout_comes_to_its_turn(total: int, at_once: int) -> None:
    policy, fleet = RolloutPolicy(max_unavailable=at_once), Fleet(RolloutCounts(waiting=total))
    for _ in range(total):
        assert verdict_of(policy, fleet.counts) is None
        fleet.step(policy)
    assert fleet.counts.running == total
    assert verdict_of(policy, fleet.counts) is DeploymentStatus.FINISHED


def test_counts_are_said_in_a_line_without_those_that_are_none() -> None:
    counts = RolloutCounts(running=2, failed=1, asked=2, waiting=3, away=1)
    words = "2 of 8 devices run it, 1 failed, 2 under way, 1 away, 2 not asked yet"
    assert described(counts) == words


@given(POLICIES, st.integers(1, 40), st.sets(st.integers(0, 39)), st.data())
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
