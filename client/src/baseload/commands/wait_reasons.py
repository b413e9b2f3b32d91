"""Why a job waits for resources: said once, and again when it changes."""

from __future__ import annotations

import time

from baseload.commands.session import Document, Session

INTERVAL_S = 3.0
MOST_REASONS = 3
WAITING = "waiting_for_resources"


class WaitReasons:
    """Says on stderr why one job waits, while somebody follows it."""

    def __init__(self, session: Session, job: Document) -> None:
        self._session = session
        self._job = job
        self._said = ""
        self._next_s = 0.0

    def look(self) -> None:
        """Ask why it waits, at most every three seconds, and say what is new."""
        if time.monotonic() < self._next_s:
            return
        found = self._session.get(f"/v1/jobs/{self._job['id']}/placement")
        self._next_s = time.monotonic() + INTERVAL_S
        words = reasons(found["refusals"]) if found["status"] == WAITING else ""
        if words and words != self._said:
            self._said = words
            self._session.screen.say(f"{self._job['name']}: {words}")


def reasons(refusals: list[Document]) -> str:
    """The refusals of all offers in one line; empty without any, before the first look at them."""
    if not refusals:
        return ""
    details = list(dict.fromkeys(str(each["detail"]) for each in refusals))
    more = len(details) - MOST_REASONS
    rest = f"; and {more} more (baseload placement)" if more > 0 else ""
    can_change = any(each["ever"] for each in refusals)
    what = "waits" if can_change else "no machine here can ever run it"
    return f"{what}: {'; '.join(details[:MOST_REASONS])}{rest}"
