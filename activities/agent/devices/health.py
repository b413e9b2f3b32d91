"""The health check of a revision, on the clock that nobody can set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..host import processes
from . import log
from .http_check import HttpCheck
from .starting import Start

HTTP_S = 5.0
HTTP_INTERVAL_S = 0.5
BELOW = 400
READ_BYTES = 1 << 18
MOST_READS = 16
"""How many times the log is read in one look, so that a log that grows for ever has an end."""


class Health:
    """What a start must do before its revision counts as running, and what of it is so."""

    def __init__(self, started: Start, asked: dict[str, Any]) -> None:
        self._started = started
        self._up_s = float(asked.get("up_s") or 0)
        self._limit_s = float(asked.get("limit_s") or 300)
        self._port = asked.get("http_port")
        self._path = str(asked.get("http_path") or "/")
        self._line = str(asked.get("log_line") or "")
        self._up_since: float | None = None
        self._answers = self._port is None
        self._asked_at = 0.0
        self._check: HttpCheck | None = None
        self._found = not self._line
        self._offset = 0
        self._rest = b""
        self._said = "no answer"

    def verdict(self) -> tuple[bool, str | None]:
        """Whether it is decided, and then why it is not healthy, or None; it waits for nothing."""
        now = processes.monotonic_s()
        if self._started.reap():
            return True, self._started.how_it_ended()[1]
        if not self._started.is_up():
            self._up_since = None
        elif self._up_since is None:
            self._up_since = now
        up_s = 0.0 if self._up_since is None else now - self._up_since
        if self._up_since is not None:
            # Not before: the log of the start before may still be here.
            self._look_for_line()
        self._hear()
        if self._up_since is not None and up_s >= self._up_s and self._answers and self._found:
            return True, None
        if now - self._started.started_s >= self._limit_s:
            return True, self._missing(up_s)
        if self._up_since is not None and not self._answers:
            self._ask(now)
        return False, None

    def end(self) -> None:
        """End the request that is on its way."""
        if self._check is not None:
            self._check.end()
            self._check = None

    def _missing(self, up_s: float) -> str:
        missing = []
        if up_s < self._up_s:
            missing.append("up for %d s, asked %d s" % (up_s, self._up_s))
        if not self._answers:
            place = "port %s, path %s" % (self._port, self._path)
            missing.append("%s: asked a status below %d, found %s" % (place, BELOW, self._said))
        if not self._found:
            missing.append("no line of its log has %r" % self._line)
        return "its health check failed within %d s: %s" % (self._limit_s, "; ".join(missing))

    def _look_for_line(self) -> None:
        wanted = self._line.encode()
        for _ in range(MOST_READS):
            if self._found:
                return
            chunk = log.read(self._started.revision, self._offset, READ_BYTES)
            if not chunk:
                first, _ = log.bounds(self._started.revision)
                if first <= self._offset:
                    return
                self._offset, self._rest = first, b""
                continue
            self._offset += len(chunk)
            text = self._rest + chunk
            self._found = wanted in text
            self._rest = text[-len(wanted) :]

    def _ask(self, now: float) -> None:
        """Ask for the path, at most twice a second, and one at a time."""
        if self._check is not None or now < self._asked_at + HTTP_INTERVAL_S:
            return
        self._asked_at = now
        user = (self._started.revision.read("spec.json") or {}).get("user")
        try:
            self._check = HttpCheck(int(self._port or 0), self._path, user, HTTP_S)
        except (OSError, KeyError):  # No process can be started, or there is no such account.
            self._said = "no way to ask"

    def _hear(self) -> None:
        answer = self._check.answer() if self._check is not None else None
        if answer is None:
            return
        self._check = None
        self._said = "status %d" % answer if isinstance(answer, int) else answer
        self._answers = isinstance(answer, int) and answer < BELOW


def await_verdict(health: Health, pause: Callable[[], bool]) -> tuple[bool, str | None]:
    """Wait for the verdict; `(False, None)` when `pause` says that something else is to be done."""
    try:
        while True:
            is_decided, why = health.verdict()
            if is_decided:
                return True, why
            if pause():
                return False, None
    finally:
        health.end()
