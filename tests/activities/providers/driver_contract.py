"""What every driver of machines keeps to, whoever's machines they are.

A driver's own tests subclass `DriverContract` and give it a `market`: the driver, what there is to
be had, and how its provider is made to misbehave.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from activities.providers.base import CapacityExhausted, Driver, RequestRefused, Unavailable
from tests.activities.waiting import wait_for
from workflows.contracts.machines import MachineObservation, MachineOffer, MachineSpec
from workflows.contracts.statuses import MachineState

NAME = "baseload-lea-1"
SPEC = MachineSpec(lifetime_s=3600, tags={"region": "reg-1", "baseload-lease": "lea-1"})


@dataclass(frozen=True)
class Market:
    """A provider with something to sell: two offers that differ, of one place."""

    driver: Driver
    offer: MachineOffer
    another: MachineOffer
    lose_a_reply: Callable[[], None]
    """The next change is done, and goes unanswered."""
    sell_out: Callable[[], None]
    refuse: Callable[[], None]
    """The next making is refused for good."""
    go_away: Callable[[], None]
    """From now on it cannot be asked."""
    made: Callable[[], int]
    """How many machines it has ever made."""
    looks_back: bool = True
    """Whether its provider tells from when to when a machine has cost money."""
    lists: bool = True
    """Whether its machines are ours to end, and so are listed."""

    @property
    def zone(self) -> str:
        return self.offer.zone

    def find(self) -> MachineObservation | None:
        return self.driver.find(NAME, self.zone)

    def create(self) -> MachineObservation:
        return self.driver.create(NAME, self.offer, SPEC)

    def until_reachable(self) -> MachineObservation:
        def look() -> MachineObservation | None:
            seen = self.find()
            return seen if seen is not None and seen.is_reachable else None

        found = wait_for(look, "an address and a key")
        assert found is not None
        return found

    def billed_period(self, machine_id: str | None) -> MachineObservation:
        return self.driver.billed_period(NAME, self.zone, machine_id)

    def end(self) -> None:
        self.driver.terminate(NAME, self.zone)
        wait_for(lambda: self.find() is None, "it is gone")


class DriverContract:
    def test_a_machine_is_made_found_listed_ended_and_looked_back_at(self, market: Market) -> None:
        assert market.find() is None
        market.create()
        seen = market.until_reachable()
        assert (seen.state, seen.zone) == (MachineState.RUNNING, market.zone)
        assert seen.offer_label == market.offer.label != market.another.label
        assert seen.provider_machine_id is not None
        assert seen.began_at is not None
        owned = market.driver.list_owned()
        listed = [(each.machine_name, each.zone, each.seen.provider_machine_id) for each in owned]
        assert listed == [(NAME, market.zone, seen.provider_machine_id)] * market.lists
        market.end()
        assert list(market.driver.list_owned()) == []
        past = market.billed_period(seen.provider_machine_id)
        assert past.state is MachineState.GONE
        if not market.looks_back:
            assert (past.began_at, past.ended_at) == (None, None)
            return
        assert past.began_at is not None
        assert past.ended_at is not None
        assert abs((past.began_at - seen.began_at).total_seconds()) < 1
        assert past.ended_at >= past.began_at
        assert market.billed_period(None) == past

    def test_a_name_that_is_there_is_found_and_not_made_again(self, market: Market) -> None:
        market.create()
        first = market.until_reachable()
        again = market.driver.create(NAME, market.another, SPEC)
        assert again.provider_machine_id == first.provider_machine_id
        assert again.offer_label == market.offer.label
        assert market.made() == 1

    def test_a_making_that_went_unanswered_is_unavailable_and_found(self, market: Market) -> None:
        market.lose_a_reply()
        with pytest.raises(Unavailable):
            market.create()
        market.until_reachable()
        assert market.made() == 1

    def test_a_release_may_be_repeated_and_is_silent_when_there_is_nothing(
        self, market: Market
    ) -> None:
        market.driver.terminate(NAME, market.zone)
        market.create()
        market.until_reachable()
        market.lose_a_reply()
        with pytest.raises(Unavailable):
            market.driver.terminate(NAME, market.zone)
        for _ in range(2):
            market.end()
        assert market.made() == 1

    def test_what_it_has_none_left_of_is_exhausted_and_leaves_nothing(self, market: Market) -> None:
        market.sell_out()
        with pytest.raises(CapacityExhausted):
            market.create()
        wait_for(lambda: market.find() is None, "nothing of it is there")
        assert list(market.driver.list_owned()) == []

    def test_what_it_will_not_do_is_refused_in_its_words(self, market: Market) -> None:
        market.refuse()
        with pytest.raises(RequestRefused, match=r"\w"):
            market.create()
        assert market.find() is None

    def test_a_provider_that_cannot_be_asked_is_unavailable_for_everything(
        self, market: Market
    ) -> None:
        market.go_away()
        asked: list[Callable[[], object]] = [
            market.find,
            market.create,
            lambda: market.driver.terminate(NAME, market.zone),
        ]
        if market.lists:
            asked.append(market.driver.list_owned)
        if market.looks_back:
            asked.append(lambda: market.billed_period("4711"))
        for ask in asked:
            with pytest.raises(Unavailable):
                ask()

    def test_nothing_is_known_of_a_machine_that_never_was(self, market: Market) -> None:
        for machine_id in ("4711", None):
            never = market.billed_period(machine_id)
            assert (never.state, never.began_at, never.ended_at) == (MachineState.GONE, None, None)
