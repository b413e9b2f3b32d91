"""What takes committed requests to Temporal: together while many come, each at least once tried."""

import asyncio
from collections.abc import Sequence

from activities.outbox.dispatcher import OutboxDispatcher

LIMIT_S = 10.0


class Way:
    """A hand-over that waits until it is let go on."""

    def __init__(self, *, fails: bool = False) -> None:
        self.taken: list[list[str]] = []
        self.open = asyncio.Event()
        self.fails = fails

    async def relay(self, request_ids: Sequence[str]) -> None:
        self.taken.append(list(request_ids))
        await self.open.wait()
        if self.fails:
            raise ConnectionError("Temporal does not answer")


async def test_what_comes_while_all_ways_are_taken_goes_together_with_the_next() -> None:
    way = Way()
    outbox_dispatcher = OutboxDispatcher(way.relay)
    for number in range(100):
        outbox_dispatcher.take([f"req-{number}"])
        await asyncio.sleep(0)
    way.open.set()
    await outbox_dispatcher.settled(LIMIT_S)
    resumed_from = [request_id for taken in way.taken for request_id in taken]
    assert sorted(resumed_from) == sorted(f"req-{number}" for number in range(100))
    assert [len(taken) for taken in way.taken] == [1, 1, 98]


async def test_a_way_that_fails_stops_nobody_behind_it() -> None:
    way = Way(fails=True)
    way.open.set()
    outbox_dispatcher = OutboxDispatcher(way.relay)
    outbox_dispatcher.take(["req-1"])
    await outbox_dispatcher.settled(LIMIT_S)
    outbox_dispatcher.take(["req-2"])
    await outbox_dispatcher.settled(LIMIT_S)
    assert way.taken == [["req-1"], ["req-2"]]


async def test_nothing_to_take_is_no_way() -> None:
    way = Way()
    OutboxDispatcher(way.relay).take([])
    await asyncio.sleep(0)
    assert way.taken == []
