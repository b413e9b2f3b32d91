"""The start of a staged run, which happens once, however often and by whomever it is requested."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ..errors import RefusedError
from ..federated import terms
from ..folders import Folders, Run
from ..host import launch, ports
from ..idle import workload
from ..loading import load
from . import status

STARTED_WITHIN_S = 10.0
POLL_S = 0.01


def start(request: dict[str, Any]) -> dict[str, Any]:
    """Start the run, unless it was started before; return its state as `status` does.

    The supervisor that takes the run's lock first runs the command; any other ends at once.
    model_key: of the run's sealed model, if it has one; it is kept in memory alone.
    Raises: RefusedError `not-staged`, `start-failed`; `no-content`, when one of the run's contents
    is not here as it should be; `port-taken`, when another listens at the
    run's port; `no-model-key`; as `launch`.
    """
    run = Folders(request.get("root", "")).run(request["run_id"])
    state = status.state_of(run)
    if state["state"] == "unknown":
        raise RefusedError("not-staged", "run %s: it was not staged on this node" % run.run_id)
    if state["state"] == "staged":
        spec = run.read("spec.json") or {}
        workload.give_way(run.folders, spec)
        check_contents(run, spec)
        ports.check(run, spec.get("port"))
        give_key = _key_handover(run, spec, request.get("model_key"))
        launch.launch(run, spec, lambda: _supervise(run))
        give_key()
    deadline = time.monotonic() + STARTED_WITHIN_S
    while time.monotonic() < deadline:
        if state["state"] in ("exited", "lost") or state["pid"]:
            return state
        time.sleep(POLL_S)
        state = status.state_of(run)
    raise RefusedError(
        "start-failed",
        "run %s: no process after %d s: %s"
        % (run.run_id, STARTED_WITHIN_S, _notes(run.at("supervisor.log"))),
    )


def _key_handover(run: Run, spec: dict[str, Any], key: str | None) -> Callable[[], None]:
    """What gives the supervisor the key of a sealed model, once it is launched.

    Raises: RefusedError `no-content`, `no-model-key`.
    """
    if not terms.is_federated(spec) or spec["federated"].get("model") is None:
        return lambda: None
    load("federated.model:check")(run, spec, key)
    give: Callable[[], None] = load("federated.key_handover:Handover")(run, key).serve
    return give


def check_contents(run: Run, spec: dict[str, Any]) -> None:
    """Check that the contents of a run are here. Raises: RefusedError `no-content`."""
    for one in spec.get("contents") or []:
        is_there = (
            load("contents.volumes:is_open")(run, one["name"])
            if one.get("writes")
            else load("contents.store:is_here")(run.folders, one["sha256"])
        )
        if not is_there:
            words = "run %s: the %s %s is not on this node"
            raise RefusedError("no-content", words % (run.run_id, one["role"], one["name"]))


def _supervise(run: Run) -> None:
    load("runs.supervisor:supervise")(run.folders.root, run.run_id)


def _notes(path: str) -> str:
    try:
        with open(path, errors="replace") as file:
            return file.read()[-1000:].strip() or "the supervisor said nothing"
    except OSError as error:
        return str(error)
