"""What happens to our own processes, to the database and to the provider meanwhile."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial

from tests.chaos.campaign_stack import aside
from tests.chaos.cloud.campaign_stack import CloudRoom
from tests.chaos.cloud.database import Name
from tests.chaos.cloud.markets.market import CREATE, LOST, PREEMPTED, RELEASE, UNREACHABLE
from tests.chaos.cloud.points import POINTS
from tests.chaos.cloud.round import LOOK_S, Round
from tests.chaos.cloud.tally import Tally

WHOLE_S = 120.0
UNREACHABLE_S = 12.0
"""Ten minutes, fifty times faster: as many attempts fail as the provider's silence lasts."""
LOCKED_S = 12.0
RESTARTED_S = 1.0
PAUSED_S = 3.0
EVERY_CREATE, EVERY_RELEASE = 4, 3
ROUND_LIMIT_S = 400.0
WHERE_ALL_IS_FORGOTTEN = ("creating", "running", "releasing")
WHILE_IT_RUNS = ("waiting-for-ssh", "connecting", "inspecting", "preparing", "placed", "staging",
                 "running", "uploading")  # fmt: skip


@dataclass
class Scene:
    """One kind of fault in one round. points: at which of them it comes; times: how often at each.

    A program that others of the same round end too is held while it is down.
    """

    room: CloudRoom
    round: Round
    kind: str
    tally: Tally
    points: tuple[str, ...] = tuple(POINTS)
    times: int = 1
    machine: str = ""
    """Name of the machine that has come to the last point."""

    def inject(self, count: int = 1) -> None:
        self.tally.rows[self.kind].faults += count

    async def as_they_come(self, *points: str, times: int = 0) -> AsyncIterator[str]:
        """Each point so often, as soon as a machine has come to it since the one before.

        The rarest so far is the first. Ends with the round, and tells those that never came.
        """
        left = Counter(dict.fromkeys(points or self.points, times or self.times))
        whole, stale = Counter(left), set[tuple[str, str]]()
        deadline = time.monotonic() + ROUND_LIMIT_S
        while left.total() and not self.round.is_over() and time.monotonic() < deadline:
            here = self._here()
            stale &= here
            fresh = dict(here - stale)
            rarest = [point for point, times_left in left.most_common() if point in fresh]
            if not rarest or not left[found := rarest[0]]:
                await asyncio.sleep(LOOK_S)
                continue
            left[found] -= 1
            self.machine = fresh[found]
            yield found
            stale = self._here()
        missed = (point for point in left if left[point] == whole[point])
        self.tally.missed += [f"{self.kind}: {point}" for point in missed]

    def _here(self) -> set[tuple[str, str]]:
        """The points at which machines are, with the machines' names."""
        lives = self.round.life()
        return {(name, at.machine) for at in lives for name, is_at in POINTS.items() if is_at(at)}

    async def whole(self, pids: dict[str, int], served: dict[str, int]) -> None:
        """Until each of them is another process, answers, and serves once more than then."""
        deadline = time.monotonic() + WHOLE_S
        stack = self.room.stack

        def is_anew() -> bool:
            started = all(stack.pid(name) not in (None, pid) for name, pid in pids.items())
            return started and stack.serves_anew(served) and stack.answer(pids)

        while not await aside(is_anew):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.kind}: the stack is not ready\n{stack.logs(8)}")
            await asyncio.sleep(0.05)


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
        async for _ in scene.as_they_come():
            async with scene.room.held(names):
                served = {name: stack.served(name) for name in names}
                sent = {name: stack.send(name, number) for name in names}
                pids = {name: pid for name, pid in sent.items() if pid is not None}
                lacking = set(names) - pids.keys()
                assert not lacking, f"{scene.kind}: {lacking} does not run"
                scene.inject()
                await scene.whole(pids, served)

    return act


for _verb, _number in (("kill", signal.SIGKILL), ("term", signal.SIGTERM)):
    for _names in (("worker",), ("api",), ("worker", "api"), ("temporal",)):
        kind(f"{_verb}-{'-and-'.join(_names)}")(ended_by(_number, *_names))


