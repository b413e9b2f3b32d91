"""What the way in which a command ended means, in words that a person can act on."""

from __future__ import annotations

import os
import signal
from typing import Any

from .folders import Run

SHELL_SIGNAL_BASE = 128
NOT_FOUND = 127
CONTAINER_FAILED = 125


def describe(run: Run, spec: dict[str, Any], status: int) -> dict[str, Any]:
    """exit_code, signal, reason and message of a wait status."""
    if os.WIFSIGNALED(status):
        return _by_signal(None, os.WTERMSIG(status))
    code = os.WEXITSTATUS(status)
    if code == NOT_FOUND and b"not found" in log_tail(run):
        words = log_tail(run).decode(errors="replace").strip().splitlines()
        return _exited(code, "command-not-found", words[-1] if words else "command not found")
    if spec.get("runtime") == "podman" and code == CONTAINER_FAILED:
        words = log_tail(run).decode(errors="replace").strip().splitlines()
        return _exited(code, "container-failed", words[-1] if words else "podman run failed")
    number = code - SHELL_SIGNAL_BASE
    if number in _signal_names():
        return _by_signal(code, number)  # A shell reports so that its last command was killed.
    return _exited(code, "exited", "exit code %d" % code)


def not_run(reason: str, message: str) -> dict[str, Any]:
    """The outcome of a run whose supervisor did not live to describe it."""
    return {"exit_code": None, "signal": None, "reason": reason, "message": message}


def log_tail(run: Run, limit: int = 400) -> bytes:
    """The last bytes of a run's log."""
    try:
        with open(run.log, "rb") as file:
            file.seek(max(0, run.log_bytes() - limit))
            return file.read(limit)
    except FileNotFoundError:
        return b""


def _exited(code: int, reason: str, message: str) -> dict[str, Any]:
    return {"exit_code": code, "signal": None, "reason": reason, "message": message}


def _by_signal(code: int | None, number: int) -> dict[str, Any]:
    name = _signal_names().get(number, "signal")
    message = "killed by %s (%d)" % (name, number)
    if number == signal.SIGKILL:
        message += ": by the kernel when memory ran out, or by someone on the node"
    return {"exit_code": code, "signal": number, "reason": "signal", "message": message}


def _signal_names() -> dict[int, str]:
    return {int(one): one.name for one in signal.Signals if int(one) < signal.SIGRTMIN}
