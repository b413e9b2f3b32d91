"""What a hostile machine says: by a seed, of runs of others, and against the agent's protocol."""

from __future__ import annotations

import json
import random
import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tests.failure.hostile_node import frame

MARK = "outside"
"""In the path of every file that a run id with a path in it would make."""
FORGERIES = "forgeries"
"""The only lies that break no rule."""
FORGED = b"forged by a hostile machine\n"
LONGER = FORGED * 2000
"""Longer than what is stored of a log by then: what is stored already is not replaced."""
_TAG = string.digits + "abcdefghijklmnopqrstuv"


@dataclass(frozen=True)
class Lie:
    """Bytes that a verb of the agent says: first, instead of its answer, or again and again."""

    name: str
    verb: str
    how: Literal["first", "instead", "endless"]
    said: bytes


def forgeries(dice: random.Random, victims: Sequence[str], own: Sequence[str]) -> Lie:
    """Well-formed frames about runs of others, in any order: no bound is broken, nobody believes.

    victims: run ids on other machines; own: names of runs on the machine, whose tags are tried.
    """
    tags = ["".join(dice.choices(_TAG, k=16)), *(name.rpartition("-")[2] for name in own)]
    names = [f"{victim}{end}" for victim in victims for end in ("", "-", *(f"-{t}" for t in tags))]
    return Lie(FORGERIES, "watch", "first", _said_of(dice, names))


def paths(dice: random.Random, victims: Sequence[str]) -> Lie:
    """Frames about runs whose names are paths, or no names at all."""
    up = "../" * dice.randint(1, 6)
    made = [f"{up}{MARK}-0-1", f"/var/tmp/{MARK}-0-1", f"{MARK}\0-0-1", f"{MARK}\n-0-1", "", "."]
    of_jobs = [f"{victim.rsplit('-', 2)[0]}/{up}{MARK}-0-1" for victim in victims]
    odd = [name for victim in victims for name in (victim.upper(), f"{victim}{'0' * 64}")]
    names = [*made, *of_jobs, *odd]
    return Lie("paths", "watch", "first", _said_of(dice, [name[:128] for name in names]))


def _said_of(dice: random.Random, names: Sequence[str]) -> bytes:
    """All that a watcher can say of these runs, in any order."""
    said = []
    for name in names:
        ended = {"exit_code": dice.choice((0, 1, 137)), "elapsed_s": dice.choice((0, 3e8))}
        offset, log_bytes = dice.choice((0, 1, 1 << 40)), dice.choice((0, 1 << 40))
        said += [
            frame(FORGED, run_id=name, kind="log", offset=offset, length=len(FORGED)),
            frame(LONGER, run_id=name, kind="log", offset=0, length=len(LONGER)),
            frame(run_id=name, kind="idle", idle_s=1e6),
            frame(run_id=name, kind="lost", elapsed_s=1e6, log_bytes=0),
            frame(run_id=name, kind="exit", exit=ended, log_bytes=log_bytes),
        ]
    dice.shuffle(said)
    return b"".join(said)


def violations(dice: random.Random, name: str) -> list[Lie]:
    """What no agent of ours says, each by itself; name: of a run on the machine, or any other."""
    digits = dice.choice((400, 4000))
    numbers: list[dict[str, Any]] = [
        {"kind": "log", "offset": -1, "length": 5},
        {"kind": "log", "offset": 0, "length": 1 << 40},
        {"kind": "exit", "exit": {"exit_code": 10**digits}, "log_bytes": 0},
        {"kind": "exit", "exit": {"exit_code": 0}, "log_bytes": 1 << 64},
    ]
    number = json.dumps({"run_id": name, **dice.choice(numbers)}).encode() + b"\nbytes"
    line = bytes(dice.choices(b'x{["', k=1)) * (1 << 16)
    answer = b'{"ok": true, "runs": {' + b'"x": {}, ' * (1 << 13)
    return [
        Lie("a number without a bound", "watch", "first", number),
        Lie("a line without an end", "watch", "endless", line),
        Lie("an answer without an end", "status", "endless", answer),
    ]


def flood(name: str, count: int) -> Lie:
    """The idleness of one run of the machine, again and again."""
    return Lie("a flood", "watch", "first", frame(run_id=name, kind="idle", idle_s=1.0) * count)
