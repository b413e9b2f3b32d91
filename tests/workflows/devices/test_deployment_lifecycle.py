"""The life of a deployment in virtual time: its steps, its ends, and what people order."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial

import pytest

from tests.simulation.contracts import Attempt
from tests.simulation.engine.engine import Engine, Limits
from tests.workflows.fake_devices import Rollout
from workflows.contracts.base import Contract
from workflows.contracts.deployments import (
    DeploymentAction,
    DeploymentOrder,
    DeploymentReport,
    DeploymentRequest,
    DeploymentStatus,
    RolloutCounts,
    RolloutPolicy,
    TargetState,
)
from workflows.contracts.lifecycles import DeploymentChanges, Record, Recorded
from workflows.devices.deployment_lifecycle import COUNT_INTERVAL, DeploymentLifecycle
from workflows.effects import deployments
from workflows.rules.devices.rollout import may_ask, next_to_ask

ID = "deployment/dpl-1"
MINUTE_S, HOUR_S = 60.0, 3600.0


class Fleet:
    """The devices of one deployment: each takes its time once it is asked, and then wakes it."""

    def __init__(self, policy: RolloutPolicy, devices: int = 6, **changes: object) -> None:
        self.engine = Engine(7, workflows=[DeploymentLifecycle], limits=Limits(4096))
        self.policy = policy
        self.rollout = Rollout(
            states={f"dev-{n}": TargetState.WAITING for n in range(1, devices + 1)}
        )
        self.takes_s = 60.0
        self.wakes = True
        self.lost: set[str] = set()
        """Those of the failed that could not be reached for too long."""
        self.steps: list[Record] = []
        self.asked: list[str] = []
        self.calls = 0
        self.was_rolled_back = self.has_ended = False
        self.batch = 500
        self.sequence = 0
        self.most_at_once = 0
        self.engine.serve(
            {
                "record": self._record,
                "advance_rollout": self._advance,
                "end_rollout": self._end,
                "roll_back": self._roll_back,
            }
        )
        values = {
            "deployment_id": "dpl-1", "account_id": "acc-1", "region_id": "reg-1",
            "name": "detector", "policy": policy, **changes,
        }  # fmt: skip
        self._request = DeploymentRequest.model_validate(values)

    def begin(self) -> "Fleet":
        self.engine.start("DeploymentLifecycle", ID, self._request)
        return self

    def order(self, action: DeploymentAction) -> None:
        self.engine.signal(ID, "order", DeploymentOrder(action=action, requested_by="ada"))

    def until(self, condition: Callable[[], bool], most_s: float = 24 * HOUR_S) -> None:
        assert self.engine.play(condition, most_s=most_s) == "until", self.events

    def ends(self, most_s: float = 48 * HOUR_S) -> str:
        """Let it come to its end, and return its status."""
        self.until(lambda: self.engine.describe(ID).status == "completed", most_s)
        report: DeploymentReport = self.engine.result(ID)
        assert report.status == self.status
        assert self.has_ended or self.was_rolled_back, (
            "either way its devices know that it has ended"
        )
        return self.status

    def passes(self, seconds: float) -> None:
        self.engine.play(lambda: False, most_s=seconds)

    @property
    def status(self) -> str:
        return self.steps[-1].status if self.steps else ""

    @property
    def reason(self) -> str:
        return self.steps[-1].status_reason or ""

    @property
    def events(self) -> list[str]:
        return [str(event.type) for step in self.steps for event in step.events]

    @property
    def counts(self) -> RolloutCounts:
        return self.rollout.counts().model_copy(update={"lost": len(self.lost)})

    def states(self, state: TargetState) -> list[str]:
        return [name for name, each in self.rollout.states.items() if each is state]

    # ── effects ─────────────────────────────────────────────────────────────────────────────

    def _record(self, _: Attempt, step: Record) -> Recorded:
        self.steps.append(step)
        return Recorded(applied=True)

    def _advance(self, _: Attempt, asked: deployments.AdvanceRollout) -> Contract:
        self.calls += 1
        has_more = False
        if asked.asks:
            waiting = self.states(TargetState.WAITING)
            away = [name for name in waiting if name in self.rollout.away]
            present = [name for name in waiting if name not in self.rollout.away]
            most = min(self.batch, next_to_ask(asked.policy, self.counts, asked.accepted_lost))
            if asked.leaves_absent and may_ask(asked.policy, self.counts, asked.accepted_lost):
                self.rollout.states |= dict.fromkeys(away, TargetState.LEFT)
            elif not asked.leaves_absent:
                self._ask(present[:most])
                has_more = most == self.batch
        self.most_at_once = max(self.most_at_once, len(self.states(TargetState.ASKED)))
        return self._answer(has_more=has_more)

    def _ask(self, names: Sequence[str]) -> None:
        for name in names:
            self.asked.append(name)
            self.rollout.states[name] = TargetState.ASKED
            if name not in self.rollout.away:
                self.engine.later(self.takes_s, partial(self.comes_to_an_end, name))

    def gives_up(self, *names: str) -> None:
        """The devices could not be reached for too long; that is seen with the next count."""
        self.rollout.states |= dict.fromkeys(names, TargetState.FAILED)
        self.lost |= set(names)
        self.engine.signal(ID, "wake")

    def is_back(self, name: str) -> None:
        """The device can be reached again; that wakes the deployment."""
        self.rollout.away.discard(name)
        self.engine.signal(ID, "wake")

    def comes_to_an_end(self, name: str) -> None:
        """The device runs what it was asked to run, or has failed; that wakes the deployment."""
        if self.rollout.states[name] not in (TargetState.ASKED, TargetState.LEFT):
            return
        self.rollout.away.discard(name)
        failed = name in self.rollout.bad
        self.rollout.states[name] = TargetState.FAILED if failed else TargetState.RUNNING
        if self.wakes and self.engine.describe(ID).status == "running":
            self.engine.signal(ID, "wake")

    def _end(self, _: Attempt, __: deployments.EndRollout) -> Contract:
        self.has_ended = True
        still = [name for name, state in self.rollout.states.items() if state.is_open]
        for name in still[: self.batch]:
            is_asked = self.rollout.states[name] is TargetState.ASKED
            self.rollout.states[name] = TargetState.LEFT if is_asked else TargetState.WITHDRAWN
        return self._answer(has_more=len(still) >= self.batch)

    def _roll_back(self, _: Attempt, __: deployments.RollBack) -> Contract:
        self.was_rolled_back = True
        more = [name for name, s in self.rollout.states.items() if s is not TargetState.WITHDRAWN]
        self.rollout.states |= dict.fromkeys(more[: self.batch], TargetState.WITHDRAWN)
        return self._answer(has_more=len(more) >= self.batch)

    def _answer(self, *, has_more: bool = False) -> deployments.RolloutState:
        failures = tuple(f"{name}: no answer" for name in self.states(TargetState.FAILED))
        return deployments.RolloutState(
            counts=self.counts,
            failures=failures[:3],
            has_more=has_more,
            sequence=self.sequence,
        )


def fleet(devices: int = 6, **policy: object) -> Fleet:
    return Fleet(RolloutPolicy.model_validate(policy), devices)


# ── steps ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("most", "rounds"), [(1, 6), (2, 3), (4, 2), (1000, 1)])
def test_no_more_devices_are_unavailable_than_the_policy_allows(most: int, rounds: int) -> None:
    it = fleet(max_unavailable=most).begin()
    assert it.ends(most_s=rounds * (it.takes_s + 10)) == "finished"
    assert it.most_at_once == min(most, 6)
    assert len(it.states(TargetState.RUNNING)) == len(it.asked) == 6
    assert it.reason == "6 of 6 devices run it"


def test_its_progress_is_in_its_row_and_its_events() -> None:
    it = fleet(3, max_unavailable=1).begin()
    it.ends()
    shown = [s.changes.counts for s in it.steps if isinstance(s.changes, DeploymentChanges)]
    assert [one.running for one in shown if one] == [0, 1, 2, 3]
    assert it.events[0] == "deployment.rolling-out"
    assert it.events[-1] == "deployment.finished"
    assert it.events.count("deployment.progressed") == 3


def test_devices_whose_wakes_were_lost_are_counted_all_the_same() -> None:
    it = fleet(3, max_unavailable=1)
    it.wakes = False
    it.begin()
    assert it.ends(most_s=3 * COUNT_INTERVAL.total_seconds() + MINUTE_S) == "finished"


def test_many_wakes_at_once_are_one_look() -> None:
    it = fleet(200).begin()
    assert it.ends() == "finished"
    assert it.calls <= 5, "all have ended together"


def test_nothing_is_asked_while_nothing_happens() -> None:
    it = fleet(2, limit_s=30 * 24 * 3600)
    it.rollout.away = {"dev-1", "dev-2"}
    it.begin()
    it.passes(24 * HOUR_S)
    assert it.calls <= 24 * HOUR_S / COUNT_INTERVAL.total_seconds() + 2
    assert len(it.steps) == 2


# ── failures ────────────────────────────────────────────────────────────────────────────────────


def test_after_so_many_failures_no_more_devices_are_asked() -> None:
    it = fleet(max_unavailable=1, max_failures=2)
    it.rollout.bad = {"dev-2", "dev-3", "dev-5"}
    assert it.begin().ends() == "failed"
    assert it.asked == ["dev-1", "dev-2", "dev-3"]
    assert it.states(TargetState.WITHDRAWN) == ["dev-4", "dev-5", "dev-6"]
    assert it.reason.startswith("dev-2: no answer; dev-3: no answer; 1 of 6 devices run it")


def test_failed_devices_stop_nothing_unless_that_is_asked_for() -> None:
    it = fleet()
    it.rollout.bad = {"dev-1", "dev-2", "dev-3"}
    assert it.begin().ends() == "finished"
    assert it.reason.endswith("3 of 6 devices run it, 3 failed")


def test_a_failed_rollout_goes_back_where_that_is_asked_for() -> None:
    it = fleet(max_unavailable=2, max_failures=1, rolls_back=True)
    it.rollout.bad = {"dev-3"}
    assert it.begin().ends() == "rolled_back"
    assert (it.was_rolled_back, len(it.asked)) == (True, 4)
    assert "deployment.rolling-back" in it.events
    assert it.reason.startswith("dev-3: no answer")


# ── devices that are away ───────────────────────────────────────────────────────────────────────


def test_devices_that_are_away_are_waited_for_until_the_limit_and_then_left_with_it() -> None:
    it = fleet(4, max_unavailable=1, limit_s=7200)
    it.rollout.away = {"dev-1", "dev-4"}
    it.begin()
    it.passes(1.9 * HOUR_S)
    assert (it.status, it.asked) == ("rolling_out", ["dev-2", "dev-3"])
    assert it.reason == "2 of 4 devices run it, 2 away"
    it.is_back("dev-4")
    assert it.ends(most_s=HOUR_S) == "finished"
    assert it.states(TargetState.LEFT) == ["dev-1"]
    assert it.reason == "3 of 4 devices run it, 1 left to follow it by themselves"
    assert 7200 <= it.engine.now().timestamp() - it.steps[0].at.timestamp() <= 7260


def test_devices_that_are_back_together_are_asked_in_steps() -> None:
    it = fleet(6, max_unavailable=2)
    it.rollout.away = set(it.rollout.states)
    it.begin()
    it.passes(HOUR_S)
    assert it.asked == []
    for name in it.rollout.states:
        it.is_back(name)
    assert it.ends() == "finished"
    assert (it.most_at_once, len(it.states(TargetState.RUNNING))) == (2, 6)


def test_a_device_that_is_lost_after_it_was_asked_is_waited_for_and_no_other_is_asked() -> None:
    it = fleet(3, max_unavailable=1, limit_s=60)
    it.takes_s = 10 * HOUR_S
    it.begin()
    it.passes(1)
    it.rollout.away = {"dev-1"}
    it.passes(9 * HOUR_S)
    assert (it.status, it.asked) == ("rolling_out", ["dev-1"])


def lost_step(**policy: object) -> Fleet:
    """A rollout of two at a time without a limit of failures, whose first step is lost."""
    it = fleet(6, max_unavailable=2, **policy)
    it.takes_s = 10 * HOUR_S
    it.begin().passes(1)
    it.gives_up("dev-1", "dev-2")
    it.passes(HOUR_S)
    return it


def test_a_revision_that_takes_a_whole_step_offline_pauses_its_rollout_and_says_why() -> None:
    it = lost_step(limit_s=60)
    it.passes(48 * HOUR_S)
    assert (it.status, it.asked) == ("paused", ["dev-1", "dev-2"])
    assert it.reason.startswith("paused: 2 devices could not be reached since it asked them")
    assert "dev-1: no answer" in it.reason
    assert it.events.count("deployment.paused") == 1


def test_a_person_goes_on_with_a_rollout_that_has_lost_a_step_and_it_pauses_at_the_next() -> None:
    it = lost_step()
    it.order(DeploymentAction.RESUME)
    it.passes(HOUR_S)
    assert (it.status, len(it.asked)) == ("rolling_out", 4)
    it.gives_up("dev-3", "dev-4")
    it.until(lambda: it.status == "paused")
    it.takes_s = 60.0
    it.order(DeploymentAction.RESUME)
    assert it.ends() == "finished"
    assert it.reason.endswith("2 of 6 devices run it, 4 failed")


def test_lost_devices_that_are_back_count_no_more_when_a_step_is_lost_later() -> None:
    it = lost_step()
    it.order(DeploymentAction.RESUME)
    it.passes(HOUR_S)
    it.rollout.states |= {"dev-1": TargetState.RUNNING, "dev-2": TargetState.RUNNING}
    it.lost.clear()
    it.engine.signal(ID, "wake")
    it.passes(HOUR_S)
    it.gives_up("dev-3", "dev-4")
    it.until(lambda: it.status == "paused")
    assert len(it.asked) == 4


def test_the_next_workflow_run_knows_which_losses_a_person_goes_on_with() -> None:
    it = Fleet(RolloutPolicy(max_unavailable=2))
    it.engine.limits = Limits(suggested_events=60)
    it.takes_s = 10 * HOUR_S
    it.begin().passes(1)
    it.gives_up("dev-1", "dev-2")
    it.until(lambda: it.status == "paused")
    it.order(DeploymentAction.RESUME)
    first = it.engine.describe(ID).run_id
    it.passes(9 * HOUR_S)
    assert it.engine.describe(ID).run_id != first
    assert (it.status, len(it.asked)) == ("rolling_out", 4)


def test_thousands_of_devices_are_asked_and_rolled_back_some_at_a_time() -> None:
    it = fleet(1000)
    it.batch = 100
    it.begin()
    it.passes(1)
    assert (len(it.asked), it.calls) == (1000, 11)
    it.order(DeploymentAction.ROLL_BACK)
    assert it.ends() == "rolled_back"
    assert len(it.states(TargetState.WITHDRAWN)) == 1000


def test_thousands_of_devices_are_left_some_at_a_time() -> None:
    it = fleet(250, max_unavailable=150)
    it.batch = 100
    it.begin()
    it.passes(2)
    it.order(DeploymentAction.STOP)
    assert it.ends() == "stopped"
    assert (len(it.states(TargetState.LEFT)), it.counts.withdrawn) == (150, 100)


def test_a_rollout_that_takes_longer_than_its_limit_still_asks_every_device() -> None:
    it = fleet(6, max_unavailable=1, limit_s=300)
    it.takes_s, it.wakes = 180.0, True
    it.begin()
    assert it.ends() == "finished"
    assert len(it.states(TargetState.RUNNING)) == 6
    assert it.calls < 40


def test_a_pause_that_is_longer_than_the_limit_withdraws_no_device() -> None:
    it = fleet(4, max_unavailable=1, limit_s=3600).begin()
    it.order(DeploymentAction.PAUSE)
    it.passes(48 * HOUR_S)
    it.order(DeploymentAction.RESUME)
    assert it.ends() == "finished"
    assert len(it.states(TargetState.RUNNING)) == 4


# ── orders ──────────────────────────────────────────────────────────────────────────────────────


def test_a_paused_deployment_asks_nobody_and_counts_those_that_were_asked() -> None:
    it = fleet(max_unavailable=2).begin()
    it.passes(5)
    it.order(DeploymentAction.PAUSE)
    it.until(lambda: it.status == "paused")
    assert it.reason == "paused by ada"
    it.passes(10 * HOUR_S)
    assert (it.status, len(it.asked)) == ("paused", 2)
    assert it.counts.running == 2
    it.order(DeploymentAction.RESUME)
    assert it.ends() == "finished"
    assert it.events.count("deployment.resumed") == it.events.count("deployment.paused") == 1


def test_a_stopped_deployment_asks_nobody_any_more() -> None:
    it = fleet(max_unavailable=1).begin()
    it.until(lambda: it.counts.running == 2)
    it.order(DeploymentAction.STOP)
    assert it.ends(most_s=MINUTE_S) == "stopped"
    assert len(it.states(TargetState.WITHDRAWN)) == 6 - len(it.asked)
    assert it.reason.startswith("stopped by ada; 2 of 6 devices run it")


@pytest.mark.parametrize("is_paused", [False, True])
def test_a_person_rolls_a_deployment_back(is_paused: bool) -> None:
    it = fleet(max_unavailable=1).begin()
    it.until(lambda: it.counts.running == 2)
    if is_paused:
        it.order(DeploymentAction.PAUSE)
        it.until(lambda: it.status == "paused")
    it.order(DeploymentAction.ROLL_BACK)
    assert it.ends(most_s=2 * MINUTE_S) == "rolled_back"
    assert it.was_rolled_back
    assert it.reason.startswith("rolled back by ada")


@pytest.mark.parametrize(
    ("orders", "status"),
    [
        ((DeploymentAction.PAUSE, DeploymentAction.RESUME), "finished"),
        ((DeploymentAction.PAUSE, DeploymentAction.STOP), "stopped"),
        ((DeploymentAction.STOP, DeploymentAction.ROLL_BACK), "rolled_back"),
        ((DeploymentAction.ROLL_BACK, DeploymentAction.STOP), "rolled_back"),
        ((DeploymentAction.RESUME, DeploymentAction.PAUSE, DeploymentAction.RESUME), "finished"),
    ],
)
def test_orders_at_once_are_followed_in_their_order(
    orders: tuple[DeploymentAction, ...], status: str
) -> None:
    it = fleet(3, max_unavailable=1).begin()
    it.passes(5)
    for order in orders:
        it.order(order)
    assert it.ends() == status
    assert it.events.count("deployment.stopped") + it.events.count("deployment.rolled-back") <= 1


# ── the next workflow run ───────────────────────────────────────────────────────────────────────


def test_the_next_workflow_run_goes_on_with_the_same_limit() -> None:
    it = fleet(3, limit_s=24 * 3600)
    it.engine.limits = Limits(suggested_events=60)
    it.rollout.away = {"dev-3"}
    it.begin()
    it.passes(HOUR_S)
    first = it.engine.describe(ID).run_id
    assert it.ends() == "finished"
    assert it.engine.describe(ID).run_id != first
    assert 24 * HOUR_S <= it.engine.now().timestamp() - it.steps[0].at.timestamp() <= 24.1 * HOUR_S
    assert it.events.count("deployment.rolling-out") == 1
    assert [step.sequence for step in it.steps] == list(range(1, len(it.steps) + 1))


@pytest.mark.parametrize("status", [DeploymentStatus.ROLLING_OUT, DeploymentStatus.PAUSED])
def test_a_deployment_that_is_adopted_without_a_deadline_waits_quietly(
    status: DeploymentStatus,
) -> None:
    it = Fleet(RolloutPolicy(), 2, sequence=4, resumed_status=status)
    it.rollout.away = {"dev-1", "dev-2"}
    it.begin()
    it.passes(10 * HOUR_S)
    assert it.calls <= 10 * HOUR_S / COUNT_INTERVAL.total_seconds() + 2
    assert it.status in ("", status)


def test_a_deployment_that_is_adopted_while_it_goes_back_goes_back() -> None:
    status, reason = DeploymentStatus.ROLLING_BACK, "rolled back by ada"
    it = Fleet(RolloutPolicy(), 2, sequence=4, resumed_status=status, resumed_reason=reason)
    assert it.begin().ends() == "rolled_back"
    assert it.reason.startswith(reason)
    assert it.steps[0].sequence == 5


def test_a_deployment_whose_row_is_ahead_stops() -> None:
    it = fleet(3)
    it.sequence = 1000
    it.begin()
    it.passes(10 * HOUR_S)
    assert it.engine.describe(ID).search_attributes["ResourceStatus"] == "stale"
    assert it.calls == 1


def test_a_limit_is_counted_from_the_first_step() -> None:
    it = fleet(2, limit_s=600).begin()
    it.passes(1)
    (first,) = [s.changes for s in it.steps[:1]]
    assert isinstance(first, DeploymentChanges)
    assert first.deadline == it.steps[0].at + timedelta(seconds=600)


def test_a_rollback_that_is_asked_for_while_the_last_device_is_counted_is_not_lost() -> None:
    it = fleet(2)
    advance = it._advance

    def counts_last(attempt: Attempt, asked: deployments.AdvanceRollout) -> Contract:
        answer = advance(attempt, asked)
        if it.counts.running == 2:
            it.order(DeploymentAction.ROLL_BACK)
        return answer

    it.engine.serve({"advance_rollout": counts_last})
    assert it.begin().ends() == "rolled_back"


def test_a_rollback_that_is_asked_for_while_the_end_is_recorded_is_not_lost() -> None:
    it = fleet(2)
    record = it._record

    def asked_meanwhile(attempt: Attempt, step: Record) -> Recorded:
        if step.status == "finished":
            it.order(DeploymentAction.PAUSE)
            it.order(DeploymentAction.ROLL_BACK)
        return record(attempt, step)

    it.engine.serve({"record": asked_meanwhile})
    assert it.begin().ends() == "rolled_back"
    assert it.states(TargetState.WITHDRAWN) == ["dev-1", "dev-2"]


def test_two_people_who_roll_a_deployment_back_roll_it_back_once() -> None:
    it = fleet(2, max_unavailable=1).begin()
    it.until(lambda: it.counts.running == 1)
    record = it._record

    def asked_again(attempt: Attempt, step: Record) -> Recorded:
        if step.status == "rolling_back" and not again:
            again.append(step.status)
            it.order(DeploymentAction.ROLL_BACK)
        return record(attempt, step)

    again: list[str] = []
    it.engine.serve({"record": asked_again})
    it.order(DeploymentAction.ROLL_BACK)
    assert it.ends() == "rolled_back"
    assert it.events.count("deployment.rolled-back") == 1


def test_its_row_says_with_how_many_losses_a_person_goes_on() -> None:
    it = lost_step()
    it.order(DeploymentAction.RESUME)
    it.until(lambda: it.status == "rolling_out")
    [resumed] = [
        step.changes for step in it.steps if "deployment.resumed" in [e.type for e in step.events]
    ]
    assert isinstance(resumed, DeploymentChanges)
    assert resumed.accepted_lost == len(it.lost) == 2
