"""`make demo-edge`: one model on devices at the edge, on machines of the lab."""

from __future__ import annotations

import argparse
import signal
import sys

import httpx

from tests.demo_data.__main__ import must_be_gone, obstacle_to
from tests.demo_data.stack import running_stack
from tests.demo_edge.story import play
from tests.demo_gcp.__main__ import only_one, set_environment, tell
from tests.lab.machines import Lab
from workers.process import leave
from workers.runner.lifecycle import StackError
from workers.runner.narration import Story, bold
from workers.runner.settings import RunnerSettings

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
    set_environment()
    tell(bold(INTRODUCTION))
    if (reason := obstacle_to("demo-edge")) is not None:
        tell(f"\nIts machines are those of the tests' lab. {reason}")
        return 1
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    home = RunnerSettings().home.absolute() / HOME_NAME
    story = Story(tell)
    try:
        with only_one(home):
            with Lab() as lab, running_stack(home, lab, story) as stage:
                play(stage, story)
            must_be_gone(stage)
    except (StackError, OSError, RuntimeError, httpx.HTTPError) as error:
        tell(f"\nThe story has ended too early: {error}")
        return 1
    except KeyboardInterrupt:
        tell("\nbroken off")
        return 130
    story.sum_up()
    tell("\nAll of it was seen. Nothing of it is running any more.")
    return 0


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
