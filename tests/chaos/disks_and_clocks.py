"""What happens to a machine's disk and to its clock."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.chaos.campaign_stack import SMALL_DISK_MIB, Place, aside
from tests.chaos.job import Script, counting
from tests.chaos.kinds import Missed, Scene, kind
from tests.chaos.machines import jobs_end

ROOT = "/var/lib/baseload"
LEFT_TO_STAGE_BYTES = 16 << 20
LEFT_FOR_OUTPUT_BYTES = 80 << 20
LEFT_TO_RUN_BYTES = 4 << 20
SHIFTED_S = 3600
SHIFTED_CLOCK = """
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t id, struct timespec *now) {
  int failed = syscall(SYS_clock_gettime, id, now);
  if (!failed && id == CLOCK_REALTIME) now->tv_sec += SHIFT;
  return failed;
}
int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  struct timespec found;
  if (clock_gettime(CLOCK_REALTIME, &found)) return -1;
  now->tv_sec = found.tv_sec;
  now->tv_usec = found.tv_nsec / 1000;
  return 0;
}
time_t time(time_t *told) {
  struct timespec found;
  clock_gettime(CLOCK_REALTIME, &found);
  if (told) *told = found.tv_sec;
  return found.tv_sec;
}
"""


@asynccontextmanager
async def filled(place: Place, left_bytes: int) -> AsyncIterator[None]:
    """The small disk of a place has so much room, until this is over."""
    used = SMALL_DISK_MIB * 2**20 - int(place.machine.run("stat", "-f", "-c", "%a", ROOT)) * 4096
    resize(place, f"{(used + left_bytes) >> 10}k")
    try:
        yield
    finally:
        resize(place, f"{SMALL_DISK_MIB}m")


def resize(place: Place, size: str) -> None:
    place.machine.run("mount", "-o", f"remount,size={size}", ROOT)


@kind("small", 2)
async def node_disk_full_staging(scene: Scene) -> None:
    """There is no room to begin: the job fails, and says so, and nothing has run."""
    place = scene.place
    async with place.filling, filled(place, LEFT_TO_STAGE_BYTES):
        jobs = [*scene.room.at(place), await scene.room.submit(place, counting(3, 0.3))]
        with scene.touching(jobs):
            for job in jobs:
                job.may("failed")
            await jobs_end(scene, jobs)
            scene.expect_reason(jobs[-1], "room")


@kind("small", 2)
async def node_disk_full_running(scene: Scene) -> None:
    """It becomes full under a command: this is ended, and all that it printed is there."""
    place = scene.place
    await scene.a_job(90, "running")
    async with place.filling:
        jobs = scene.room.at(place)
        with scene.touching(jobs):
            for job in jobs:
                job.may("failed")
            async with filled(place, LEFT_TO_RUN_BYTES):
                await asyncio.sleep(8)
            await jobs_end(scene, jobs)


@kind("small", 2)
async def node_disk_full_output(scene: Scene) -> None:
    """A command writes more output than there is room for, and fails with what it has said."""
    place = scene.place
    room_left = "$(df --output=avail -k . | tail -1)"
    body = (
        f"echo begun; while [ {room_left} -gt 200000 ]; do sleep 0.1; done; "
        'head -c 100000000 /dev/zero > "$BASELOAD_OUTPUT/big" || exit 3'
    )
    async with place.filling:
        job = await scene.room.submit(place, Script(body, b"begun\n"))
        job.says_more = True  # head, about the disk
        await scene.until(lambda: job.is_running or job.has_ended, "it runs", 300)
        jobs = scene.room.at(place)
        with scene.touching(jobs):
            for each in jobs:
                each.may("failed")
            async with filled(place, LEFT_FOR_OUTPUT_BYTES):
                await scene.until(lambda: job.has_ended, "it has ended", 300)
            await jobs_end(scene, jobs)
            scene.expect_reason(job, "full")


@kind("machine")
async def clock_wrong(scene: Scene) -> None:
    """An hour ahead or behind, for all that starts meanwhile on the machine."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise Missed("clock-wrong: there is no C compiler")
    machine, shift = scene.place.machine, scene.dice.choice((SHIFTED_S, -SHIFTED_S))
    library = machine.disk / "usr/local/lib/labclock.so"
    library.unlink(missing_ok=True)
    command = [compiler, "-shared", "-fPIC", f"-DSHIFT={shift}", "-x", "c", "-", "-o"]
    await aside(
        lambda: subprocess.run([*command, library], input=SHIFTED_CLOCK, text=True, check=True)
    )
    preload = machine.disk / "etc/ld.so.preload"
    preload.write_text("/usr/local/lib/labclock.so\n")
    try:
        job = await scene.room.submit(scene.place, counting(8, 0.3))
        jobs = scene.room.at(scene.place)
        with scene.touching(jobs):
            await aside(lambda: machine.restart_sshd(drop_sessions=True))
            await jobs_end(scene, [job, *jobs])
    finally:
        preload.unlink()
