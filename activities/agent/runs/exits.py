"""The meaning of a command's exit, in words that a person can act on."""

from __future__ import annotations

import os
import signal
from typing import Any

from ..folders import Run
from ..host import command_file, disk

SHELL_SIGNAL_BASE = 128
NOT_FOUND = 127
NOT_EXECUTABLE = 126
CONTAINER_FAILED = 125
SHORTEST_MASKED = 4
MASKED_TAIL_BYTES = 1 << 18
LONGEST_LINE = 400


def describe(run: Run, spec: dict[str, Any], status: int) -> dict[str, Any]:
    """The exit_code, signal, reason and message of a wait status; reads the run's files."""
    document = _by_status(run, spec, status)
    if command_file.is_in_setup(run, spec):
        document = _of_setup(document)
    full = disk.nearly_full(run) if status else None
    if full:
        document.update(reason="disk-full", message="%s; %s" % (full, document["message"]))
    return document


def _by_status(run: Run, spec: dict[str, Any], status: int) -> dict[str, Any]:
    if os.WIFSIGNALED(status):
        return _by_signal(None, os.WTERMSIG(status))
    code = os.WEXITSTATUS(status)
    if code == NOT_FOUND and b"not found" in log_tail(run):
        words = "the command was not found (%s): name one that the code, the packages or the"
        return _exited(code, "command-not-found", (words + " image brings") % _last_line(run, spec))
    if spec.get("runtime") == "podman" and code == CONTAINER_FAILED:
        return _exited(code, "container-failed", "the container failed: %s" % _last_line(run, spec))
    number = code - SHELL_SIGNAL_BASE
    if number in _signal_names():
        return _by_signal(code, number)  # By this code a shell reports a killed command.
    if code == NOT_EXECUTABLE:
        return _exited(code, "exited", "the command cannot be executed: %s" % _last_line(run, spec))
    return _exited(code, "exited", "the command ended with exit code %d, see its log" % code)


def _of_setup(document: dict[str, Any]) -> dict[str, Any]:
    """The exit of a run whose command has not begun, because its set-up has not ended well."""
    found = "exit code %s" % document["exit_code"]
    if document["signal"] is not None:
        found = document["message"].replace("the command was", "it was", 1)
    words = "environment.setup failed: %s; the command was not started, see the log"
    return dict(document, reason="setup", message=words % found)


def not_run(reason: str, message: str) -> dict[str, Any]:
    """The exit of a run whose supervisor could not describe it."""
    return {"exit_code": None, "signal": None, "reason": reason, "message": message}


def log_tail(run: Run, limit: int = 400) -> bytes:
    """The last bytes of a run's log."""
    try:
        with open(run.log, "rb") as file:
            file.seek(max(0, run.log_bytes() - limit))
            return file.read(limit)
    except FileNotFoundError:
        return b""


def _last_line(run: Run, spec: dict[str, Any]) -> str:
    """The last line of the log, mostly the error, with the values of variables masked.

    The line becomes part of the job's reason, which more people may read than the log.
    """
    text = log_tail(run, MASKED_TAIL_BYTES).decode(errors="replace")
    values = [str(value) for value in (spec.get("environment") or {}).values()]
    secrets = {part for value in values for part in (value, *value.splitlines())}
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= SHORTEST_MASKED:
            text = text.replace(secret, "********")
    lines = text.strip().splitlines() or ["it printed nothing"]
    return "".join(one if one.isprintable() else "?" for one in lines[-1][:LONGEST_LINE])


def _exited(code: int, reason: str, message: str) -> dict[str, Any]:
    return {"exit_code": code, "signal": None, "reason": reason, "message": message}


def _by_signal(code: int | None, number: int) -> dict[str, Any]:
    name = _signal_names().get(number, "signal")
    message = "the command was killed by %s (%d)" % (name, number)
    if number == signal.SIGKILL:
        message += ": by the kernel when memory ran out, or by someone on the node"
    return {"exit_code": code, "signal": number, "reason": "signal", "message": message}


def _signal_names() -> dict[int, str]:
    return {int(one): one.name for one in signal.Signals if int(one) < signal.SIGRTMIN}
