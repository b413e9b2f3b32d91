"""The inbox of a lifecycle: messages keep their order, and each is taken once."""

import pytest

from workflows.contracts.base import Contract
from workflows.primitives.inbox import Inbox


class Letter(Contract):
    number: int


class Parcel(Contract):
    number: int


@pytest.fixture
def inbox() -> Inbox:
    """Two letters, with a parcel between them."""
    made = Inbox()
    for message in (Letter(number=1), Parcel(number=2), Letter(number=3)):
        made.put(message)
    return made


def test_messages_are_taken_in_the_order_in_which_they_came(inbox: Inbox) -> None:
    assert len(inbox) == 3
    taken = [inbox.take() for _ in range(4)]
    assert taken == [Letter(number=1), Parcel(number=2), Letter(number=3), None]
    assert len(inbox) == 0


def test_the_oldest_of_a_kind_is_picked_and_the_others_stay(inbox: Inbox) -> None:
    assert inbox.pick(Parcel) == Parcel(number=2)
    assert inbox.pick(Parcel) is None
    assert inbox.pick(Letter, Parcel) == Letter(number=1)
    assert inbox.take() == Letter(number=3)


def test_an_inbox_knows_which_kinds_it_holds(inbox: Inbox) -> None:
    assert inbox.holds(Parcel)
    assert inbox.holds_others_than(Letter)
    assert not inbox.holds_others_than(Letter, Parcel)
    inbox.pick(Parcel)
    assert not inbox.holds(Parcel)
    assert inbox.holds(Parcel, Letter)
    assert not inbox.holds_others_than(Letter)
    assert inbox.holds_others_than(Parcel)
    assert not Inbox().holds(Letter)
    assert not Inbox().holds_others_than(Letter)


def test_what_is_answered_is_dropped_and_the_rest_keeps_its_order(inbox: Inbox) -> None:
    inbox.drop(lambda message: isinstance(message, Letter) and message.number == 1)
    assert [inbox.take(), inbox.take(), inbox.take()] == [
        Parcel(number=2),
        Letter(number=3),
        None,
    ]
