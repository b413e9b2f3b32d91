"""One run of the room: lanes that inject fault after fault, and pauses to look at the world."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass
from pathlib import Path

from tests.chaos import (
    commands,
    control_plane,
    disks_and_clocks,
    engine,
    hostility,
    machines,
    users,
)
from tests.chaos.campaign_stack import HOSTILE, POOR, SMALL, Place, Room, eventually
from tests.chaos.kinds import KINDS, Kind, Missed, Scene
from tests.chaos.tally import NO_FAULT
from tests.chaos.workload import fill
from tests.lab.machine import Kind as MachineKind

MODULES = (commands, disks_and_clocks, machines, control_plane, engine, users, hostility)
"""Each puts its faults onto the list when it is imported."""
MACHINES: dict[str, MachineKind] = {
    "plain-1": "sshd",
    "unit-1": "systemd",
    "plain-2": "sshd",
    "unit-2": "systemd",
    "plain-3": "sshd",
}
ALONE: dict[str, MachineKind] = {SMALL: "sshd", POOR: "sshd", HOSTILE: "sshd"}
"""Each for the lane of its own name."""
UNFILLED = (POOR, HOSTILE)
"""Their faults bring the jobs that they need."""
OURS = "ours"
LOOK_AROUND_EVERY = 100
SETTLING_S = 5.0
LANE_LIMIT_S = 900.0


@dataclass(frozen=True)
class Orders:
    """What the campaign is to do. only: kinds by name; when empty, all that come in rounds."""

    faults: int
    seed: int
    only: tuple[str, ...] = ()
    minutes: float = 45.0
    machines: int = len(MACHINES)
    evidence: Path | None = None

    def kinds(self) -> list[Kind]:
        """Raises: KeyError for a name that is not on the list."""
        if self.only:
            return [KINDS[name] for name in self.only]
        return [kind for kind in KINDS.values() if kind.often]

    def booted(self) -> dict[str, MachineKind]:
        """The machines that this takes."""
        lanes = {kind.lane for kind in self.kinds()}
        alone = {name: kind for name, kind in ALONE.items() if name in lanes}
        return dict(list(MACHINES.items())[: self.machines]) | alone


class Campaign:
    """Lanes at work, each with its own dice, until enough has happened."""

    def __init__(self, room: Room, orders: Orders) -> None:
        self.room, self.orders = room, orders
        self._ends_at = 0.0
        self._look_at = LOOK_AROUND_EVERY
        self._busy = 0
        self._gate = asyncio.Event()
        self._last = NO_FAULT

    async def run(self) -> None:
        began = time.monotonic()
        await self.room.open(self.orders.booted())
        self.room.tell(f"{len(self.room.places)} nodes after {time.monotonic() - began:.0f} s")
        self._ends_at = time.monotonic() + 60 * self.orders.minutes
        background = [asyncio.create_task(self.room.follow(), name="follow")]
        background += [
            asyncio.create_task(fill(self.room, place, self.orders.seed), name=f"fill {place.name}")
            for place in self.room.places
            if place.name not in UNFILLED
        ]
        story = asyncio.create_task(self._story(), name="story")
        done, _ = await asyncio.wait([story, *background], return_when=asyncio.FIRST_COMPLETED)
        for task in [story, *background]:
            task.cancel()
        for task in done:
            task.result()

    async def _story(self) -> None:
        self._open()
        await asyncio.sleep(SETTLING_S)
        await asyncio.gather(*self._lanes(), self._pauses())
        await self._look_around()

    def _lanes(self) -> list[asyncio.Task[None]]:
        lanes = []
        for name, kinds in self._kinds_by_lane().items():
            for place in self._places_of(name):
                dice = random.Random(f"{self.orders.seed}/{name}/{place.name}")
                lanes.append(asyncio.create_task(self._lane(kinds, place, dice)))
        return lanes

    def _places_of(self, lane: str) -> list[Place]:
        """A lane for each machine that loses power; one for everything else."""
        alone = {place.name: place for place in self.room.places if place.name in ALONE}
        others = [place for place in self.room.places if place.name not in alone]
        if lane in alone:
            return [alone[lane]]
        return others if lane == "machine" else others[:1]

    def _kinds_by_lane(self) -> dict[str, list[Kind]]:
        found: dict[str, list[Kind]] = {}
        for kind in self.orders.kinds():
            found.setdefault(kind.lane, []).append(kind)
        return found

    @property
    def _enough(self) -> bool:
        return (
            self.room.tally.injected + self._busy >= self.orders.faults
            or time.monotonic() > self._ends_at
        )

    async def _lane(self, kinds: list[Kind], place: Place, dice: random.Random) -> None:
        bag: list[Kind] = []
        while True:
            await self._gate.wait()
            if self._enough:
                return
            if not bag:
                bag = [each for each in kinds for _ in range(max(each.often, 1))]
                dice.shuffle(bag)
            self._busy += 1
            try:
                kind = bag.pop()
                where = dice.choice(self._places_of("machine")) if kind.lane == "people" else place
                await self._one(Scene(self.room, kind, where, dice))
            finally:
                self._busy -= 1

    async def _one(self, scene: Scene) -> None:
        """One fault; what goes wrong with the fault itself is on the table too."""
        tally, name = self.room.tally, scene.kind.name
        began = time.monotonic()
        try:
            await scene.kind.act(scene)
        except Missed as missed:
            self.room.tally.rows[name].missed += 1
            self.room.tell(f"missed: {missed}")
        except (TimeoutError, RuntimeError, AssertionError) as wrong:
            tally.wrong(name, "left", f"{scene.place.name}: {wrong}")
            self.room.tell(f"WRONG {tally.found[-1]}")
        took = time.monotonic() - began
        tally.rows[name].seconds += took
        self._last = name
        self.room.tell(f"{tally.injected:>4} {name} ({scene.place.name}) {took:.0f} s")

    # ── the world in between ────────────────────────────────────────────────────────────────

    async def _pauses(self) -> None:
        """Now and then everything comes to rest, and the world is looked at."""
        while not self._enough or self._busy:
            await asyncio.sleep(0.5)
            if self.room.tally.injected >= self._look_at:
                self._look_at += LOOK_AROUND_EVERY
                self._gate.clear()
                await eventually(lambda: not self._busy, "every lane rests", LANE_LIMIT_S)
                await self._look_around()
                self._open()

    def _open(self) -> None:
        self.room.filling = True
        self._gate.set()

    async def _look_around(self) -> None:
        began = time.monotonic()
        await self.room.drain()
        await self.room.look_around(self._last)
        self.room.tell(f"looked around in {time.monotonic() - began:.0f} s")
