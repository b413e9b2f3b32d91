"""One round: so many jobs that each need a machine of their own, and all that is seen of them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.campaign_stack import aside, eventually
from tests.chaos.cloud.campaign_stack import CloudRoom
from tests.chaos.cloud.markets.market import Charge
from tests.chaos.cloud.points import LIVES, Life
from tests.chaos.leftovers import rows_left_of
from tests.e2e.platform import ENDED, Resource

LOOK_S = 0.015
SUBMIT_LIMIT_S = 400.0
_ENDED = ", ".join(f"'{status}'" for status in ENDED)
_LEFT = {
    "lease": "SELECT leases.name, leases.status, leases.status_reason FROM leases "
    "JOIN nodes ON nodes.id = holder_id WHERE nodes.type = 'ephemeral' "
    "AND leases.status NOT IN ('released', 'refused')",
    "node": "SELECT name, status, status_reason FROM nodes "
    "WHERE type = 'ephemeral' AND status != 'archived'",
    "region": "SELECT name, status, status_reason FROM regions WHERE status != 'healthy'",
}


@dataclass
class Seen:
    """What the world shows when a round is over. logs: by job; begun, ended: how often it ran."""

    jobs: list[Resource] = field(default_factory=list)
    logs: dict[str, str] = field(default_factory=dict)
    begun: dict[str, int] = field(default_factory=dict)
    ended: dict[str, int] = field(default_factory=dict)
    leases: list[Resource] = field(default_factory=list)
    charges: list[Charge] = field(default_factory=list)
    """Of machines that were made in the round."""
    left: list[str] = field(default_factory=list)
    """Machines and what holds them."""
    touched: list[str] = field(default_factory=list)
    """Machines of another installation that are gone."""
    is_end_told: bool = True
    """Whether the provider says when a machine has ended; else our own clock counts."""
    lost: int = 0
    """Machines that the provider took back, or whose host died: as many more may be
    made, and commands begun."""


class Round:
    """Jobs are submitted so many at a time; `life` shows where they are."""

    def __init__(self, room: CloudRoom, job_count: int, at_once: int) -> None:
        self.room, self.job_count, self.at_once = room, job_count, at_once
        self.paths: list[str] = []
        self.lost = 0
        self._jobs_before = self._count("jobs")
        self._leases_before = {row[0] for row in room.rows("SELECT id FROM leases")}
        self._neighbours = set(room.market.neighbours())
        self._charges_before = len(room.market.charges())

    # ── while it lasts ──────────────────────────────────────────────────────────────────────

    async def submit(self) -> None:
        """Until all have been submitted."""
        for _ in range(self.job_count):
            await eventually(self._has_room, "jobs come to their end", SUBMIT_LIMIT_S)
            self.paths.append(await aside(self._submit_one))

    def _has_room(self) -> bool:
        most, there = self.room.market.most_at_once, len(self.life())
        return self._unfinished() < self.at_once and there <= most

    def _submit_one(self) -> str:
        room = self.room
        asked = room.market.job(room.enabled)
        return room.platform.job(room.runs.command(), room.enabled.region_id, **asked)

    def life(self) -> list[Life]:
        """Every machine for a job that is not over."""
        shown = {each.name: each.state for each in self.room.market.machines()}
        found = self.room.rows(LIVES)
        return [Life(lease, node, job, shown.get(name), name) for name, lease, node, job in found]

    def has_all(self) -> bool:
        """Whether every job was submitted and has ended."""
        return len(self.paths) == self.job_count and self._unfinished() == 0

    def is_over(self) -> bool:
        """Whether no machine for any job is left that anything could happen to."""
        return self.has_all() and not self.life()

    def _unfinished(self) -> int:
        query = f"SELECT COUNT(*) FROM jobs WHERE status NOT IN ({_ENDED})"
        return int(self.room.rows(query)[0][0])

    def _count(self, table: str) -> int:
        return int(self.room.rows(f"SELECT COUNT(*) FROM {table}")[0][0])

    # ── when it is over ─────────────────────────────────────────────────────────────────────

    async def settle(self, limit_s: float) -> None:
        """Until nothing of it is left, or the limit has passed."""
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            if self.has_all() and not self._left():
                return
            await asyncio.sleep(0.1)

    async def look(self) -> Seen:
        """Everything, as it is now; asked of the API where people would ask it."""
        return await aside(self._look)

    def _look(self) -> Seen:
        room, platform = self.room, self.room.platform
        jobs = [platform.get(path) for path in self.paths]
        jobs += [{"id": "another", "status": "new"}] * (
            self._count("jobs") - self._jobs_before - len(jobs)
        )
        logs = {}
        for path in self.paths:
            with contextlib.suppress(Exception):
                logs[path.rsplit("/", 1)[1]] = platform.log(path)
        leases = platform.items("/v1/leases", limit=500)
        charges = room.market.charges()[self._charges_before :]
        return Seen(
            jobs=jobs,
            logs=logs,
            begun=dict(room.runs.begun),
            ended=dict(room.runs.ended),
            leases=[lease for lease in leases if lease["id"] not in self._leases_before],
            charges=charges,
            left=self._left(),
            touched=sorted(self._neighbours - set(room.market.neighbours())),
            is_end_told=room.market.says_when_it_ended,
            lost=self.lost,
        )

    def _left(self) -> list[str]:
        room = self.room
        machines, storage = room.market.machines(), room.enabled.storage
        left = [
            f"machine {each.name}: {each.state}" for each in machines if each.name not in storage
        ]
        here = {each.name for each in machines}
        left += [f"storage node's machine {name}: is gone" for name in storage - here]
        for what, query in _LEFT.items():
            left += [f"{what} {_told(row)}" for row in room.rows(query)]
        return left + list(rows_left_of(room.rows))


def _told(row: tuple[Any, ...]) -> str:
    return ", ".join(str(cell) for cell in row)
