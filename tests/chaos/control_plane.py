"""What happens to our own processes, their disk and their database."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sqlite3
import time
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress

from tests.chaos.campaign_stack import aside
from tests.chaos.kinds import Scene, kind
from tests.chaos.stack import PROGRAMS

STATES = ("new", "waiting_for_resources", "provisioning", "waiting_for_data", "running",
          "uploading")  # fmt: skip
WHOLE_S = 120.0
JOBS_BETWEEN = 3
PROGRESS_S = 40.0
LOCKED_S = 20.0
FULL_S = 15.0
PAUSED_S = 60.0
STALE_S = 6.0
AWAY_S = 600.0


async def in_some_state(scene: Scene) -> None:
    """Wait a little until some job is in a state that the dice choose."""
    wanted = scene.dice.choice(STATES)
    for _ in range(60):
        if any(job.status == wanted for job in scene.room.alive()):
            return
        await asyncio.sleep(0.05)


async def work_again(scene: Scene) -> None:
    """The stack is whole again, and jobs come to their end; without that, nothing was tried."""
    room = scene.room
    deadline = time.monotonic() + WHOLE_S
    while not await aside(room.stack.is_ready):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{scene.kind.name}: the stack is not ready\n{room.stack.logs(8)}")
        await asyncio.sleep(0.5)
    before = room.ended
    with suppress(TimeoutError):
        await scene.until(lambda: room.ended >= before + JOBS_BETWEEN, "jobs end", PROGRESS_S)


def ended_by(number: int, *names: str) -> Callable[[Scene], Awaitable[None]]:
    """Programs get a signal, all at once."""

    async def act(scene: Scene) -> None:
        stack = scene.room.stack
        await in_some_state(scene)
        scene.inject(scene.room.alive())
        pids = {name: stack.send(name, number) for name in names}
        await scene.until(
            lambda: all(stack.pid(name) not in (None, pid) for name, pid in pids.items()),
            f"{', '.join(names)} run again",
        )
        await work_again(scene)

    return act


for _name, _often in (("worker", 3), ("api", 2), ("planning", 2), ("temporal", 1)):
    kind("ours", _often, f"kill-{_name}")(ended_by(signal.SIGKILL, _name))
    kind("ours", _often, f"term-{_name}")(ended_by(signal.SIGTERM, _name))
kind("ours", 1, "kill-all")(ended_by(signal.SIGKILL, *PROGRAMS))
kind("ours", 1, "term-all")(ended_by(signal.SIGTERM, *PROGRAMS))


@kind("ours", 0)
async def away_for_ten_minutes(scene: Scene) -> None:
    """All of it is killed, and nobody starts it again for long: commands end unseen meanwhile."""
    stack = scene.room.stack
    await in_some_state(scene)
    scene.inject(scene.room.alive())
    with stack.left_alone():
        for name in PROGRAMS:
            stack.send(name, signal.SIGKILL)
        await asyncio.sleep(AWAY_S)
        for job in scene.room.alive():
            job.submitted_s += AWAY_S  # None of it counts as being stuck.
    await work_again(scene)


@kind("ours")
async def pause_worker(scene: Scene) -> None:
    """A worker stands still while another takes over its work, and then goes on, a stale writer."""
    stack = scene.room.stack
    with stack.second_worker():
        await in_some_state(scene)
        scene.inject(scene.room.alive())
        pid = stack.send("worker", signal.SIGSTOP)
        await asyncio.sleep(PAUSED_S)
        assert stack.send("worker", signal.SIGCONT) == pid
        await asyncio.sleep(STALE_S)
    await work_again(scene)


@kind("ours")
async def database_locked(scene: Scene) -> None:
    """Another program holds the database for writing, longer than anybody waits for it."""
    await in_some_state(scene)
    path = scene.room.stack.home / "baseload.db"
    with closing(
        sqlite3.connect(path, timeout=60, isolation_level=None, check_same_thread=False)
    ) as other:
        await aside(other.execute, "BEGIN IMMEDIATE")
        scene.inject(scene.room.alive())
        await asyncio.sleep(LOCKED_S)
        other.execute("ROLLBACK")
    await work_again(scene)


@kind("ours")
async def our_disk_full(scene: Scene) -> None:
    """Not a byte is left for database, Temporal, logs and outputs; then there is room again."""
    home = scene.room.stack.home
    filler = home / "filler"
    await in_some_state(scene)
    scene.inject(scene.room.alive())
    try:
        for _ in range(int(FULL_S)):
            with filler.open("ab") as file:
                free = shutil.disk_usage(home).free
                await aside(_fill, file.fileno(), free)
            await asyncio.sleep(1)
    finally:
        filler.unlink()
    await work_again(scene)


def _fill(descriptor: int, free: int) -> None:
    """Take this much, or as much of it as there is."""
    at = os.fstat(descriptor).st_size
    while free > 0:
        try:
            os.posix_fallocate(descriptor, at, free)
        except OSError:
            free //= 2
        else:
            at += free
            free = 0


@kind("ours")
async def second_runner(scene: Scene) -> None:
    """The runner is started once more by mistake: it leaves, and nobody notices."""
    stack = scene.room.stack
    before = [stack.pid(name) for name in PROGRAMS]
    scene.inject(scene.room.alive())
    said = await aside(stack.second_runner)
    if "another runner is running" not in said or before != [stack.pid(one) for one in PROGRAMS]:
        scene.room.tally.wrong(scene.kind.name, "doubled", f"the second runner said {said!r}")
