"""The clock of a device is wrong when it boots, and jumps while a deployment is under way."""

from __future__ import annotations

import random
import shutil
import struct
import subprocess
from functools import partial

from tests.chaos.edge.faults import add
from tests.chaos.edge.moments import last_number, until_phase
from tests.chaos.edge.stage import DEVICES, Edge
from tests.lab.machine import Machine

LIBRARY, SHIFT = "usr/local/lib/labclock.so", "etc/lab-clock"
SHIFTS = {"years-back": -5 * 365 * 86_400, "an-hour-ahead": 3600}
MODEL_MIB = 4
CODE = """
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timex.h>
#include <time.h>
#include <unistd.h>
static const volatile long long *shift;
__attribute__((constructor)) static void find_shift(void) {
  int file = open("/etc/lab-clock", O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  void *found = mmap(0, sizeof *shift, PROT_READ, MAP_SHARED, file, 0);
  if (found != MAP_FAILED) shift = found;
  close(file);
}
int clock_gettime(clockid_t id, struct timespec *now) {
  int failed = syscall(SYS_clock_gettime, id, now);
  if (!failed && shift && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
    now->tv_sec += *shift;
  return failed;
}
int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  struct timespec found;
  if (clock_gettime(CLOCK_REALTIME, &found)) return -1;
  now->tv_sec = found.tv_sec;
  now->tv_usec = found.tv_nsec / 1000;
  return 0;
}
time_t time(time_t *at) {
  struct timespec found;
  clock_gettime(CLOCK_REALTIME, &found);
  if (at) *at = found.tv_sec;
  return found.tv_sec;
}
/* The clock of the host is everybody's: nobody in a machine sets it. */
static int refused(void) { errno = EPERM; return -1; }
int clock_settime(clockid_t id, const struct timespec *now) { return refused(); }
int settimeofday(const struct timeval *now, const struct timezone *zone) { return refused(); }
int adjtimex(struct timex *how) { return refused(); }
int clock_adjtime(clockid_t id, struct timex *how) { return refused(); }
"""


def build_in(machine: Machine) -> None:
    """Let all that starts on a machine from now on have a clock that can be set."""
    set_clock(machine, 0)
    compiler = shutil.which("cc")
    if compiler is None:
        raise RuntimeError("clock: there is no C compiler")
    command = [compiler, "-shared", "-fPIC", "-x", "c", "-", "-o", str(machine.disk / LIBRARY)]
    subprocess.run(command, input=CODE, text=True, check=True)
    (machine.disk / "etc/ld.so.preload").write_text(f"/{LIBRARY}\n")


def set_clock(machine: Machine, shift_s: int) -> None:
    """Set the clock, also of what runs already: so many seconds from the right time."""
    path = machine.disk / SHIFT
    with path.open("r+b" if path.exists() else "w+b") as file:
        file.write(struct.pack("q", shift_s))


def take_out(machine: Machine) -> None:
    (machine.disk / "etc/ld.so.preload").unlink(missing_ok=True)


def wrong_at_boot(shift: str, stage: Edge, name: str, dice: random.Random) -> None:
    """It runs what it ran, follows a deployment, and another one when the clock is right again."""
    device = dice.choice(sorted(DEVICES))
    machine = stage.machine(device)
    build_in(machine)
    try:
        set_clock(machine, SHIFTS[shift])
        machine.power_cut()
        machine.boot()
        stage.injected(name)
        _must_be_wrong(machine, SHIFTS[shift])
        stage.reach(device)
        stage.look_around(name)
        stage.ended(stage.begin(device, model={"id": stage.model(MODEL_MIB)}))
        stage.look_around(name)
        set_clock(machine, 0)
        stage.ended(stage.begin(device))
    finally:
        take_out(machine)


def jumps(shift: str, stage: Edge, name: str, dice: random.Random) -> None:
    """The clock is set while a revision is being checked, for its keeper too, and back again."""
    device = dice.choice(sorted(DEVICES))
    machine = stage.machine(device)
    build_in(machine)
    try:
        machine.power_cut()
        machine.boot()
        stage.reach(device)
        for shift_s in (SHIFTS[shift], 0):
            last = last_number(stage, device)
            deployment = stage.begin(device, health={"up_s": 5, "limit_s": 60})
            until_phase(stage, device, last, "checking")
            set_clock(machine, shift_s)
            stage.injected(name)
            stage.ended(deployment)
            stage.look_around(name)
    finally:
        take_out(machine)


def _must_be_wrong(machine: Machine, shift_s: int) -> None:
    """Raises: AssertionError, when the machine has the right time."""
    there, here = (int(each) for each in (machine.run("date", "+%s"), _now()))
    if abs(there - here - shift_s) > 60:
        raise AssertionError(f"{machine.name}: its clock is {there - here} s from ours")


def _now() -> str:
    return subprocess.run(["date", "+%s"], capture_output=True, text=True, check=True).stdout


for each in SHIFTS:
    add(f"clock-{each}-at-boot", partial(wrong_at_boot, each))
    add(f"clock-{each}-while-checking", partial(jumps, each))
