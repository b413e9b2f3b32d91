"""Installs the tool of `make mutants` into an environment of its own, if the lock file has changed.

Not into `.venv`: nothing else needs it, and it has many dependencies.
"""

import sys

from console import CHECKOUT, locked, main_of, run
from environment import NETWORK, own_uv

VENV = CHECKOUT / ".baseload" / "mutants" / "venv"


def set_up_mutants() -> None:
    """Bring the environment to the state of the lock file."""
    with locked(CHECKOUT / ".baseload", "mutants"):
        run(
            [
                own_uv(), "sync", "--frozen", "--no-build", "--only-group", "mutants",
                "--python", sys.executable,
            ],
            "installing the tool of the mutants",
            advice=NETWORK,
            environment={"UV_PYTHON_DOWNLOADS": "never", "UV_PROJECT_ENVIRONMENT": str(VENV)},
        )  # fmt: skip


if __name__ == "__main__":
    main_of(set_up_mutants)
