"""Looking at one job that has ended: run once, its log whole, its bill that of the supervisor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.chaos.job import RoomJob
from tests.chaos.tally import Wrong
from tests.e2e.platform import Resource

CPU_SECOND_MICROCREDITS = 1000
CPU_CORE_HOUR_MICROCREDITS = 3600 * CPU_SECOND_MICROCREDITS
STARTING_S = 20.0
"""How much longer than the command itself its supervisor may have measured, on a busy machine."""
CLOCK_S = 0.02
Verdict = tuple[Wrong, str]


@dataclass(frozen=True)
class Seen:
    """What the world shows of a job. ran: its notes, `create` or `end` with the node's uptime."""

    ran: list[tuple[str, float]]
    log: bytes
    charges: list[Resource]
    outputs: list[str] = field(default_factory=list)
    """The names of its outputs in the store."""

    def count(self, note: str) -> int:
        return sum(1 for word, _ in self.ran if word == note)


def notes(text: str) -> list[tuple[str, float]]:
    """The file that a command has written to; a word that a power cut broke off is left out."""
    lines = [line.split() for line in text.splitlines()]
    return [(line[0], float(line[1])) for line in lines if len(line) == 2]


def verdicts(job: RoomJob, seen: Seen) -> Iterator[Verdict]:
    """What is wrong with it; nothing when all is as it should be."""
    if job.status not in job.allowed:
        yield "lost", f"{job.id}: {job.status} ({job.row['status_reason']})"
    yield from _runs(job, seen)
    yield from _log(job, seen)
    yield from _output(job, seen)
    yield from _bill(job, seen)


def _runs(job: RoomJob, seen: Seen) -> Iterator[Verdict]:
    begun = seen.count("begin")
    if job.retries and job.attempts > job.retries + 1:
        yield "doubled", f"{job.id}: attempt {job.attempts}, with {job.retries} retries"
    if begun > job.attempts:
        yield "doubled", f"{job.id}: its command began {begun} times: {seen.ran}"
    if job.status == "finished" and (begun == 0 or seen.count("end") == 0):
        yield "lost", f"{job.id}: finished, and its command did not: {seen.ran}"


def _log(job: RoomJob, seen: Seen) -> Iterator[Verdict]:
    whole = job.script.text
    right = seen.log == whole if job.status == "finished" else whole.startswith(seen.log)
    right = right or (job.says_more and seen.log.startswith(whole))
    if not right and not (job.attempts > 1 and _begun_again(seen.log, whole)):
        yield "lost", f"{job.id}: {_difference(seen.log, whole)}"
    if len(seen.log) < job.least_log_bytes:
        found = f"{len(seen.log)} bytes of log, {job.least_log_bytes} were on its node's disk"
        yield "lost", f"{job.id}: {found}"


def _output(job: RoomJob, seen: Seen) -> Iterator[Verdict]:
    """A finished job's is there, that of its last attempt; none is that its owner discards."""
    if job.status == "finished" and seen.outputs != [f"0-{job.attempts}.tar.gz"]:
        yield "lost", f"{job.id}: finished, and its outputs are {seen.outputs}"
    if job.status == "canceled" and job.is_discarded and seen.outputs:
        yield "left", f"{job.id}: discarded outputs are stored: {seen.outputs}"


def _begun_again(log: bytes, whole: bytes) -> bool:
    """Whether a log is that of several attempts, each broken off at some line."""
    first = whole[: whole.index(b"\n") + 1]
    before, *attempts = log.split(first)
    return not before and all(whole.startswith(first + rest) for rest in attempts)


def _difference(found: bytes, wanted: bytes) -> str:
    same = next(
        (at for at, (one, other) in enumerate(zip(found, wanted, strict=False)) if one != other),
        min(len(found), len(wanted)),
    )
    there = found[same : same + 40]
    return f"log of {len(found)} bytes, {len(wanted)} were printed; they part at {same}: {there!r}"


def _bill(job: RoomJob, seen: Seen) -> Iterator[Verdict]:
    charged_s = 0
    for attempt in range(1, job.attempts + 1):
        slices = sorted(
            (charge["details"]["from_s"], charge["details"]["through_s"])
            for charge in seen.charges
            if charge["details"]["attempt"] == attempt
        )
        last = 0
        for begins, ends in slices:
            if begins != last:
                yield "billed", f"{job.id}: slices of attempt {attempt} do not join: {slices}"
            last = ends
        charged_s += last
        yield from _failed(job, seen, attempt, last)
        if attempt == job.attempts:
            yield from _measured(job, seen, last)
    charged, shown = (
        sum(c["amount_microcredits"] for c in seen.charges),
        job.row["charged_microcredits"],
    )
    if not charged == shown == charged_s * CPU_SECOND_MICROCREDITS:
        yield "billed", f"{job.id}: charged {charged}, shown {shown}, for {charged_s} s"


def _failed(job: RoomJob, seen: Seen, attempt: int, billed_s: int) -> Iterator[Verdict]:
    """The seconds of an attempt that has failed by itself, against the command's own."""
    begins = [at for at, (word, _) in enumerate(seen.ran) if word == "begin"]
    if not job.retries or len(begins) != job.attempts:
        return  # An attempt that was broken off before its command has no note.
    at = begins[attempt - 1]
    if at + 1 == len(seen.ran) or seen.ran[at + 1][0] != "fail":
        return
    own_s = seen.ran[at + 1][1] - seen.ran[at][1]
    if not own_s - 1 - CLOCK_S <= billed_s <= own_s + STARTING_S:
        yield "billed", f"{job.id}: attempt {attempt}: billed {billed_s} s, ran for {own_s:.2f} s"


def _measured(job: RoomJob, seen: Seen, billed_s: int) -> Iterator[Verdict]:
    """The last attempt's seconds against its supervisor's, and these against the command's own."""
    elapsed_s = float(job.worker.get("elapsed_s") or 0.0)
    known_s = job.measured_s if job.measured_attempt == job.attempts else None
    wanted_s = int(elapsed_s) if known_s is None else known_s
    if billed_s != wanted_s and not (job.strays and billed_s >= wanted_s):
        yield "billed", f"{job.id}: billed {billed_s} s, its supervisor measured {wanted_s} s"
    if job.status != "finished" or not seen.ran or seen.ran[-1][0] != "end":
        return
    own_s = seen.ran[-1][1] - seen.ran[-2][1] if len(seen.ran) > 1 else 0.0
    if not own_s - CLOCK_S <= elapsed_s <= own_s + STARTING_S:
        yield "billed", f"{job.id}: measured {elapsed_s:.2f} s, its command ran for {own_s:.2f} s"
