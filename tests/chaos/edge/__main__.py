"""`python -m tests.chaos.edge`: devices at the edge under fire; one table, and its sums."""

from __future__ import annotations

import random
import signal
import sys
import time

from tests.chaos.edge import clocks, combinations, disks, our_side, power_cuts, registries
from tests.chaos.edge.faults import FAULTS
from tests.chaos.edge.stage import edge
from tests.chaos.running import inject, parser, show, tell
from tests.lab.file_servers import missing_programs
from tests.lab.host import obstacle
from tests.lab.machines import Lab
from workers.process import leave

KINDS = (power_cuts, our_side, disks, clocks, registries, combinations)
"""The modules whose faults are on the list."""


def main(arguments: list[str]) -> int:
    """Inject faults, look at the world, print the table; 1 when anything is wrong."""
    accepts = parser("python -m tests.chaos.edge", __doc__, FAULTS)
    accepts.add_argument("--rounds", type=int, default=1, help="how often each fault is injected")
    asked = accepts.parse_args(arguments)
    reason = obstacle() or (", ".join(missing_programs()) and "install the tests' file servers")
    if reason:
        tell(reason)
        return 1
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    tell(f"seed {asked.seed}")
    began = time.monotonic()
    kinds = list(asked.only or FAULTS)
    with Lab() as lab, edge(lab, tell) as stage:
        tell(f"{len(stage.paths)} devices after {time.monotonic() - began:.0f} s")
        try:
            for number in range(asked.rounds):
                for name in kinds:
                    dice = random.Random(f"{asked.seed}/{number}/{name}")
                    inject(stage, FAULTS[name], name, dice, "untrue")
        except KeyboardInterrupt:
            tell("broken off: what follows is what was seen until now")
            stage.tally.found.append("never: the campaign was broken off")
        else:
            stage.tally.check_struck(kinds)
        if not stage.tally.is_clean:
            tell(stage.stack.logs(40))
    return show(stage.tally, time.monotonic() - began)


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
