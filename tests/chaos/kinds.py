"""The list of what can happen: each kind of fault by its name."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from tests.chaos.campaign_stack import Place, Room, eventually
from tests.chaos.job import RoomJob, Script

Lane = Literal["ours", "machine", "small", "poor", "hostile", "people"]
"""Who it happens to: our processes, a machine, one with a small disk, one whose owner has few
credits; or people cause it, or a machine whose owner lies to the platform about the others."""


class Missed(Exception):  # noqa: N818 - what the fault needs did not come; nothing was done
    """The moment for a fault did not come; it is not counted."""


class Scene:
    """One fault as it happens: where, to whom, and with which dice."""

    def __init__(self, room: Room, kind: Kind, place: Place, dice: random.Random) -> None:
        self.room, self.kind, self.place, self.dice = room, kind, place, dice

    def inject(self, jobs: Sequence[RoomJob]) -> None:
        """Now it happens, to these jobs."""
        row = self.room.tally.rows[self.kind.name]
        row.times += 1
        for job in jobs:
            row.jobs += 1
            job.faults.append(self.kind.name)

    @contextmanager
    def touching(self, jobs: Sequence[RoomJob]) -> Iterator[None]:
        """It happens to these jobs; nobody looks at them until it is over."""
        self.inject(jobs)
        with self.room.holding(list(jobs)):
            yield

    async def submit(self, script: Script, **changes: Any) -> RoomJob:
        """A job of its own; handed in when nobody keeps jobs away from the place.

        Whoever does and counts the jobs there would not know of one that is on its way.
        """
        async with self.place.filling:
            return await self.room.submit(self.place, script, **changes)

    async def a_job(self, limit_s: float, *statuses: str) -> RoomJob:
        """A job of the place in one of these states. Raises: Missed."""
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            for job in self.room.at(self.place):
                if job.status in statuses:
                    return job
            await asyncio.sleep(0.05)
        raise Missed(f"{self.kind.name}: no job {' or '.join(statuses)} on {self.place.name}")

    def expect_reason(self, job: RoomJob, word: str) -> None:
        """A person is told why the job has failed."""
        if job.status == "failed" and word not in str(job.row["status_reason"]):
            said = f"{job.id}: asked to say {word!r}, says {job.row['status_reason']!r}"
            self.room.tally.wrong(self.kind.name, "lost", said)

    async def until(self, look: Callable[[], object], what: str, limit_s: float = 120.0) -> None:
        await eventually(look, f"{self.kind.name} on {self.place.name}: {what}", limit_s)


@dataclass(frozen=True)
class Kind:
    """often: how many of it each shuffled round of its lane has; 0: only when asked for by name."""

    name: str
    lane: Lane
    act: Callable[[Scene], Awaitable[None]]
    often: int


KINDS: dict[str, Kind] = {}


def kind(
    lane: Lane, often: int = 1, name: str | None = None
) -> Callable[[Callable[[Scene], Awaitable[None]]], Callable[[Scene], Awaitable[None]]]:
    """Put a fault onto the list, under the name of its function."""

    def put(act: Callable[[Scene], Awaitable[None]]) -> Callable[[Scene], Awaitable[None]]:
        called = name or act.__name__.replace("_", "-")
        KINDS[called] = Kind(called, lane, act, often)
        return act

    return put
