"""`python -m tests.chaos.transfers`: data on their way under fire; one table, and its sums."""

from __future__ import annotations

import random
import signal
import sys
import time

from tests.chaos.running import inject, parser, show, tell
from tests.chaos.transfers.faults import FAULTS
from tests.chaos.transfers.stage import data_stage
from tests.lab.file_servers import missing_programs
from tests.lab.host import obstacle
from tests.lab.machines import Lab
from workers.process import leave


def main(arguments: list[str]) -> int:
    """Inject faults, look at the world, print the table; 1 when anything is wrong."""
    accepts = parser("python -m tests.chaos.transfers", __doc__, FAULTS)
    accepts.add_argument("--rounds", type=int, default=1, help="how often each fault is injected")
    accepts.add_argument("--mib", type=int, default=1000, help="the size of each dataset")
    accepts.add_argument("--away", type=float, default=600, help="seconds that a share is away")
    asked = accepts.parse_args(arguments)
    reason = obstacle() or (", ".join(missing_programs()) and "install the tests' file servers")
    if reason:
        tell(reason)
        return 1
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    tell(f"seed {asked.seed}")
    began = time.monotonic()
    with Lab() as lab, data_stage(lab, asked.mib << 20, asked.away, tell) as stage:
        tell(f"{len(stage.nodes)} nodes after {time.monotonic() - began:.0f} s")
        for number in range(asked.rounds):
            for name in asked.only or FAULTS:
                dice = random.Random(f"{asked.seed}/{number}/{name}")
                inject(stage, FAULTS[name], name, dice, "left")
        if not stage.tally.is_clean:
            tell(stage.stack.logs(40))
    return show(stage.tally, time.monotonic() - began)


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
