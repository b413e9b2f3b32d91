"""A process that has imported every library, and runs the tests in a fork of itself.

Importing takes most of the time of a short run. What is ours is imported in the fork, so that each
run sees the code as it is then. `python -m tests.mutants.tester TESTS...`: a line of stdin is the
most seconds of one run, and is answered with its exit status; -9 where the tests took longer.
"""

import importlib
import os
import select
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import Phase, settings

from activities.agent.host.prctl import adopt_orphans

_LIBRARIES = (
    *("fastapi.testclient", "hypothesis.stateful", "pydantic_settings", "sqlmodel", "structlog"),
    *("alembic.command", "asyncssh", "cryptography.x509", "prometheus_client", "xdist.remote"),
    *("temporalio.client", "temporalio.contrib.pydantic", "temporalio.testing", "xdist.scheduler"),
)
_PYTEST = (
    *("-x", "-q", "-n", "0", "-p", "no:cacheprovider", "--hypothesis-seed=0", "--tb=no"),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),  # what is imported already is no test
)


def main() -> None:
    """Run the tests whenever asked."""
    adopt_orphans()
    sys.dont_write_bytecode = False  # the first run compiles for all of them
    for name in _LIBRARIES:
        importlib.import_module(name)
    settings.register_profile("mutants", phases=[Phase.explicit, Phase.generate], database=None)
    settings.load_profile("mutants")  # without a search for the simplest case that fails
    for line in sys.stdin:
        sys.stdout.write(f"{_run(sys.argv[1:], float(line))}\n")
        sys.dont_write_bytecode = True  # two mutants within one second look alike to it
        sys.stdout.flush()


def _run(tests: Sequence[str], timeout_s: float) -> int:
    child = os.fork()
    if child == 0:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        os._exit(pytest.main([*_PYTEST, *tests]))
    ending = os.pidfd_open(child)
    ended = select.select([ending], [], [], timeout_s)[0]
    os.close(ending)
    if not ended:
        os.kill(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    _end_orphans()
    return status if ended else -signal.SIGKILL


def _end_orphans() -> None:
    """End what the tests have left running, such as the server of a test that was ended."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    while left := children.read_text().split():
        for process_id in map(int, left):
            os.kill(process_id, signal.SIGKILL)
            os.waitpid(process_id, 0)


if __name__ == "__main__":
    main()
