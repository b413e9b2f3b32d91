"""What happens to our own processes and to the provider while machines are made and ended."""

from __future__ import annotations

import asyncio
import random
import signal
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

from tests.doubles.gcp.faults import Fault, FaultKind
from tests.room.cloud.points import POINTS
from tests.room.cloud.room import CloudRoom
from tests.room.cloud.round import LOOK_S, Round
from tests.room.cloud.tally import Tally
from tests.room.room import aside

POINT_LIMIT_S = 60.0
WHOLE_S = 120.0
UNREACHABLE_S = 12.0
"""Ten minutes, fifty times faster: as many attempts fail as the provider's silence lasts."""
LOCKED_S = 12.0
PAUSED_S = 3.0
CREATE, RELEASE = "compute.instances.insert", "compute.instances.delete"
EVERY_CREATE, EVERY_RELEASE = 4, 3
LOST = {CREATE: "create-reply-lost", RELEASE: "release-reply-lost"}
ROUND_LIMIT_S = 400.0


@dataclass
class Scene:
    """One kind of fault in one round. points: at which of them it comes."""

    room: CloudRoom
    round: Round
    kind: str
    tally: Tally
    dice: random.Random
    points: tuple[str, ...] = tuple(POINTS)

    def inject(self, count: int = 1) -> None:
        self.tally.rows[self.kind].faults += count

    async def comes(self, point: str) -> bool:
        """Until some machine is at that point. False: it did not come."""
        deadline = time.monotonic() + POINT_LIMIT_S
        while not any(POINTS[point](life) for life in self.round.life()):
            if self.round.has_all() or time.monotonic() > deadline:
                self.tally.missed.append(f"{self.kind}: {point}")
                return False
            await asyncio.sleep(LOOK_S)
        return True

    async def whole(self, pids: dict[str, int], served: dict[str, int]) -> None:
        """Until every program runs, these as other processes, each serving once more than then."""
        deadline = time.monotonic() + WHOLE_S
        stack = self.room.stack

        def is_anew() -> bool:
            started = all(stack.pid(name) not in (None, pid) for name, pid in pids.items())
            return started and stack.serves_anew(served)

        while not is_anew() or not await aside(stack.is_ready):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.kind}: the stack is not ready\n{stack.logs(8)}")
            await asyncio.sleep(0.1)


Act = Callable[[Scene], Awaitable[None]]
KINDS: dict[str, Act] = {}


def kind(name: str) -> Callable[[Act], Act]:
    """Put a fault onto the list."""

    def put(act: Act) -> Act:
        KINDS[name] = act
        return act

    return put


def ended_by(number: int, *names: str) -> Act:
    """At each point these programs get a signal, all at once."""

    async def act(scene: Scene) -> None:
        stack = scene.room.stack
        for point in scene.points:
            if not await scene.comes(point):
                continue
            served = {name: stack.served(name) for name in names}
            sent = {name: stack.send(name, number) for name in names}
            pids = {name: pid for name, pid in sent.items() if pid is not None}
            assert len(pids) == len(names), f"{scene.kind}: runs none of {set(names) - pids.keys()}"
            scene.inject()
            await scene.whole(pids, served)

    return act


for _verb, _number in (("kill", signal.SIGKILL), ("term", signal.SIGTERM)):
    for _names in (("worker",), ("api",), ("worker", "api"), ("temporal",)):
        kind(f"{_verb}-{'-and-'.join(_names)}")(ended_by(_number, *_names))


@contextmanager
def lost_replies(room: CloudRoom, tally: Tally, method: str, every: int) -> Iterator[None]:
    """What was asked is done, and its answer is lost, so often; each is a fault of its own kind."""
    fault = Fault(FaultKind.LOST_REPLY, method, every=every, times=None)
    with room.cloud.lock:
        room.cloud.faults.add(fault)
    try:
        yield
    finally:
        with room.cloud.lock:
            room.cloud.faults.scripted.remove(fault)
        tally.rows[LOST[method]].faults += fault.struck


@contextmanager
def storm(room: CloudRoom, tally: Tally) -> Iterator[None]:
    """Replies of creations and of releases are lost all the while."""
    with (
        lost_replies(room, tally, CREATE, EVERY_CREATE),
        lost_replies(room, tally, RELEASE, EVERY_RELEASE),
    ):
        yield


@kind("create-reply-lost")
async def create_reply_lost(scene: Scene) -> None:
    with lost_replies(scene.room, scene.tally, CREATE, EVERY_CREATE):
        await scene.round.settle(ROUND_LIMIT_S)


@kind("release-reply-lost")
async def release_reply_lost(scene: Scene) -> None:
    with lost_replies(scene.room, scene.tally, RELEASE, EVERY_RELEASE):
        await scene.round.settle(ROUND_LIMIT_S)


@kind("provider-unreachable")
async def provider_unreachable(scene: Scene) -> None:
    """Nothing of it answers, at three points of the round."""
    for point in ("creating", "preparing", "releasing"):
        if await scene.comes(point):
            with scene.room.cloud.lock:
                scene.room.cloud.faults.unreachable_for(UNREACHABLE_S)
            scene.inject()
            await asyncio.sleep(UNREACHABLE_S)


@kind("database-locked")
async def database_locked(scene: Scene) -> None:
    """Another program holds the database for writing, longer than anybody waits for it."""
    path = scene.room.stack.home / "baseload.db"
    for point in ("creating", "releasing"):
        if not await scene.comes(point):
            continue
        with closing(
            sqlite3.connect(path, timeout=60, isolation_level=None, check_same_thread=False)
        ) as other:
            await aside(other.execute, "BEGIN IMMEDIATE")
            scene.inject()
            await asyncio.sleep(LOCKED_S)
            other.execute("ROLLBACK")


@kind("two-workers")
async def two_workers(scene: Scene) -> None:
    """A second worker takes over what the first, standing still, has begun, and both go on."""
    stack = scene.room.stack
    with stack.second_worker():
        for point in scene.points:
            if await scene.comes(point):
                stack.send("worker", signal.SIGSTOP)
                scene.inject()
                await asyncio.sleep(PAUSED_S)
                stack.send("worker", signal.SIGCONT)
