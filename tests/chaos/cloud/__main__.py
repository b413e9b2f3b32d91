"""`python -m tests.chaos.cloud`: machines that cost money, and all that dies meanwhile; one table.

Its last line is the sum. Ends with status 1 unless nothing leaked, doubled or was lost.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from tests.chaos.cloud import hosts  # noqa: F401 - puts its faults onto the list
from tests.chaos.cloud.campaign import NO_FAULT, Campaign, Orders
from tests.chaos.cloud.campaign_stack import CloudRoom
from tests.chaos.cloud.database import NAMES, Name
from tests.chaos.cloud.faults import KINDS, ONLY_ON
from tests.chaos.cloud.markets import MARKETS
from tests.chaos.cloud.points import POINTS
from tests.chaos.cloud.tally import Tally
from tests.chaos.running import parser, tell
from tests.lab.host import obstacle
from workers.process import leave

THREADS = 32
USUAL: Name = "sqlite"
"""What `make up` has."""
SHORT_ROUNDS = 2
"""Of the campaign on another database, for what happens to that alone."""


def main(arguments: list[str]) -> int:
    """Inject faults, look at the world, print the table; 1 when anything is wrong."""
    orders = asked_for(arguments)
    reason = obstacle()
    if reason is not None:
        tell(reason)
        return 1
    tell(f"seed {orders[0].seed}")
    tally = asyncio.run(run(orders))
    tell(tally.table())
    for missed in tally.missed:
        tell(f"missed: {missed}")
    for found in tally.found:
        tell(found)
    tell(tally.last_line())
    return 0 if tally.is_clean else 1


async def run(campaigns: list[Orders]) -> Tally:
    """One after the other, counted together."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS))
    tally = Tally()
    for orders in campaigns:
        await _one(orders, tally)
    return tally


async def _one(orders: Orders, tally: Tally) -> None:
    room = CloudRoom(tell, MARKETS[orders.market](), orders.database)
    campaign = Campaign(room, orders, tally)
    story = asyncio.create_task(campaign.run())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, story.cancel)
    try:
        await story
    except asyncio.CancelledError:
        tally.wrong(NO_FAULT, "lost", "it was broken off")
    finally:
        went_well = campaign.is_over and tally.is_clean
        room.close(None if went_well else orders.evidence)


def asked_for(arguments: list[str]) -> list[Orders]:
    """A campaign for each database whose kinds are asked for; the usual one comes last, and has
    the time that is left."""
    accepts = parser("python -m tests.chaos.cloud", __doc__, KINDS)
    accepts.add_argument("market", nargs="?", choices=MARKETS, default=next(iter(MARKETS)))
    accepts.add_argument("--faults", type=int, default=1000, help="how many to inject")
    accepts.add_argument("--minutes", type=float, default=50, help="begin no round after these")
    accepts.add_argument("--jobs", type=int, default=20, help="of each round")
    accepts.add_argument("--at-once", type=int, default=8, help="jobs that are under way at once")
    accepts.add_argument("--at", action="append", choices=list(POINTS), help="at these points only")
    accepts.add_argument("--times", type=int, default=2, help="at each point, in each round")
    accepts.add_argument("--storm", action="store_true", help="lose replies too, from the first on")
    accepts.add_argument(
        "--database", choices=NAMES, help="on this one only, all kinds it can have"
    )
    asked = accepts.parse_args(arguments)
    return [
        Orders(
            market=asked.market,
            faults=asked.faults,
            seed=asked.seed,
            kinds=kinds,
            minutes=asked.minutes,
            rounds=SHORT_ROUNDS if database != USUAL and asked.database is None else None,
            jobs=asked.jobs,
            at_once=asked.at_once,
            points=tuple(asked.at or POINTS),
            times=asked.times,
            storm=asked.storm,
            database=database,
            evidence=asked.evidence,
        )
        for database, kinds in _kinds(asked.only, asked.database)
    ]


def _kinds(only: list[str] | None, database: Name | None) -> Iterator[tuple[Name, tuple[str, ...]]]:
    """On which database which kinds are played: all on the usual one but what takes another."""
    for each in (database,) if database else NAMES:
        usual = database or USUAL
        found = [kind for kind in only or KINDS if ONLY_ON.get(kind, usual) == each]
        if found:
            yield each, tuple(found)


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
