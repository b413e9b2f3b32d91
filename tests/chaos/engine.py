"""What happens to Temporal's own state: it is lost, it is old, or it is that of another server."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path

from temporalio.client import Client

from tests.chaos.campaign_stack import aside
from tests.chaos.control_plane import in_some_state, work_again
from tests.chaos.kinds import Scene, kind

ADOPTED_S = 300.0
"""Until all jobs that lived through it have ended; their machines meet other faults meanwhile."""
AGE_S = 40.0
"""How old the files are that are restored: as long as several jobs take."""
ENDS = ("", "-wal", "-shm")


async def adopted(scene: Scene) -> None:
    """The stack is whole, and every job that lived through it has come to its end."""
    room = scene.room
    there = room.alive()
    began = time.monotonic()
    await work_again(scene)
    await scene.until(lambda: all(job.has_ended for job in there), "jobs go on", ADOPTED_S)
    room.tell(f"{scene.kind.name}: {len(there)} jobs ended {time.monotonic() - began:.0f} s later")


@kind("ours")
async def the_engine_forgets_everything(scene: Scene) -> None:
    """Temporal is killed and its files are deleted, while jobs wait, run and upload."""
    await in_some_state(scene)
    scene.inject(scene.room.alive())
    await aside(scene.room.stack.lose_temporal)
    await adopted(scene)


@kind("ours")
async def restored_from_an_hour_ago(scene: Scene) -> None:
    """Temporal's files are copied, and put back when much has happened since."""
    stack = scene.room.stack
    file, old = stack.home / "temporal" / "temporal.db", stack.home / "temporal.old"
    await in_some_state(scene)
    await aside(_copy, file, old)
    await asyncio.sleep(AGE_S)
    await in_some_state(scene)
    scene.inject(scene.room.alive())
    with stack.left_alone():
        await killed(scene)
        await aside(_replace, file, old)
    await adopted(scene)


@kind("ours")
async def moved_to_another_server(scene: Scene) -> None:
    """The settings name a Temporal that has never heard of anything, in a namespace of its own."""
    room = scene.room
    await in_some_state(scene)
    scene.inject(room.alive())
    namespace = f"moved-{scene.dice.randrange(10**6)}"
    await aside(room.stack.move_temporal, namespace)
    await aside(room.stack.wait_until_ready, 120.0)
    room.temporal = await Client.connect(room.stack.temporal_address, namespace=namespace)
    await adopted(scene)


async def killed(scene: Scene) -> None:
    """Temporal has ended, and its runner starts it again only later."""
    stack = scene.room.stack
    stack.send("temporal", signal.SIGKILL)
    await scene.until(lambda: stack.pid("temporal") is None, "temporal has ended", 30)


def _replace(file: Path, old: Path) -> None:
    """Put a database in the place of another one, and of its log."""
    for end in ENDS:
        file.with_name(file.name + end).unlink(missing_ok=True)
    old.rename(file)


def _copy(file: Path, to: Path) -> None:
    """A whole copy of a database that is written to meanwhile."""
    to.unlink(missing_ok=True)
    with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(to)) as target:
        source.backup(target)
