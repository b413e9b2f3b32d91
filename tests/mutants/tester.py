"""A process that has imported every library, and runs the tests in a fork of itself.

Importing takes most of the time of a short run. What is ours is imported in the fork, so that each
run sees the code as it is then. A line of stdin is an `Asked` in JSON, and is answered with its
exit status; -9 where the tests took longer. `python -m tests.mutants.tester OPTIONS…`, of pytest.
"""

import importlib
import json
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import Phase, settings

from activities.agent.host.prctl import adopt_orphans
from tests.mutants.reach import ANY

_LIBRARIES = (
    *("fastapi.testclient", "hypothesis.stateful", "pydantic_settings", "sqlmodel", "structlog"),
    *("alembic.command", "asyncssh", "cryptography.x509", "prometheus_client", "xdist.remote"),
    *("temporalio.client", "temporalio.contrib.pydantic", "temporalio.testing", "xdist.scheduler"),
)
_PYTEST = (
    *("-x", "-q", "-n", "0", "-p", "no:cacheprovider", "--hypothesis-seed=0", "--tb=no"),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),  # what is imported already is no test
    *("-o", "timeout_method=thread"),  # ends the fork, even where the test cannot be interrupted
)
LIVES = Path(__file__).parent / "lives.py"
_STARTS_S = 10
"""What a test may take longer than it did, such as the start of a server."""


def main() -> None:
    """Run the tests whenever asked."""
    adopt_orphans()
    sys.dont_write_bytecode = False  # the first run compiles for all of them
    for name in _LIBRARIES:
        importlib.import_module(name)
    settings.register_profile("mutants", phases=[Phase.explicit, Phase.generate], database=None)
    settings.load_profile("mutants")  # without a search for the simplest case that fails
    for line in sys.stdin:
        sys.stdout.write(f"{_run(sys.argv[1:], json.loads(line))}\n")
        sys.dont_write_bytecode = True  # two mutants within one second look alike to it
        sys.stdout.flush()


def _run(options: Sequence[str], asked: dict[str, Any]) -> int:
    """Run what is asked.

    asked: `paths` of tests; `limit_s` of all; `chosen`: None, or tests with the seconds that each
    takes, in their order; `modules`, `written`: where to write which functions of these each test
    enters.
    """
    child = os.fork()
    if child == 0:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        plugins: list[object] = []
        if asked["chosen"] is not None:
            plugins.append(Chosen(asked["chosen"]))
        if asked["written"] is not None:
            plugins.append(Recorder(asked["modules"], Path(asked["written"])))
        os._exit(pytest.main([*_PYTEST, *options, *asked["paths"]], plugins))
    ending = os.pidfd_open(child)
    ended = select.select([ending], [], [], asked["limit_s"])[0]
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


class Chosen:
    """Keeps these tests alone, in their order; one that takes far longer than it did fails."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self._seconds = seconds

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        places = {test: place for place, test in enumerate(self._seconds)}
        items[:] = [item for item in items if item.nodeid in places]
        items.sort(key=lambda item: places[item.nodeid])
        for item in items:
            limit_s = _STARTS_S + 4 * self._seconds[item.nodeid]
            item.add_marker(pytest.mark.timeout(limit_s), append=False)


class Recorder:
    """Notes how long each test takes, and which functions of the modules it enters."""

    def __init__(self, modules: Sequence[str], written: Path) -> None:
        self._modules = {str(Path.cwd() / module): module for module in modules}
        self._written = written
        self._entered: set[tuple[str, str]] = set()
        self._found: dict[str, dict[str, Any]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        traced = self._trace if item.path != LIVES else None  # They take ten times as long with it.
        threading.settrace(traced)
        sys.settrace(traced)
        self._entered.clear()
        began = time.monotonic()
        answer = yield
        seconds = round(time.monotonic() - began, 3)
        entered = {
            f"{self._modules[file]}:{name.partition('.<locals>')[0]}"
            for file, name in self._entered.copy()
        }
        told = sorted(entered) if traced else [ANY]
        self._found[item.nodeid] = {"seconds": seconds, "entered": told}
        return answer

    def pytest_sessionfinish(self) -> None:
        sys.settrace(None)
        self._written.write_text(json.dumps(self._found))

    def _trace(self, frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if code.co_filename in self._modules:
            self._entered.add((code.co_filename, code.co_qualname))


if __name__ == "__main__":
    main()
