"""`make demo-gcp`: a burst into a simulated Google Cloud, from the key to the bill."""

from __future__ import annotations

import argparse
import fcntl
import os
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.demo_gcp.stack import HOME_NAME, running_stack
from tests.demo_gcp.story import play
from tests.lab.host import obstacle
from tests.lab.machines import Lab
from workers.process import leave
from workers.runner.lifecycle import StackError
from workers.runner.narration import Story, bold
from workers.runner.settings import RunnerSettings

NOT_REAL = """\
S I M U L A T E D   C L O U D
Nothing of this reaches Google, and nothing of it costs money. Google's APIs are played by a program
of this checkout (tests/doubles/gcp), which holds every request against Google's own documents. Its
machines are namespaces on this one, with an SSH server each; their GPUs are drawn. The platform is
the real one: it makes every request, SSH session, process and bill below.
What takes Google a while goes ten times faster."""
OURS = ("BASELOAD_HOME", "BASELOAD_TEMPORAL", "BASELOAD_LOG_LEVEL")
"""Settings of whoever runs it that hold here, too."""


def main(arguments: list[str]) -> int:
    """Tell the whole story; 0 only when all of it was seen."""
    argparse.ArgumentParser(prog="python -m tests.demo_gcp", description=__doc__).parse_args(
        arguments
    )
    set_environment()
    tell(bold(NOT_REAL))
    reason = obstacle()
    if reason is not None:
        so_that_it_runs = reason.replace("make test", "make demo-gcp")
        tell(f"\nIts machines are those of the tests' lab. {so_that_it_runs}")
        return 1
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    home = RunnerSettings().home.absolute() / HOME_NAME
    story = Story(tell)
    try:
        with only_one(home), Lab() as lab, running_stack(home, lab, story) as stage:
            play(stage, story)
    except (StackError, OSError, RuntimeError, httpx.HTTPError) as error:
        tell(f"\nThe story has ended too early: {error}")
        return 1
    except KeyboardInterrupt:
        tell("\nbroken off")
        return 130
    story.sum_up()
    tell("\nAll of it was seen. Nothing of it is running any more: the simulated cloud is gone.")
    return 0


def set_environment() -> None:
    """Leave a stack of the user's alone, and let commands reach the API of the lab's network.

    Nobody else can listen there: the network ends on this machine.
    """
    for name in of_another_stack(tuple(os.environ)):
        del os.environ[name]
    os.environ["BASELOAD_ALLOW_PLAIN_HTTP"] = "1"


def of_another_stack(names: Iterable[str]) -> list[str]:
    """Settings of a stack of the user's, such as its database, which are none of this one."""
    return [name for name in names if name.startswith("BASELOAD_") and name not in OURS]


@contextmanager
def only_one(home: Path) -> Iterator[None]:
    """Raises: StackError, while another one is told in the same home."""
    home.parent.mkdir(parents=True, exist_ok=True)
    with home.with_suffix(".lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as taken:
            raise StackError(f"{home}: another demonstration is under way there") from taken
        yield


def tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
