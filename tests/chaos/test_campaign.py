"""A little of the machine room in every run of the tests: the faults that are over the soonest."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.lab.host import obstacle
from workers.runner.settings import CHECKOUT

QUICK = ("kill-api", "kill-worker", "sshd-restarted", "supervisor-killed", "cancel-races-finish",
         "submitted-fifty-times-at-once", "second-runner", "same-node-added-twice")  # fmt: skip
LIMIT_S = 840


@pytest.mark.timeout(LIMIT_S + 60)
def test_processes_and_machines_are_lost_and_no_job_is() -> None:
    reason = obstacle()
    if reason is not None and os.environ.get("CI") != "true":
        pytest.skip(reason)
    only = [word for name in QUICK for word in ("--only", name)]
    orders = ["--faults", "8", "--minutes", "1", "--machines", "2", *only]
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos", *orders],
        cwd=CHECKOUT, capture_output=True, text=True, check=False, timeout=LIMIT_S,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
