"""What is generated is what would be generated now."""

import subprocess
import sys

from tests.architecture.source import ROOT


def test_models_operations_and_the_sync_half_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, "client/generate.py", "--check"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}{done.stderr}\nrun: python client/generate.py"
