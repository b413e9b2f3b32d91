"""`make demo-edge`: one model on devices at the edge, on machines of the lab."""

from __future__ import annotations

import argparse
import sys

from tests.demo_data.__main__ import tell_all
from tests.demo_edge.story import play
from workers.process import leave

HOME_NAME = "demo-edge"
INTRODUCTION = """\
O N E   M O D E L   A T   T H E   E D G E
Devices in shops run one model for ever, also when nobody reaches them. Here two of them get it, a
bad revision is rolled back, the power of one is cut, the other one restarts while the platform is
down, and a third comes late and gets what was wanted of it. Each line with a ✓ was checked on the
world: processes on the devices, files on the share. The devices are namespaces of this machine,
each with its own systemd, SSH server, network card and disk; doubles of NVIDIA's tools say that
they are Jetsons. The platform and the NFS server are real."""


def main(arguments: list[str]) -> int:
    """Tell the whole story; 0 only when all of it was seen."""
    argparse.ArgumentParser(prog="python -m tests.demo_edge", description=__doc__).parse_args(
        arguments
    )
    return tell_all(INTRODUCTION, HOME_NAME, play)


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
