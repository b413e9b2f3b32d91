"""The hours of a lease in virtual time: how often it asks, and what outlasts a failure."""

from collections import defaultdict
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from tests.simulation.contracts import Attempt, Sleep, Steps
from tests.simulation.engine.engine import Engine, Limits
from tests.workflows.leases.test_machine import OFFER, REQUEST, seen
from workflows.contracts import errors
from workflows.contracts.base import Contract, Done
from workflows.contracts.leases import LeaseProgress, LeaseRelease
from workflows.contracts.lifecycles import Record, Recorded
from workflows.contracts.machines import MachineNotification, MachineObservation, MachineSpec
from workflows.contracts.statuses import LeaseStatus, MachineState, ProviderKind
from workflows.effects.leases import HolderNotified, NotifyHolder
from workflows.effects.machines import CreateMachine, ShortagesFound
from workflows.effects.nodes import NodeReached
from workflows.leases.lease_lifecycle import LeaseLifecycle
from workflows.rules.catalogue.providers import traits_of

ID = "lease/lea-1"
MINUTE_S, HOUR_S, DAY_S = 60, 3600, 24 * 3600
OTHER = OFFER.model_copy(update={"zone": "zone-b"})
GONE = MachineObservation(state=MachineState.GONE)
UP = seen(minion_id="SHA256:key")


def _done(_: Contract) -> Contract:
    return Done()


