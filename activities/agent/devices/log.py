"""The log of what a device runs now: two files, so that it is bounded however long it runs.

`log` is written until it has 8 MiB, then becomes `log.1` in the place of the one before. Bytes are
counted from the start of the command: `log-at.json` says where `log` begins.
"""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Callable
from typing import Any

from ..folders import Run, read_json, write_json
from ..host import processes
from ..runs.log import Log

MOST_BYTES = 8 << 20
MOST_BYTES_PER_S = 1 << 18
"""What a command may print for long: one that prints more waits, so that it wears out no flash."""
AT_ONCE_BYTES = 64 << 20
EARLIER = "log.1"
AT = "log-at.json"
SCAN_BYTES = 1 << 16


class BoundedLog(Log):
    """The log of one start of a revision, which begins anew with it."""

    def __init__(self, run: Run, spec: dict[str, Any]) -> None:
        begin_anew(run)
        super().__init__(run, spec)
        self._run = run
        self._most = int(spec.get("most_log_bytes") or MOST_BYTES)
        self._size = 0
        self._at = 0
        self._spent, self._spent_at_s = 0.0, processes.monotonic_s()

    def _write(self, content: bytes) -> bool:
        if self._size and self._size + len(content) > self._most:
            with contextlib.suppress(OSError):  # On a full disk it grows on, until there is room.
                self._turn()
        self._size += len(content)
        if (wait_s := self._spend(len(content))) > 0:
            select.select([self._told], [], [], wait_s)  # The end waits for nothing.
        return super()._write(content)

    def _spend(self, size: int) -> float:
        """How long to wait before so many more bytes are written."""
        now = processes.monotonic_s()
        regained = (now - self._spent_at_s) * MOST_BYTES_PER_S
        self._spent, self._spent_at_s = max(0.0, self._spent - regained) + size, now
        return (self._spent - AT_ONCE_BYTES) / MOST_BYTES_PER_S

    def _turn(self) -> None:
        write_json(self._run.at(AT), {"at": self._at + self._size}, durable=False)
        os.rename(self._run.log, self._run.at(EARLIER))
        os.close(self.file)
        self.file = os.open(self._run.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._at, self._size = self._at + self._size, 0


def begin_anew(run: Run) -> None:
    """Remove the log of the start before."""
    for path in (run.log, run.at(EARLIER), run.at(AT)):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def bounds(run: Run) -> tuple[int, int]:
    """From which byte to which the log can be read."""
    at = int((read_json(run.at(AT)) or {}).get("at", 0))
    end = at + run.log_bytes()
    try:
        earlier = os.stat(run.at(EARLIER)).st_size
    except FileNotFoundError:
        earlier = 0
    return max(0, at - earlier), end


def read(run: Run, offset: int, limit: int) -> bytes:
    """Bytes of the log from `offset` on; empty: there are none yet, or none any more."""
    at = int((read_json(run.at(AT)) or {}).get("at", 0))
    path, begin = (run.log, at) if offset >= at else (run.at(EARLIER), at - _size(run))
    if offset < begin:
        return b""
    try:
        with open(path, "rb") as file:
            file.seek(offset - begin)
            return file.read(limit)
    except FileNotFoundError:
        return b""


def begin_of_last(run: Run, lines: int, most_bytes: int) -> int:
    """The byte at which the last lines of the log begin, so many or fewer, in `most_bytes`."""
    first, end = bounds(run)
    first = max(first, end - most_bytes)
    at = end
    while at > first and lines > 0:
        begin = max(first, at - SCAN_BYTES)
        chunk = read(run, begin, at - begin)
        if begin + len(chunk) < at:  # The rest of it is in the other file.
            chunk += read(run, begin + len(chunk), at - begin - len(chunk))
        if begin + len(chunk) != at:  # It has gone meanwhile.
            return at
        # What ends the log ends its last line, and begins none.
        stop = len(chunk) - 1 if at == end else len(chunk)
        while (stop := chunk.rfind(b"\n", 0, stop)) >= 0:
            lines -= 1
            if lines == 0:
                return begin + stop + 1
        at = begin
    return at


def _size(run: Run) -> int:
    try:
        return os.stat(run.at(EARLIER)).st_size
    except FileNotFoundError:
        return 0


def last_lines(
    run: Run,
    most_characters: int,
    mask: Callable[[str], str] = str,
    least_bytes: int = 0,
) -> str:
    """The end of the log, whole lines of it where there are several.

    mask: what the text goes through before it is cut, at least so many bytes of it.
    """
    first, end = bounds(run)
    begin = max(first, end - max(least_bytes, 4 * most_characters))
    text = read(run, begin, end - begin) if begin < end else b""
    if begin + len(text) < end:
        text += read(run, begin + len(text), end)
    words = mask(text.decode(errors="replace")).strip()
    if len(words) <= most_characters:
        return words
    cut = words[-most_characters:]
    return cut.partition("\n")[2] or cut
