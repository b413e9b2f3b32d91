"""What `make down` leaves of the machine that was a node."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from activities.agent.host.network_wall import TABLE
from tests.lab.waiting import wait_until as wait_for
from workers.runner.settings import CHECKOUT

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root has a network wall: run as root"),
    pytest.mark.skipif(shutil.which("nft") is None, reason="needs nftables"),
]


def test_the_network_wall_goes_with_the_control_plane_when_no_run_is_left(tmp_path: Path) -> None:
    # In a network of its own: the wall of this machine may be in use.
    script = f'nft add table {TABLE}; "$@"; nft list tables'
    down = [sys.executable, "-m", "workers.runner", "down"]
    environment = {**os.environ, "BASELOAD_HOME": str(tmp_path)}

    def said_without_a_table_left() -> str | None:
        said = subprocess.run(
            ["unshare", "--net", "sh", "-c", script, "sh", *down],
            cwd=CHECKOUT, env=environment, capture_output=True, check=True, text=True,
        ).stdout  # fmt: skip
        return None if "table" in said else said

    # Runs of other tests on this machine keep their wall meanwhile.
    assert "no job is left" in (wait_for(said_without_a_table_left, "no run to be left") or "")
