"""Data on their way, as bars and as figures: to jobs, from them, and into the store."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from baseload.commands.session import Document, Session
from baseload.commands.terminal import bytes_text, duration_text
from baseload.errors import ApiError

ON_THEIR_WAY = frozenset({"new", "waiting_for_data", "uploading"})
"""The statuses of jobs whose data or output may be on their way."""
MOST_ASKED = 100
BAR_WIDTH = 10
FULL, EMPTY = "█", "░"


def data_progress_of(session: Session, jobs: Sequence[Document]) -> dict[str, list[Document]]:
    """What is on its way for these jobs, by their ids; nothing is asked where nothing can be.

    An API that does not say it leaves the list of jobs as it is.
    """
    asked = [str(job["id"]) for job in jobs if job["status"] in ON_THEIR_WAY][:MOST_ASKED]
    found: dict[str, list[Document]] = {}
    if asked:
        with contextlib.suppress(ApiError):
            for each in session.get("/v1/data-progress", job_id=asked)["items"]:
                found.setdefault(each["job_id"], []).append(each)
    return found


def progress_text(workers: Sequence[Document]) -> str | None:
    """All that is on its way for one job: `███░░░░░░░ 31% of 4.2 GiB, 96.1 MiB/s, 31 s left`."""
    if not workers:
        return None
    done = sum(each["bytes_transferred"] for each in workers)
    rates = [each["bytes_per_s"] for each in workers]
    totals = [each["total_bytes"] for each in workers]
    lefts = [each["left_s"] for each in workers if each["left_s"] is not None]
    known = [total for total in totals if total is not None]
    words = [share_text(done, sum(known) if len(known) == len(totals) else None)]
    if any(each.get("artifact_id") is None for each in workers):  # Else nobody knows how fast.
        words.append(f"{bytes_text(sum(each or 0 for each in rates))}/s")
    if lefts:
        words.append(f"{duration_text(max(lefts))} left")
    return ", ".join(words)


def share_text(done: int, total: int | None) -> str:
    """How much of a total is done: `███░░░░░░░ 31% of 4.2 GiB`; `1.3 GiB` of an unknown one."""
    if not total:
        return bytes_text(done)
    share = min(1.0, done / total)
    return f"{_bar(share)} {share:.0%} of {bytes_text(total)}"


class StoreProgress:
    """How far the transfer of an artifact is, between two looks at it."""

    def __init__(self) -> None:
        self._last: tuple[float, int] | None = None

    def text(self, artifact: Document, now_s: float) -> str | None:
        """The bar, with the rate since the look before; None: nothing is transferred.

        now_s: of a clock that never goes back.
        """
        if artifact.get("status") != "transferring" or "bytes_transferred" not in artifact:
            return None
        done, total = artifact["bytes_transferred"], artifact.get("total_bytes")
        words = [share_text(done, total)]
        if self._last is not None and now_s > self._last[0]:
            rate = max(0, int((done - self._last[1]) / (now_s - self._last[0])))
            words.append(f"{bytes_text(rate)}/s")
            if total and rate:
                words.append(f"{duration_text(max(0, total - done) // rate)} left")
        self._last = (now_s, done)
        return ", ".join(words)


def _bar(share: float) -> str:
    full = int(share * BAR_WIDTH)
    return FULL * full + EMPTY * (BAR_WIDTH - full)