@kind("engine-forgets")
async def engine_forgets(scene: Scene) -> None:
    """Temporal is killed and its files are deleted, while leases are created, used and released."""
    stack = scene.room.stack
    async for _ in scene.as_they_come(*WHERE_ALL_IS_FORGOTTEN, times=1):
        async with scene.room.held(("temporal",)):
            pid = stack.pid("temporal")
            assert pid is not None, f"{scene.kind}: Temporal does not run"
            scene.inject()
            await aside(stack.lose_temporal)
            await scene.whole({"temporal": pid}, {})


@kind(PREEMPTED)
async def preempted(scene: Scene) -> None:
    """The provider takes back a machine that runs; its job has another one, and begins again."""
    async for _ in scene.as_they_come(*WHILE_IT_RUNS, times=1):
        if await aside(scene.room.market.lose, scene.machine):
            scene.round.lost += 1
            scene.inject()


@contextmanager
def lost_replies(room: CloudRoom, tally: Tally, verb: str, every: int) -> Iterator[None]:
    """What was asked is done, and its answer is lost, so often; each is a fault of its own kind."""
    with room.market.losing_replies(verb, every) as losses:
        yield
    tally.rows[LOST[verb]].faults += losses.struck


@contextmanager
def storm(room: CloudRoom, tally: Tally) -> Iterator[None]:
    """Replies of creations and of releases are lost all the while."""
    with (
        lost_replies(room, tally, CREATE, EVERY_CREATE),
        lost_replies(room, tally, RELEASE, EVERY_RELEASE),
    ):
        yield


@kind(LOST[CREATE])
async def create_reply_lost(scene: Scene) -> None:
    with lost_replies(scene.room, scene.tally, CREATE, EVERY_CREATE):
        await scene.round.settle(ROUND_LIMIT_S)


@kind(LOST[RELEASE])
async def release_reply_lost(scene: Scene) -> None:
    with lost_replies(scene.room, scene.tally, RELEASE, EVERY_RELEASE):
        await scene.round.settle(ROUND_LIMIT_S)


@kind(UNREACHABLE)
async def provider_unreachable(scene: Scene) -> None:
    """Nothing of it answers, at three points of the round; each call that is cut is a fault."""
    market = scene.room.market
    async for _ in scene.as_they_come("creating", "preparing", "releasing", times=1):
        before = market.turned_away
        market.be_away(UNREACHABLE_S)
        await asyncio.sleep(UNREACHABLE_S)
        scene.inject(market.turned_away - before)


@kind("database-locked")
async def database_locked(scene: Scene) -> None:
    """Another program holds the database for writing, longer than anybody waits for it."""
    path = scene.room.stack.home / "baseload.db"
    async for _ in scene.as_they_come("creating", "releasing", times=1):
        with closing(
            sqlite3.connect(path, timeout=60, isolation_level=None, check_same_thread=False)
        ) as other:
            await aside(other.execute, "BEGIN IMMEDIATE")
            scene.inject()
            await asyncio.sleep(LOCKED_S)
            other.execute("ROLLBACK")


@kind("database-restart")
async def database_restart(scene: Scene) -> None:
    """PostgreSQL is restarted under everybody, in turn with an end to what goes on and without."""
    server, killed = scene.room.server, False
    assert server is not None, "a file cannot be restarted"
    async for _ in scene.as_they_come():
        killed = not killed
        scene.inject()
        await aside(partial(server.restart, killed=killed))
        await asyncio.sleep(RESTARTED_S)


@kind("two-workers")
async def two_workers(scene: Scene) -> None:
    """A second worker takes over what the first, standing still, has begun, and both go on."""
    stack = scene.room.stack
    with stack.second_worker():
        async for _ in scene.as_they_come():
            async with scene.room.held(("worker",)):
                stack.send("worker", signal.SIGSTOP)
                scene.inject()
                try:
                    await asyncio.sleep(PAUSED_S)
                finally:
                    stack.send("worker", signal.SIGCONT)


ONLY_ON: dict[str, Name] = {"database-locked": "sqlite", "database-restart": "postgresql"}
"""The database that a kind takes, where it is not any."""
