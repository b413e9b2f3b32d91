"""What is wrong with a device at rest: its processes, its files, its row and its output."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from activities.agent.datastores.copying import PART

Wrong = Literal["lost", "doubled", "left", "untrue"]
LOG_BYTES = 2 * (8 << 20) + (1 << 20)
"""The two files of a log, and what one write may add."""


@dataclass(frozen=True)
class Wanted:
    """What a device must run in the end. revision: None, when its inference is stopped."""

    revision: int | None
    failed: str | None = None
    """A part of the reason for which the last assignment ended failed; None: it did not fail."""


@dataclass(frozen=True)
class Seen:
    """One device, as its machine and the platform show it."""

    inferences: tuple[int, ...]
    """The revision of each process that is the first of an inference."""
    run_ids: frozenset[str]
    """The runs to which processes of the machine belong."""
    row: dict[str, Any]
    state: dict[str, Any]
    """The keeper's own file."""
    folders: tuple[str, ...]
    """The run folders of the device."""
    newest: frozenset[str] = frozenset()
    """That of them which was staged for an assignment that then failed; it stays until the next."""
    units: tuple[str, ...] = ()
    keepers: int = 1
    watches: int = 1
    log_bytes: dict[str, int] = field(default_factory=dict)
    parts: tuple[str, ...] = ()
    """Files that were broken off while they were written."""
    specs: tuple[str, ...] = ()
    """Sealed specs of the device in the platform's store."""


def verdicts(wanted: Wanted, seen: Seen) -> Iterator[tuple[Wrong, str]]:
    """All that is wrong with a device that has come to rest."""
    yield from _of_processes(wanted, seen)
    yield from _of_row(wanted, seen)
    yield from _of_files(wanted, seen)


def _of_processes(wanted: Wanted, seen: Seen) -> Iterator[tuple[Wrong, str]]:
    expected = () if wanted.revision is None else (wanted.revision,)
    if len(seen.inferences) > len(expected):
        yield "doubled", f"{len(seen.inferences)} inferences run: revisions {seen.inferences}"
    elif seen.inferences != expected:
        yield "lost", f"revision {wanted.revision} must run, found {seen.inferences}"
    current = (seen.state.get("current") or {}).get("run_id")
    if strays := seen.run_ids - ({current} if wanted.revision is not None else set()):
        yield "doubled", f"processes of {sorted(strays)} run, the current one is {current}"
    if wanted.revision is not None and seen.keepers != 1:
        yield "doubled" if seen.keepers else "lost", f"{seen.keepers} keepers"
    if seen.watches != 1:
        yield "doubled" if seen.watches else "lost", f"{seen.watches} watches of the device"


def _of_row(wanted: Wanted, seen: Seen) -> Iterator[tuple[Wrong, str]]:
    row = seen.row
    if row["status"] != "active":
        yield "untrue", f"the device is {row['status']}: {row['status_reason']}"
    status = "stopped" if wanted.revision is None else "running"
    if row["inference_status"] != status:
        yield "untrue", f"its inference is {row['inference_status']} in the row, asked {status}"
    running = (row["running"] or {}).get("revision")
    if wanted.revision is not None and running != wanted.revision:
        yield "untrue", f"the row says that revision {running} runs, asked {wanted.revision}"
    if not (row["requested"] or {}).get("followed"):
        yield "untrue", "its last assignment is not followed"
    reason = row["inference_reason"] or ""
    if wanted.failed is not None and wanted.failed not in reason:
        yield "untrue", f"its reason is {reason[:300]!r}, asked {wanted.failed!r}"
    if wanted.failed is None and reason:
        yield "untrue", f"its reason is {reason[:300]!r}, asked none"


def _of_files(wanted: Wanted, seen: Seen) -> Iterator[tuple[Wrong, str]]:
    current, before = ((seen.state.get(name) or {}).get("run_id") for name in ("current", "before"))
    for name in seen.folders:
        if name not in (current, before) and name not in seen.newest:
            yield "left", f"run folder {name}"
    if current and current not in seen.folders:
        yield "lost", f"the folder of the current revision, {current}"
    if len(seen.units) != 1:
        yield "left" if seen.units else "lost", f"units {seen.units}"
    left = {f"a trial: {seen.state['trial']}"} if seen.state.get("trial") else set()
    left |= {f"broken off: {name}" for name in seen.parts}
    left |= {f"sealed spec: {name}" for name in seen.specs}
    left |= {
        f"the log of {name} has {size} bytes"
        for name, size in seen.log_bytes.items()
        if size > LOG_BYTES
    }
    for each in sorted(left):
        yield "left", each


def verdicts_of_output(
    ledger: dict[str, int], stored: Iterable[tuple[str, str]]
) -> Iterator[tuple[Wrong, str]]:
    """What is wrong with the output on the datastore.

    ledger: for each start of a command how many files it has written for certain.
    stored: the names of the files on the datastore, `<start>-<number>`, each with its content.
    """
    found: dict[str, set[int]] = defaultdict(set)
    for name, content in stored:
        if name.startswith(PART):
            yield "left", f"{name} on the datastore"
            continue
        start, _, number = name.rpartition("-")
        if content.strip() == number:
            found[start].add(int(number))
        elif int(number) <= ledger.get(start, 0):
            yield "lost", f"{name}: its content is {content[:50]!r}"
    for start, last in ledger.items():
        if missing := set(range(1, last + 1)) - found[start]:
            yield "lost", f"output of {start}: {len(missing)} of {last}, as {min(missing)}"
