"""A job of the room: what its command does, and what may become of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.e2e.platform import ENDED, Resource

RAN = "/srv/room"
"""Where each command notes that it begins and ends, in a file named after its job and run."""
_NOTE = f'echo {{0}} $(cut -d" " -f1 /proc/uptime) >> {RAN}/$BASELOAD_JOB_ID.$BASELOAD_RUN_ID'


@dataclass(frozen=True)
class Script:
    """body: what the command does between its two notes; text: all that it prints."""

    body: str
    text: bytes

    @property
    def command(self) -> str:
        return f"{_NOTE.format('begin')}; {self.body}; {_NOTE.format('end')}"


def counting(count: int, pause_s: float, first: str = "") -> Script:
    """A line and a pause, so many times; leaves an output."""
    line = "line $n of work that goes on"
    body = (
        f"{first}for n in $(seq 1 {count}); do echo {line}; sleep {pause_s}; done; "
        "hostname > $BASELOAD_OUTPUT/host"
    )
    said = [line.replace("$n", str(n)) for n in range(1, count + 1)]
    return Script(body, "".join(f"{one}\n" for one in said).encode())


FAILING_RETRIES = 2


def failing_first(count: int, pause_s: float) -> Script:
    """As `counting`, and the command fails by itself where it has not begun before."""
    whole = counting(count, pause_s)
    begun = f"$(ls {RAN}/$BASELOAD_JOB_ID.* | wc -l)"
    fails = f'[ "{begun}" -gt 1 ] || {{ {_NOTE.format("fail")}; exit 3; }}'
    return Script(f"{whole.body}; {fails}", whole.text)


def serving(port: int) -> Script:
    """A page at a port, for as long as the job lasts."""
    body = f"echo serves; exec python3 -m http.server {port} --bind 127.0.0.1 > /dev/null 2>&1"
    return Script(body, b"serves\n")


def short_lines(count: int) -> Script:
    """Many short lines as fast as it goes."""
    return Script(f"seq 1 {count}", b"".join(b"%d\n" % n for n in range(1, count + 1)))


def one_line(size: int) -> Script:
    """So many bytes without a newline."""
    return Script(f"head -c {size} /dev/zero | tr '\\0' x", b"x" * size)


@dataclass(eq=False)
class RoomJob:
    """One job, followed until it has ended and was found as it should be."""

    id: str
    place: str
    script: Script
    submitted_s: float
    allowed: set[str] = field(default_factory=lambda: {"finished"})
    least_log_bytes: int = 0
    says_more: bool = False
    """Other programs print too, after the script's own text."""
    measured_s: int | None = None
    """What its supervisor had measured, read from its node's disk when nobody could change it."""
    faults: list[str] = field(default_factory=list)
    held: int = 0
    """Not looked at while a fault that touches it goes on."""
    row: Resource = field(default_factory=dict)
    strays: bool = False
    """Its node was given up: what it went on to run there is billed once the node is back."""
    attempts: int = 1
    measured_attempt: int = 1
    """The attempt that had measured `measured_s`."""
    retries: int = 0
    """How often it is tried again where its command fails."""
    is_service: bool = False
    is_discarded: bool = False
    """Who cancels it does not want its output."""
    looked_at: bool = False

    @property
    def path(self) -> str:
        return f"/v1/jobs/{self.id}"

    @property
    def status(self) -> str:
        return str(self.row.get("status", "new"))

    @property
    def has_ended(self) -> bool:
        return self.status in ENDED

    @property
    def is_running(self) -> bool:
        return self.status == "running"

    @property
    def worker(self) -> dict[str, Any]:
        workers = self.row.get("workers") or [{}]
        return dict(workers[0])

    def may(self, *statuses: str) -> None:
        """It may also end so."""
        self.allowed |= set(statuses)

    @property
    def attempt(self) -> int:
        return int(self.row.get("attempt") or 1)

    def breaks_off(self, measured_s: int | None, attempt: int = 1) -> None:
        """Its command was broken off when it had measured so much; what else may become of it may
        have come first, and one that goes on by itself may still come to its own end."""
        self.measured_s, self.measured_attempt = measured_s, attempt
        goes_on = self.retries > 0 or self.is_service
        self.allowed = self.allowed - (set() if goes_on else {"finished"}) | {"failed"}
