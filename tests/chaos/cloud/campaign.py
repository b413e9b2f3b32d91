"""Rounds of jobs, each under one kind of fault, until enough has happened."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.chaos.cloud.campaign_stack import CloudRoom
from tests.chaos.cloud.database import Name
from tests.chaos.cloud.faults import KINDS, ROUND_LIMIT_S, Scene, storm
from tests.chaos.cloud.markets.market import LOST, OF_THE_PROVIDER, Market
from tests.chaos.cloud.points import POINTS
from tests.chaos.cloud.round import Round, Seen
from tests.chaos.cloud.tally import Row, Tally
from tests.chaos.cloud.verdicts import machines_made, machines_refused, seconds_beyond, verdicts

NO_FAULT = "(none)"
TOGETHER, KINDS_AT_ONCE = "(two kinds at once)", 2
JOBS_ON_EACH = 8
"""The most jobs of a round on each machine that can be had at the same time."""


@dataclass(frozen=True)
class Orders:
    """What the campaign is to do. kinds: by name. jobs: of a round.

    rounds: at most so many; None: as many as there is time for.
    """

    market: str
    faults: int
    seed: int
    kinds: tuple[str, ...]
    minutes: float = 50.0
    rounds: int | None = None
    jobs: int = 20
    at_once: int = 8
    points: tuple[str, ...] = tuple(POINTS)
    times: int = 2
    storm: bool = False
    """Also lose replies from the first round on, and not only when each kind has come alone."""
    database: Name = "sqlite"
    evidence: Path | None = None


class Campaign:
    """All kinds in a shuffled row, again and again: each alone at first, then two at once, while
    the replies of creations and releases are being lost too."""

    def __init__(self, room: CloudRoom, orders: Orders, tally: Tally) -> None:
        self.room, self.orders, self.tally = room, orders, tally
        self.is_over = False
        self._kinds = [each for each in orders.kinds if can_have(room.market, each)]
        self._rounds = 0
        self._dice = random.Random(orders.seed)

    async def run(self) -> None:
        began = time.monotonic()
        await self.room.open()
        took_s = time.monotonic() - began
        self.room.tell(f"{self.orders.database}: machines can be had after {took_s:.0f} s")
        ends_at = time.monotonic() + 60 * self.orders.minutes
        row, at_once, storms = self._shuffled(), 1, self.orders.storm
        while self._wants_more() and time.monotonic() < ends_at:
            if not row:
                row, at_once, storms = self._shuffled(), KINDS_AT_ONCE, True
            names, row = row[:at_once], row[at_once:]
            await self._play(names, storms=storms)
        for left in await self.room.end():
            self.tally.wrong(NO_FAULT, "leaked", left)
        for unknown in self.room.market.violations:
            self.tally.wrong(NO_FAULT, "lost", f"asked of the provider wrongly: {unknown}")
        self.is_over = True

    def _wants_more(self) -> bool:
        orders = self.orders
        is_enough = self.tally.injected >= orders.faults or self._rounds == orders.rounds
        return bool(self._kinds) and not is_enough

    def _shuffled(self) -> list[str]:
        kinds = list(self._kinds)
        self._dice.shuffle(kinds)
        return kinds

    async def _play(self, names: list[str], *, storms: bool) -> None:
        """One round under these kinds of fault, until nothing is left of it; then it is looked at.

        What is injected counts as its own kind, all else as the round's.
        """
        began, before = time.monotonic(), self.tally.injected
        name = names[0] if len(names) == 1 else TOGETHER
        most = self.room.market.most_at_once
        jobs = min(self.orders.jobs, JOBS_ON_EACH * most)
        round_ = Round(self.room, jobs, min(self.orders.at_once, most + 1))
        lost = set(LOST.values()) & set(names)
        storms = storms and not lost and set(LOST.values()) <= set(self.room.market.kinds)
        with storm(self.room, self.tally) if storms else nullcontext():
            try:
                await self._inject(round_, names)
            except (TimeoutError, RuntimeError, AssertionError, httpx.TransportError) as wrong:
                self.tally.wrong(name, "lost", f"the round broke off: {wrong}")
                self.room.tell(f"WRONG {self.tally.found[-1]}")
            await round_.settle(ROUND_LIMIT_S)
        seen = await round_.look()
        for what, message in verdicts(seen, jobs):
            self.tally.wrong(name, what, f"{' and '.join(names)}: {message}")
            self.room.tell(f"WRONG {self.tally.found[-1]}")
        took_s = time.monotonic() - began
        self._rounds += 1
        self._count(self.tally.rows[name], seen, took_s)
        told = f"{self.tally.injected - before} faults, {machines_made(seen)} machines"
        self.room.tell(f"{self.tally.injected:>4} {' and '.join(names)}: {told}, {took_s:.0f} s")

    async def _inject(self, round_: Round, names: list[str]) -> None:
        """Until all jobs are submitted and everything has happened; nothing of it goes on."""
        orders = self.orders
        scenes = [
            Scene(self.room, round_, name, self.tally, orders.points, orders.times)
            for name in names
        ]
        works = [round_.submit(), *(KINDS[scene.kind](scene) for scene in scenes)]
        tasks = [asyncio.ensure_future(work) for work in works]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _count(self, row: Row, seen: Seen, took_s: float) -> None:
        row.rounds += 1
        row.jobs += len(seen.jobs)
        row.machines += machines_made(seen)
        row.refused += machines_refused(seen)
        row.beyond_s += seconds_beyond(seen)
        row.seconds += took_s


def can_have(market: Market, kind: str) -> bool:
    """Whether this kind of fault can happen there."""
    return kind not in OF_THE_PROVIDER or kind in market.kinds
