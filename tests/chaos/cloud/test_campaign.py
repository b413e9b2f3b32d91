"""A little of the cloud's room in every run of the tests: five jobs, and everything at once."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.lab.host import obstacle
from workers.runner.settings import CHECKOUT

LIMIT_S = 400
LEAST_FAULTS = 4
"""Two kills, the reply of the fourth creation, that of the third release; some come twice."""
ORDERS = ("--faults", "1", "--jobs", "5", "--only", "kill-worker-and-api", "--storm",
          "--at", "creating", "--at", "running", "--times", "1")  # fmt: skip


@pytest.mark.timeout(LIMIT_S + 60)
def test_processes_are_killed_and_replies_lost_and_no_machine_is_left_or_made_twice() -> None:
    reason = obstacle()
    if reason is not None and os.environ.get("CI") != "true":
        pytest.skip(reason)
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos.cloud", *ORDERS],
        cwd=CHECKOUT, capture_output=True, text=True, check=False, timeout=LIMIT_S,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    sums = done.stdout.splitlines()[-1]
    assert "5 machines made for 5 jobs, 0 leaked, 0 doubled, 0 jobs lost" in sums
    (injected,) = map(int, re.findall(r"(\d+) faults injected", sums))
    assert injected >= LEAST_FAULTS, done.stdout
