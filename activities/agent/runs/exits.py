"""The meaning of a command's exit, in words that a person can act on."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from typing import Any

from ..federated import terms
from ..folders import Run
from ..host import command_file, disk
from ..loading import load

SHELL_SIGNAL_BASE = 128
NOT_FOUND = 127
NOT_EXECUTABLE = 126
CONTAINER_FAILED = 125
SHORTEST_MASKED = 4
SHORTEST_OF_FILE = 8
"""The shortest line of a key file that is masked."""
MOST_MASKED = 1024
MASKED_TAIL_BYTES = 1 << 18
LONGEST_LINE = 400


def describe(run: Run, spec: dict[str, Any], status: int) -> dict[str, Any]:
    """The exit_code, signal, reason and message of a wait status; reads the run's files."""
    if terms.is_federated(spec):
        failure = load("federated.confinement:failure")(run)
        if failure is not None:
            return not_run(*failure)
    document = _by_status(run, spec, status)
    if command_file.is_in_setup(run, spec):
        document = _of_setup(document, spec)
    document = terms.exit_shown(document, spec)
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
    words = "the command ended with exit code %d, %s"
    return _exited(code, "exited", words % (code, _where_to_look(spec)))


def _where_to_look(spec: dict[str, Any]) -> str:
    return terms.WITHHELD if terms.withholds_log(spec) else "see its log"


def _of_setup(document: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    """The exit of a run whose command has not begun, because its set-up has not ended well."""
    found = "exit code %s" % document["exit_code"]
    if document["signal"] is not None:
        found = document["message"].replace("the command was", "it was", 1)
    words = "environment.setup failed: %s; the command was not started, %s"
    where = _where_to_look(spec).replace("its log", "the log")
    return dict(document, reason="setup", message=words % (found, where))


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
    """The last line of the log, mostly the error, with all secrets of the run masked.

    The line becomes part of the job's reason, which more people may read than the log.
    """
    if terms.withholds_log(spec):
        return terms.WITHHELD
    text = masked(log_tail(run, MASKED_TAIL_BYTES).decode(errors="replace"), spec)
    lines = text.strip().splitlines() or ["it printed nothing"]
    return "".join(one if one.isprintable() else "?" for one in lines[-1][:LONGEST_LINE])


def masked(text: str, spec: dict[str, Any]) -> str:
    """A text without the values of the run's variables and what its key files hold.

    To be called before a text is cut, else a part of a value may stay.
    """
    for secret in secrets_of(spec):
        text = text.replace(secret, "********")
    return text


def secrets_of(spec: dict[str, Any]) -> list[str]:
    """What is masked, the longest first: values, contents, their lines, and texts in JSON."""
    values = [str(value) for value in (spec.get("environment") or {}).values()]
    found = {part for value in values for part in (value, *value.splitlines())}
    found = {one for one in found if len(one) >= SHORTEST_MASKED}
    for content in ((spec.get("keys") or {}).get("files") or {}).values():
        parts = [part.strip() for text in _texts(str(content)) for part in text.splitlines()]
        # Shorter lines of a file are brackets and names, which are no secret.
        found |= {one for one in [str(content), *parts] if len(one) >= SHORTEST_OF_FILE}
    return sorted(found, key=len, reverse=True)[:MOST_MASKED]


def _texts(content: str) -> list[str]:
    """The content of a key file, and the texts in it where it is JSON."""
    found, waiting = [content], []
    with contextlib.suppress(ValueError, RecursionError):
        waiting.append(json.loads(content))
    while waiting and len(found) < MOST_MASKED:
        one = waiting.pop()
        if isinstance(one, str):
            found.append(one)
        elif isinstance(one, (dict, list)):
            waiting += list(one.values() if isinstance(one, dict) else one)
    return found


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
