"""What the run of a federated job is confined by: the part `federated` of its spec.

federated_id, and `egress`, `logs`, `model` as `workflows/contracts/federation.py: FederatedRun`
says. A run without that part is of no federated job.
"""

from __future__ import annotations

from typing import Any

from ..errors import RefusedError
from ..folders import Run

ALL = "all"
EXIT_ONLY = "exit_only"
FAILED = 1
WITHHELD = "what it printed is withheld"


def is_federated(spec: dict[str, Any]) -> bool:
    """Whether the run is of a federated job."""
    return bool(spec.get("federated"))


def withholds_log(spec: dict[str, Any]) -> bool:
    """Whether no line of what the run prints may be kept or shown."""
    return is_federated(spec) and spec["federated"].get("logs") != ALL


def withholds_codes(spec: dict[str, Any]) -> bool:
    """Whether exit codes and signals are withheld as well, by which a command can tell much."""
    return withholds_log(spec) and spec["federated"].get("logs") != EXIT_ONLY


def exit_shown(document: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    """Of how a command ended, what may be shown; the words are ours, and never those of its log."""
    if not withholds_codes(spec) or document.get("exit_code") == 0:
        return document
    words = "the command failed; its exit code and what it printed are withheld"
    if document.get("reason") == "setup":
        words = "environment.setup failed; the command was not started; what it printed is withheld"
    reason = "setup" if document.get("reason") == "setup" else "exited"
    return {"exit_code": FAILED, "signal": None, "reason": reason, "message": words}


def keep_out(run: Run, what: str) -> None:
    """Refuse what nobody may do to the run of a federated job.

    Raises: RefusedError `federated`.
    """
    if is_federated(run.read("spec.json") or {}):
        raise RefusedError("federated", "run %s: is of a federated job: %s" % (run.run_id, what))
