"""`make demo-burst`: bursts into two simulated marketplaces, from their keys to the bill."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

import httpx

from tests.demo_burst.stack import HOME_NAME, running_stack
from tests.demo_burst.story import play
from tests.demo_gcp.__main__ import only_one, set_environment, tell
from tests.lab.host import obstacle
from tests.lab.machines import Lab
from workers.process import leave
from workers.runner.lifecycle import StackError
from workers.runner.narration import Story, bold
from workers.runner.process_records import orphaned_processes
from workers.runner.settings import RunnerSettings

NOT_REAL = """\
S I M U L A T E D   M A R K E T P L A C E S
Nothing of this reaches RunPod or Vast.ai, and nothing of it costs money. Both are played by
programs of this checkout (tests/doubles/runpod, tests/doubles/vastai), which hold every request
against the published documents of the two. What they rent out are namespaces on this machine, with
an SSH server each; the GPUs are drawn, and a machine starts in seconds instead of minutes. The
platform is the real one: it makes every request, SSH session, process and bill below."""


def main(arguments: list[str]) -> int:
    """Tell the whole story; 0 only when all of it was seen."""
    argparse.ArgumentParser(prog="python -m tests.demo_burst", description=__doc__).parse_args(
        arguments
    )
    set_environment()
    tell(bold(NOT_REAL))
    reason = obstacle()
    if reason is not None:
        so_that_it_runs = reason.replace("make test", "make demo-burst")
        tell(f"\nIts machines are those of the tests' lab. {so_that_it_runs}")
        return 1
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    home = RunnerSettings().home.absolute() / HOME_NAME
    story = Story(tell)
    try:
        with only_one(home):
            with Lab() as lab, running_stack(home, lab, story) as stage:
                play(stage, story)
            must_be_gone(home)
    except (StackError, OSError, RuntimeError, httpx.HTTPError) as error:
        tell(f"\nThe story has ended too early: {error}")
        return 1
    except KeyboardInterrupt:
        tell("\nbroken off")
        return 130
    story.sum_up()
    tell("\nAll of it was seen. Nothing of it runs any more: the simulated marketplaces are gone.")
    return 0


def must_be_gone(home: Path) -> None:
    """Raises: StackError, when a process of the story runs still."""
    if left := [str(each.pid) for each in orphaned_processes(str(home))]:
        raise StackError(f"it runs still: process {', '.join(left)}")


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