class World:
    """A provider, a holder and a row, which a lease of a day asks.

    fails: by effect, whether a call at this second fails.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self.engine = Engine(7, workflows=[LeaseLifecycle], limits=limits)
        self.asked_s: dict[str, list[int]] = defaultdict(list)
        self.steps: list[Record] = []
        self.made: list[CreateMachine] = []
        self.told: list[NotifyHolder] = []
        self.fails: dict[str, Callable[[int], bool]] = {}
        self.found: MachineObservation = UP
        self.termination_s = 1.0
        self.terminated_s: list[int] = []
        self.run_ids: set[str] = set()
        answers: dict[str, Callable[[Any], Contract]] = {
            "record": self._record,
            "find_shortages": lambda _: ShortagesFound(),
            "create_machine": self._create,
            "wait_for_machine": lambda _: self.found,
            "describe_machine": lambda _: self.found,
            "reach_node": lambda _: NodeReached(boot_id="boot-1"),
            "notify_holder": self._notify,
            "remember_shortage": _done,
        }
        self.engine.serve({name: self._handler(name, answers[name]) for name in answers})
        self.engine.serve({"terminate_machine": self._terminate})

    def _handler(self, name: str, answer: Callable[[Any], Contract]) -> Any:
        def handle(attempt: Attempt, asked: Contract) -> Contract:
            self.run_ids.add(attempt.run_id)
            at = round(self.engine.clock.now / 1e6)
            self.asked_s[name].append(at)
            if name in self.fails and self.fails[name](at):
                raise ApplicationError("not now", type=errors.REFUSED, non_retryable=True)
            return answer(asked)

        return handle

    def _record(self, step: Record) -> Recorded:
        self.steps.append(step)
        return Recorded(applied=True)

    def _create(self, asked: CreateMachine) -> MachineObservation:
        self.made.append(asked)
        return UP

    def _notify(self, told: NotifyHolder) -> HolderNotified:
        self.told.append(told)
        return HolderNotified(is_there=True)

    def _terminate(self, attempt: Attempt, asked: Contract) -> Steps:
        self.terminated_s.append(round(self.engine.clock.now / 1e6))
        yield Sleep(self.termination_s)
        return GONE

    def begin(self, deadline_s: float = DAY_S, **changes: Any) -> None:
        update = {
            "own_worker": False,
            "spec": MachineSpec(lifetime_s=DAY_S),
            "deadline": self.engine.now() + timedelta(seconds=deadline_s),
            **changes,
        }
        self.engine.start("LeaseLifecycle", ID, REQUEST.model_copy(update=update))

    def release(self) -> None:
        asked = LeaseRelease(reason="its job has ended", by_holder=True)
        self.engine.signal(ID, "release", asked)

    @property
    def events(self) -> list[str]:
        return [event.type for step in self.steps for event in step.events]


@pytest.fixture
def world() -> World:
    return World()


def pauses(at_s: list[int]) -> set[int]:
    """The times between these, but for the few seconds that an answer takes."""
    return {10 * round((after - before) / 10) for before, after in pairwise(at_s)}


@pytest.mark.parametrize(
    ("kind", "pause_s"),
    [
        (ProviderKind.GCP, 10 * MINUTE_S),
        (ProviderKind.RUNPOD, 2 * MINUTE_S),  # Which does not notify of a machine's end.
    ],
)
def test_a_ready_lease_looks_at_its_machine_every_few_minutes(
    world: World, kind: ProviderKind, pause_s: int
) -> None:
    world.begin(provider_kind=kind)
    world.engine.play(until=3 * HOUR_S)
    assert pauses(world.asked_s["describe_machine"]) == {pause_s}
    assert len(world.told) == 1, "that the machine is ready"


def test_a_notification_has_the_machine_looked_at_every_half_minute_until_it_is_quiet(
    world: World,
) -> None:
    world.begin()
    world.engine.play(until=5 * MINUTE_S)
    notified = MachineNotification(what="it will be preempted", at=world.engine.now())
    world.engine.signal(ID, "notified", notified)
    world.engine.play(until=HOUR_S)
    first, second, third, *_ = world.asked_s["describe_machine"]
    assert pauses([0, first, second]) == {5 * MINUTE_S, MINUTE_S / 2}
    assert pauses([second, third]) == {10 * MINUTE_S}


def ending_at(world: World, at_s: float, then: MachineObservation, after_s: float) -> None:
    """The provider tells that it ends the machine, and shows its end so many seconds later."""
    preempted = MachineNotification(
        what="it was preempted", at=world.engine.now() + timedelta(seconds=at_s)
    )

    def begin() -> None:
        world.found = UP.model_copy(update={"state": MachineState.ENDING})
        world.engine.signal(ID, "notified", preempted)

    def end() -> None:
        world.found = then

    world.engine.later(at_s, begin)
    world.engine.later(at_s + after_s, end)


@pytest.mark.parametrize("state", [MachineState.STOPPED, MachineState.GONE])
def test_a_machine_that_its_provider_ends_is_lost_when_the_provider_shows_its_end(
    world: World, state: MachineState
) -> None:
    world.begin()
    ending_at(world, HOUR_S, UP.model_copy(update={"state": state}), after_s=45)
    world.engine.play(until=HOUR_S + 55)
    assert world.steps[-1].status == "ready"
    assert [told.lost for told in world.told] == [None]
    world.engine.play(until=HOUR_S + 65)
    lost = [told.lost for told in world.told if told.lost is not None]
    assert [one.reason.partition(" at ")[0] for one in lost] == ["it was preempted"]
    messages = [event.message for step in world.steps for event in step.events]
    assert messages.count("the provider says: ending vm-1") == 1


@pytest.mark.parametrize("is_away", [False, True])
def test_a_machine_whose_end_its_provider_does_not_show_is_lost_after_a_limit(
    world: World, is_away: bool
) -> None:
    limit_s = traits_of(ProviderKind.GCP).ending_limit_s
    world.fails["describe_machine"] = lambda at: is_away and at > HOUR_S + 10
    world.begin()
    ending_at(world, HOUR_S, GONE, after_s=HOUR_S)
    world.engine.play(until=HOUR_S + limit_s - 5)
    assert [told.lost for told in world.told] == [None]
    world.engine.play(until=HOUR_S + limit_s + 5)
    assert [told.lost is not None for told in world.told] == [False, True]
    assert len(world.asked_s["describe_machine"]) < 12, "it is not asked every second"
    world.engine.play(until=2 * HOUR_S)
    assert world.steps[-1].status == "released"


def test_a_machine_that_its_provider_has_restarted_is_not_lost(world: World) -> None:
    world.begin()
    ending_at(world, HOUR_S, UP, after_s=50)
    ending_at(world, HOUR_S + 80, UP, after_s=50)
    world.engine.play(until=3 * HOUR_S)
    assert world.steps[-1].status == "ready"
    assert pauses(world.asked_s["describe_machine"][-3:]) == {10 * MINUTE_S}


AWAY = MachineObservation(
    state=MachineState.RUNNING, provider_machine_id=UP.provider_machine_id, reason="it is offline"
)


def test_a_rented_machine_whose_host_stays_away_is_ended_before_its_holder_hears_of_it(
    world: World,
) -> None:
    world.begin(provider_kind=ProviderKind.VASTAI)
    world.engine.later(HOUR_S, lambda: setattr(world, "found", AWAY))
    world.engine.play(until=HOUR_S + 9 * MINUTE_S)
    assert world.steps[-1].status == "ready", "it may come back"
    world.engine.play(until=HOUR_S + 15 * MINUTE_S)
    assert world.steps[-1].status == "released"
    (lost,) = (told.lost for told in world.told if told.lost is not None)
    assert lost.reason == "it is offline, for 10 minutes"
    assert world.terminated_s[0] < world.asked_s["notify_holder"][-1], "nothing runs there any more"


def test_a_rented_machine_whose_host_comes_back_is_not_ended(world: World) -> None:
    world.begin(provider_kind=ProviderKind.VASTAI)
    for away_s in (HOUR_S, HOUR_S + 12 * MINUTE_S):
        world.engine.later(away_s, lambda: setattr(world, "found", AWAY))
        world.engine.later(away_s + 7 * MINUTE_S, lambda: setattr(world, "found", UP))
    world.engine.play(until=3 * HOUR_S)
    assert world.steps[-1].status == "ready"


def test_the_holder_is_told_of_the_deadline_every_minute_until_it_has_left(world: World) -> None:
    world.begin()
    world.engine.play(until=DAY_S - 5 * MINUTE_S)
    endings = [told.ending for told in world.told if told.ending is not None]
    assert len(endings) == 10
    assert world.asked_s["notify_holder"][1] == DAY_S - 15 * MINUTE_S
    assert pauses(world.asked_s["notify_holder"][1:]) == {MINUTE_S}
    assert world.events.count("lease.ending") == 1
    world.release()
    world.engine.play(until=DAY_S)
    assert world.steps[-1].status == "released"


def test_a_provider_that_cannot_be_asked_is_an_event_once_each_time(world: World) -> None:
    world.fails["describe_machine"] = lambda at: not 2 * HOUR_S < at < 3 * HOUR_S
    world.begin()
    world.engine.play(until=4 * HOUR_S)
    assert world.events.count("lease.not-seen") == 2
    assert world.steps[-1].status == "ready"


def test_a_holder_that_does_not_hear_of_the_loss_for_hours_is_told_every_minute(
    world: World,
) -> None:
    world = World(Limits(suggested_events=100))
    world.begin()
    world.engine.play(until=HOUR_S)
    world.fails["notify_holder"] = lambda at: at < 5 * HOUR_S
    world.found = GONE
    world.engine.play(until=6 * HOUR_S)
    assert world.steps[-1].status == "released"
    assert [told.lost is not None for told in world.told] == [False, True]
    assert len(world.asked_s["notify_holder"]) > 200
    assert len(world.run_ids) > 3, "its history stays short"
    assert {run.status for run in world.steps[-2:]} == {"releasing", "released"}


def test_no_offer_is_tried_after_the_deadline(world: World) -> None:
    """It has passed while the machine of the offer before was terminated."""
    world.termination_s = MINUTE_S
    world.fails["reach_node"] = lambda _: True
    world.begin(deadline_s=MINUTE_S / 2, offers=(OFFER, OTHER))
    world.engine.play(until=HOUR_S)
    assert [made.offer for made in world.made] == [OFFER]
    assert world.steps[-1].status == "refused"
    assert str(world.steps[-1].status_reason).startswith("the deadline has passed")


def test_a_machine_that_starts_is_looked_at_every_minute(world: World) -> None:
    def takes_long(_: Attempt, asked: Contract) -> Steps:
        yield Sleep(10 * MINUTE_S)
        return NodeReached(boot_id="boot-1")

    world.engine.serve({"reach_node": takes_long})
    world.begin()
    world.engine.play(until=9 * MINUTE_S)
    assert pauses(world.asked_s["describe_machine"]) == {MINUTE_S}
    assert world.steps[-1].status == "waiting_for_ssh"


@pytest.mark.parametrize(("is_adopted", "at_s"), [(True, 0), (False, 10 * MINUTE_S)])
def test_an_adopted_lease_looks_at_its_machine_at_once(
    world: World, is_adopted: bool, at_s: int
) -> None:
    progress = LeaseProgress(
        sequence=7, status=LeaseStatus.READY, offer=OFFER, seen=UP, was_ready=True,
        is_adopted=is_adopted,
    )  # fmt: skip
    world.begin(resumed_from=progress)
    world.engine.play(until=HOUR_S / 4)
    assert world.asked_s["describe_machine"][0] == at_s
    assert world.made == []
    assert [told.ready is not None for told in world.told] == [True]
    assert world.events == [], "it is ready as before"


def test_each_step_of_a_lease_is_told_with_its_machine(world: World) -> None:
    world.begin()
    world.engine.play(until=HOUR_S)
    world.release()
    world.engine.play(until=2 * HOUR_S)
    told = [(step.status, event.message) for step in world.steps for event in step.events]
    assert told == [
        ("creating", "large in zone-a is being created"),
        ("creating", "the provider says: running vm-1"),
        ("waiting_for_ssh", "the provider says: running vm-1"),
        ("ready", "answers at 10.0.0.1:22"),
        ("releasing", "its job has ended"),
        ("released", "its job has ended"),
    ]
    assert [step.sequence for step in world.steps] == [1, 2, 3, 4, 5, 6]
    changes = [step.changes for step in world.steps]
    assert {change.offer for change in changes} == {OFFER}  # type: ignore[union-attr]
    assert [getattr(change, "provider_machine_id", "") for change in changes] == [
        None, *["vm-1"] * 5,
    ]  # fmt: skip
    releasing = [change.ending for change in changes]  # type: ignore[union-attr]
    assert [ending is not None for ending in releasing] == [False] * 4 + [True, False]
    assert releasing[4].was_ready  # type: ignore[union-attr]


def test_the_first_of_two_releases_counts(world: World) -> None:
    world.begin()
    world.engine.play(until=HOUR_S)
    world.termination_s = MINUTE_S
    world.release()
    world.engine.later(10, lambda: world.engine.signal(ID, "release", LeaseRelease(reason="late")))
    world.engine.play(until=2 * HOUR_S)
    assert world.steps[-1].status_reason == "its job has ended"
    assert world.events.count("lease.releasing") == 1
    assert len(world.told) == 1, "the holder has released it"


def test_a_lease_that_is_canceled_in_temporal_says_so_to_its_holder(world: World) -> None:
    world.begin()
    world.engine.play(until=HOUR_S)
    world.engine.cancel(ID)
    world.engine.play(until=2 * HOUR_S)
    assert (world.steps[-1].status, world.steps[-1].status_reason) == (
        "released",
        "canceled in Temporal",
    )
    assert [told.lost.reason for told in world.told if told.lost] == ["canceled in Temporal"]


def test_a_shortage_that_cannot_be_remembered_keeps_nobody_from_the_next_offer(
    world: World,
) -> None:
    def is_short(_: Attempt, asked: CreateMachine) -> MachineObservation:
        world.made.append(asked)
        if len(world.made) == 1:
            raise ApplicationError("none left", type=errors.CAPACITY_EXHAUSTED, non_retryable=True)
        return UP

    world.engine.serve({"create_machine": is_short})
    world.fails["remember_shortage"] = lambda _: True
    world.begin(offers=(OFFER, OTHER))
    world.engine.play(until=HOUR_S)
    assert [made.offer for made in world.made] == [OFFER, OTHER]
    assert len(world.asked_s["remember_shortage"]) == 1
    assert world.steps[-1].status == "ready"
