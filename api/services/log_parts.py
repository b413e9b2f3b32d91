"""Parts of a worker's log: its last lines, what came since an instant, lines with their times.

Each is found by reads of a bounded size from the end of the log, and by the marks beside it.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

from fastapi import Query
from pydantic import AwareDatetime

from api.problems import Problem
from api.services.job_logs import WorkerLog

MOST_LINES = 100_000
MOST_TAIL_BYTES = 16 << 20
"""How far from its end the search for the last lines of a log goes."""
BLOCK_BYTES = 64 << 10
UNKNOWN = b"-"


@dataclass(frozen=True, slots=True)
class PartQuery:
    """The part of a log that a client asks for."""

    offset: int
    tail: int | None
    since: datetime | None
    timestamps: bool


def part_query(
    offset: Annotated[int, Query(ge=0, le=2**63 - 1)] = 0,
    tail: Annotated[
        int | None, Query(ge=0, le=MOST_LINES, description="Only so many of its last lines.")
    ] = None,
    since: Annotated[
        AwareDatetime | None,
        Query(description="Only what was stored since then, to about ten seconds."),
    ] = None,
    timestamps: Annotated[
        bool,
        Query(description="Each line behind the time at which it was stored; `-` if unknown."),
    ] = False,
) -> PartQuery:
    """The dependency of a route that gives parts of logs."""
    return PartQuery(offset, tail, since, timestamps)


def start_of(log: WorkerLog, asked: PartQuery) -> int:
    """The offset at which the part begins: the last one of those that its bounds mean.

    Raises: Problem `conflict`, when it is not known when the log was stored.
    """
    starts = [asked.offset]
    if asked.tail is not None:
        starts.append(_start_of_lines(log, asked.tail))
    if asked.since is not None:
        starts.append(_start_since(log, asked.since.timestamp()))
    return max(starts)


def _start_of_lines(log: WorkerLog, lines: int) -> int:
    """The offset of the last lines; within a line, if they are longer than what is read."""
    length = position = log.length()
    wanted = lines + 1  # The end of the last line begins no line.
    while position > 0 and lines:
        begins = max(0, position - BLOCK_BYTES)
        block = log.span(begins, position)
        if position == length and not block.endswith(b"\n"):
            wanted -= 1
        ends = block.count(b"\n")
        if ends >= wanted:
            at = len(block)
            for _ in range(wanted):
                at = block.rindex(b"\n", 0, at)
            return begins + at + 1
        wanted -= ends
        position = begins
        if length - position >= MOST_TAIL_BYTES:
            return position
    return 0 if lines else length


def _start_since(log: WorkerLog, instant_s: float) -> int:
    marked = log.times()
    if log.length() and not any(times.offsets for _, times in marked):
        raise Problem("conflict", "the log has no times: it was stored before they were kept")
    for begins, times in marked:
        first = times.first_since(instant_s - log.times_interval_s)
        if first is not None:
            return begins + first
    return log.length()


class Stamper:
    """Puts the time of each line of a log in front of it, for one reader from `start` on.

    Lines that are stored already have the time of their mark; for those that come while the
    reader follows, it is the time at which they are read, as they are read at once.
    """

    def __init__(self, log: WorkerLog, start: int, clock: Callable[[], float] = time.time) -> None:
        self._length = log.length()
        self._times = log.times()
        self._clock = clock
        self._begins_line = start == 0 or log.span(start - 1, start) == b"\n"

    def __call__(self, offset: int, content: bytes) -> bytes:
        """The content that begins at an offset, with its times; called with all content in turn."""
        stamped = bytearray()
        for line in _lines(content):
            if self._begins_line:
                stamped += self._stamp(offset) + b" "
            stamped += line
            offset += len(line)
            self._begins_line = line.endswith(b"\n")
        return bytes(stamped)

    def _stamp(self, offset: int) -> bytes:
        at_s = self._clock() if offset >= self._length else self._stored_s(offset)
        if at_s is None:
            return UNKNOWN
        return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%dT%H:%M:%SZ}".encode()

    def _stored_s(self, offset: int) -> float | None:
        for begins, times in reversed(self._times):
            if offset >= begins:
                return times.at_s(offset - begins)
        return None


def stamped(stamper: Stamper, offset: int, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Pieces of a log that follow each other from an offset on, with their times."""
    for piece in pieces:
        yield stamper(offset, piece)
        offset += len(piece)


def _lines(content: bytes) -> list[bytes]:
    """The lines of bytes with their ends; a carriage return ends none."""
    lines = content.split(b"\n")
    return [line + b"\n" for line in lines[:-1]] + lines[-1:] * bool(lines[-1])
