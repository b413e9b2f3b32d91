"""`make demo-data`: datasets, shares and a region's storage node, on machines of the lab."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable

import httpx

from tests.demo_data.stack import HOME_NAME, Stage, running_stack
from tests.demo_data.story import play
from tests.demo_gcp.__main__ import only_one, set_environment, tell
from tests.lab.file_servers import missing_programs
from tests.lab.host import obstacle
from tests.lab.machines import Lab
from workers.process import leave
from workers.runner.lifecycle import StackError
from workers.runner.narration import Story, bold
from workers.runner.process_records import orphaned_processes
from workers.runner.settings import RunnerSettings

INTRODUCTION = """\
D A T A   W H E R E   I T   I S
Jobs need data: a dataset of the web, folders that servers of a laboratory share already. Here the
platform brings a dataset to a region once, keeps it on the region's storage node, and uses an NFS
and an SMB share in place; a folder of a share becomes a dataset too. A service is found by its name
while it moves between two nodes. Each line with a ✓ was checked on the world: bytes on the cable,
files on the server of the share, what a third machine resolves. The machines are namespaces of this
one, each with its own SSH server, network card and disk; platform, NFS and SMB servers are real."""


def main(arguments: list[str]) -> int:
    """Tell the whole story; 0 only when all of it was seen."""
    argparse.ArgumentParser(prog="python -m tests.demo_data", description=__doc__).parse_args(
        arguments
    )
    return tell_all(INTRODUCTION, HOME_NAME, play)


def tell_all(introduction: str, name: str, play_it: Callable[[Stage, Story], None]) -> int:
    """Tell a story on lab machines beside a stack of its own; 0 only when all of it was seen.

    name: of the stack's home, and of the target of make.
    """
    set_environment()
    tell(bold(introduction))
    if (reason := _obstacle_to(name)) is not None:
        tell(f"\nIts machines are those of the tests' lab. {reason}")
        return 1
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    home = RunnerSettings().home.absolute() / name
    story = Story(tell)
    try:
        with only_one(home):
            with Lab() as lab, running_stack(home, lab, story) as stage:
                play_it(stage, story)
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


def must_be_gone(stage: Stage) -> None:
    """Raises: StackError, when something of the story is there still."""
    folders = [stage.lab.folder, stage.nfs.folder, stage.smb.folder, stage.link]
    left = [str(folder) for folder in folders if folder.exists()]
    home = str(stage.settings.home)
    left += [f"process {orphan.pid}" for orphan in orphaned_processes(home)]
    if left:
        raise StackError(f"it is there still: {', '.join(left)}")


def _obstacle_to(target: str) -> str | None:
    """Why a story cannot be told here; None: it can. target: of make, which tells it."""
    if reason := obstacle():
        return reason.replace("make test", f"make {target}")
    missing = missing_programs()
    return f"As root: apt-get install {' '.join(missing)}" if missing else None


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
