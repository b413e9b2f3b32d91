"""What the holder of a lease is told, and what it means that it could not be."""

from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from tests.simulation.contracts import Attempt
from tests.workflows.leases.test_machine import OFFER, seen
from tests.workflows.primitives.played import ID, played
from workflows.contracts.errors import REFUSED
from workflows.contracts.events import Event
from workflows.contracts.leases import LeaseEnding, MachineLost
from workflows.effects.leases import HolderNotified, NotifyHolder
from workflows.leases.holder import Holder

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
ENDING = LeaseEnding(lease_id="lea-1", reason="its lease ends", ends_at=AT)
LOST = MachineLost(lease_id="lea-1", reason="it was preempted")
Telling = Callable[[Holder], Coroutine[Any, Any, bool]]

TELLINGS: dict[str, Telling] = {
    "ready": lambda holder: holder.notify_ready(seen(), OFFER),
    "ending": lambda holder: holder.notify_ending(ENDING),
    "lost": lambda holder: holder.notify_lost(LOST),
}
LISTENS = HolderNotified(is_there=True, is_notified=True)
FORGOTTEN = HolderNotified(is_there=True, is_notified=False)
GONE = HolderNotified(is_there=False, is_notified=True)
FAILS = None


class Told:
    """What a holder was told, which answers were given, and which events were recorded."""

    def __init__(self, telling: Telling, answer: HolderNotified | None, times: int = 1) -> None:
        self.commands: list[NotifyHolder] = []
        self.answers: list[bool] = []
        self.events: list[Event] = []
        self._telling, self._answer, self._times = telling, answer, times

    def play(self) -> "Told":
        assert played(self._story, {"notify_holder": self._notify}).describe(ID).status == (
            "completed"
        )
        return self

    def _notify(self, _: Attempt, command: NotifyHolder) -> HolderNotified:
        self.commands.append(command)
        if self._answer is None:
            raise ApplicationError(f"nobody listens {len(self.commands) // 3}", type=REFUSED)
        return self._answer

    async def _story(self) -> None:
        async def keep(event: Event) -> None:
            self.events.append(event)

        holder = Holder("nod-1", "lea-1", keep)
        for _ in range(self._times):
            self.answers.append(await self._telling(holder))


@pytest.mark.parametrize(
    ("telling", "answer", "is_told"),
    [
        ("ready", LISTENS, True),
        ("ready", FAILS, True),
        ("ready", GONE, False),
        ("ending", LISTENS, True),
        ("ending", FAILS, True),
        ("ending", GONE, False),
        ("lost", LISTENS, True),
        ("lost", GONE, True),
        ("lost", FAILS, False),
        ("lost", FORGOTTEN, False),
    ],
)
def test_a_holder_that_is_not_told_is_missing_or_told_again(
    telling: str, answer: HolderNotified | None, is_told: bool
) -> None:
    told = Told(TELLINGS[telling], answer).play()
    assert told.answers == [is_told]
    (command,) = told.commands
    assert command.holder_id == "nod-1"
    given = {"ready": command.ready, "ending": command.ending, "lost": command.lost}
    assert [name for name, content in given.items() if content is not None] == [telling]


def test_a_holder_learns_the_machine_and_the_offer_of_its_lease() -> None:
    (command,) = Told(TELLINGS["ready"], LISTENS).play().commands
    assert command.ready is not None
    assert (command.ready.lease_id, command.ready.offer) == ("lea-1", OFFER)
    assert command.ready.seen == seen()


@pytest.mark.parametrize(
    ("answer", "messages"),
    [
        (FORGOTTEN, ["nod-1 could not be notified: its workflow is lost"]),
        (
            FAILS,
            [
                "nod-1 could not be notified: nobody listens 0",
                "nod-1 could not be notified: nobody listens 1",
            ],
        ),
    ],
)
def test_each_reason_why_a_holder_is_not_told_is_an_event_once(
    answer: HolderNotified | None, messages: list[str]
) -> None:
    told = Told(TELLINGS["lost"], answer, times=5).play()
    assert [(one.type, one.message) for one in told.events] == [
        ("lease.holder-not-notified", message) for message in messages
    ]
