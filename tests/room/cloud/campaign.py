"""Rounds of jobs, each under one kind of fault, until enough has happened."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from tests.room.cloud.faults import KINDS, LOST, ROUND_LIMIT_S, Scene, storm
from tests.room.cloud.points import POINTS
from tests.room.cloud.room import CloudRoom
from tests.room.cloud.round import Round
from tests.room.cloud.tally import Tally
from tests.room.cloud.verdicts import machines_made, machines_refused, verdicts

NO_FAULT = "(none)"


@dataclass(frozen=True)
class Orders:
    """What the campaign is to do. only: kinds by name; when empty, all. jobs: of a round."""

    faults: int
    seed: int
    only: tuple[str, ...] = ()
    minutes: float = 50.0
    jobs: int = 20
    points: tuple[str, ...] = tuple(POINTS)
    storm: bool = False
    """Also lose replies from the first round on, and not only when each kind has come alone."""
    evidence: Path | None = None

    def kinds(self) -> list[str]:
        return list(self.only or KINDS)


class Campaign:
    """All kinds in a shuffled row, again and again: each alone at first, then while the replies of
    creations and releases are being lost too."""

    def __init__(self, room: CloudRoom, orders: Orders) -> None:
        self.room, self.orders = room, orders
        self.tally = Tally()
        self.is_over = False
        self._dice = random.Random(orders.seed)

    async def run(self) -> None:
        began = time.monotonic()
        await self.room.open()
        self.room.tell(f"the region is healthy after {time.monotonic() - began:.0f} s")
        ends_at = time.monotonic() + 60 * self.orders.minutes
        row, storms = self._shuffled(), self.orders.storm
        while self.tally.injected < self.orders.faults and time.monotonic() < ends_at:
            if not row:
                row, storms = self._shuffled(), True
            await self._play(row.pop(), storms=storms)
        for left in await self.room.end_region():
            self.tally.wrong(NO_FAULT, "leaked", left)
        for unknown in self.room.double.violations:
            self.tally.wrong(NO_FAULT, "lost", f"asked of Google wrongly: {unknown}")
        self.is_over = True

    def _shuffled(self) -> list[str]:
        kinds = self.orders.kinds()
        self._dice.shuffle(kinds)
        return kinds

    async def _play(self, name: str, *, storms: bool) -> None:
        """One round under one kind of fault, until nothing is left of it; then it is looked at."""
        began, row = time.monotonic(), self.tally.rows[name]
        round_ = Round(self.room, self.orders.jobs)
        lost = LOST.values()
        scene = Scene(self.room, round_, name, self.tally, self._dice, self.orders.points)
        try:
            with storm(self.room, self.tally) if storms and name not in lost else nullcontext():
                await asyncio.gather(round_.submit(), KINDS[name](scene))
                await round_.settle(ROUND_LIMIT_S)
        except (TimeoutError, RuntimeError, AssertionError) as wrong:
            self.tally.wrong(name, "lost", f"the round broke off: {wrong}")
        seen = await round_.look()
        for what, message in verdicts(seen, self.orders.jobs):
            self.tally.wrong(name, what, message)
            self.room.tell(f"WRONG {self.tally.found[-1]}")
        row.rounds += 1
        row.jobs += len(seen.jobs)
        made = machines_made(seen)
        row.machines += made
        row.refused += machines_refused(seen)
        row.seconds += time.monotonic() - began
        took = f"{time.monotonic() - began:.0f} s"
        self.room.tell(f"{self.tally.injected:>4} {name}: {made} machines, {took}")
