"""The progress of a transfer in words and figures: bytes, files, rate, and what is left."""

from datetime import datetime

from workflows.contracts.artifacts import ArtifactEvent, Progress
from workflows.contracts.events import Event


class Rate:
    """The rate of a transfer between two looks at its progress."""

    def __init__(self) -> None:
        self._last: tuple[datetime, int] | None = None

    def at(self, now: datetime, progress: Progress) -> int | None:
        """Bytes in a second since the last look; None: this is the first."""
        last, self._last = self._last, (now, progress.bytes_transferred)
        if last is None:
            return None
        passed_s = (now - last[0]).total_seconds()
        return int((progress.bytes_transferred - last[1]) / passed_s) if passed_s > 0 else None


def progress_event(noun: str, progress: Progress, bytes_per_s: int | None) -> Event:
    """The event of a transfer's progress."""
    done, total = progress.bytes_transferred, progress.total_bytes
    left_s = None
    if total is not None and bytes_per_s is not None and bytes_per_s > 0:
        left_s = max(0, total - done) // bytes_per_s
    words = f"{done} bytes" if total is None else f"{done} of {total} bytes"
    rate = "" if bytes_per_s is None else f", {bytes_per_s} bytes/s"
    left = "" if left_s is None else f", about {left_s} s left"
    return Event(
        type=ArtifactEvent.PROGRESS.of(noun),
        message=f"{words}, {progress.file_count} files{rate}{left}",
        details={
            "bytes_transferred": done,
            "total_bytes": total,
            "file_count": progress.file_count,
            "bytes_per_s": bytes_per_s,
            "left_s": left_s,
        },
    )
