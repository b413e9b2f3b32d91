"""`python -m tests.room.cloud`: machines that cost money, and all that dies meanwhile; one table.

Its last line is the sum. Ends with status 1 unless nothing leaked, doubled or was lost.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from concurrent.futures import ThreadPoolExecutor

from tests.lab.host import obstacle
from tests.room.cloud.campaign import NO_FAULT, Campaign, Orders
from tests.room.cloud.faults import KINDS
from tests.room.cloud.points import POINTS
from tests.room.cloud.room import CloudRoom
from tests.room.cloud.tally import Tally
from tests.room.running import parser, tell
from workers.process import leave

THREADS = 32


def main(arguments: list[str]) -> int:
    """Inject faults, look at the world, print the table; 1 when anything is wrong."""
    orders = asked_for(arguments)
    reason = obstacle()
    if reason is not None:
        tell(reason)
        return 1
    tell(f"seed {orders.seed}")
    tally = asyncio.run(run(orders))
    tell(tally.table())
    for missed in tally.missed:
        tell(f"missed: {missed}")
    for found in tally.found:
        tell(found)
    tell(tally.last_line())
    return 0 if tally.is_clean else 1


async def run(orders: Orders) -> Tally:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS))
    room = CloudRoom(tell)
    campaign = Campaign(room, orders)
    story = asyncio.create_task(campaign.run())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, story.cancel)
    try:
        await story
    except asyncio.CancelledError:
        campaign.tally.wrong(NO_FAULT, "lost", "it was broken off")
    finally:
        went_well = campaign.is_over and campaign.tally.is_clean
        room.close(None if went_well else orders.evidence)
    return campaign.tally


def asked_for(arguments: list[str]) -> Orders:
    accepts = parser("python -m tests.room.cloud", __doc__, KINDS)
    accepts.add_argument("--faults", type=int, default=1000, help="how many to inject")
    accepts.add_argument("--minutes", type=float, default=50, help="begin no round after these")
    accepts.add_argument("--jobs", type=int, default=20, help="of each round")
    accepts.add_argument("--at", action="append", choices=list(POINTS), help="at these points only")
    accepts.add_argument("--storm", action="store_true", help="lose replies too, from the first on")
    asked = accepts.parse_args(arguments)
    only, points = tuple(asked.only or ()), tuple(asked.at or POINTS)
    return Orders(
        faults=asked.faults,
        seed=asked.seed,
        only=only,
        minutes=asked.minutes,
        jobs=asked.jobs,
        points=points,
        storm=asked.storm,
        evidence=asked.evidence,
    )


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
