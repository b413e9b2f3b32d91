"""What `make down` leaves of the machine that was a node."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from activities.agent.host.job_accounts import ACCOUNTS
from activities.agent.host.network_wall import TABLE
from workers.runner.settings import CHECKOUT

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root has a network wall: run as root"),
    pytest.mark.skipif(shutil.which("nft") is None, reason="needs nftables"),
]


def test_the_network_wall_goes_with_the_control_plane_when_no_run_is_left(tmp_path: Path) -> None:
    # A network and notes of its own: other tests have walls and runs on this machine.
    Path(ACCOUNTS).mkdir(mode=0o700, parents=True, exist_ok=True)
    notes = tmp_path / "notes"
    notes.mkdir()
    script = f'mount --bind {notes} {ACCOUNTS}; nft add table {TABLE}; "$@"; nft list tables'
    down = [sys.executable, "-m", "workers.runner", "down"]
    said = subprocess.run(
        ["unshare", "--net", "--mount", "sh", "-ec", script, "sh", *down],
        cwd=CHECKOUT, env={**os.environ, "BASELOAD_HOME": str(tmp_path)},
        capture_output=True, check=True, text=True,
    ).stdout  # fmt: skip
    assert "no job is left" in said
    assert "table" not in said
