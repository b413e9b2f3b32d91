"""`python -m tests.chaos`: the stack and its machines under fire; one table, and its sums."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from tests.chaos.campaign import MACHINES, Campaign, Orders
from tests.chaos.campaign_stack import Room
from tests.chaos.kinds import KINDS
from tests.chaos.running import parser, tell
from tests.chaos.stack import own_mounts
from tests.chaos.tally import NO_FAULT, Tally
from tests.lab.host import obstacle
from tests.lab.machines import Lab
from workers.process import leave

THREADS = 64


def main(arguments: list[str]) -> int:
    """Inject faults, look at the world, print the table; 1 when anything is wrong."""
    orders = asked_for(arguments)
    reason = obstacle()
    if reason is not None:
        tell(reason)
        return 1
    # What a shell starts in the background ignores it, and so would the commands that it ends.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    own_mounts()
    tell(f"seed {orders.seed}")
    began = time.monotonic()
    with Lab() as lab:
        tally = asyncio.run(run(lab, orders))
    tally.check_struck()
    tell(tally.table(time.monotonic() - began))
    tell(", ".join(f"{what}: {count}" for what, count in sorted(tally.workload.items())))
    for found in tally.found:
        tell(found)
    return 0 if tally.is_clean else 1


async def run(lab: Lab, orders: Orders) -> Tally:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS))
    room = Room(lab, tell)
    campaign = asyncio.create_task(Campaign(room, orders).run())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, campaign.cancel)
    try:
        await campaign
    except asyncio.CancelledError:
        room.tally.wrong(NO_FAULT, "left", "it was broken off")
    finally:
        room.close(orders.evidence)
    return room.tally


def asked_for(arguments: list[str]) -> Orders:
    accepts = parser("python -m tests.chaos", __doc__, KINDS)
    accepts.add_argument("--faults", type=int, default=500, help="how many to inject")
    accepts.add_argument("--minutes", type=float, default=45, help="inject no more after these")
    accepts.add_argument("--machines", type=int, default=len(MACHINES), help="how many to boot")
    asked = accepts.parse_args(arguments)
    only = tuple(asked.only or ())
    return Orders(asked.faults, asked.seed, only, asked.minutes, asked.machines, asked.evidence)


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
