"""The supervisor of a run: starts its command, measures it, and ends its whole process tree.

started → (running, with a beat each 5 s) → ending → no descendant is left → exit.json is written

The supervisor holds the run's lock until it ends, so a run never has two supervisors.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
from typing import Any

from ..errors import RefusedError
from ..folders import Folders, Run, take_lock
from ..host import (
    cgroups,
    containers,
    disk,
    job_accounts,
    network_wall,
    prctl,
    process_tree,
    processes,
    spawn,
)
from ..loading import load
from . import exits
from .log import Log

BEAT_S = 5.0
LEAST_DISK_USE_S = 5.0
MOST_DISK_USE_S = 60.0
DISK_USE_SHARE = 200.0
SOON = 20.0
LEFTOVER_GRACE_S = 5.0
KILL_AGAIN_S = 0.05
NAME = "supervise"
"""By which `ps` and `pgrep` tell a supervisor from the call that has started it."""
OOM_SCORE = "-900"
"""When memory runs out, the kernel spares supervisors, without which no run can be ended."""


def supervise(root: str, run_id: str) -> None:
    """Run the command of a staged run to its end; silent when another supervisor does or did so."""
    run = Folders(root).run(run_id)
    lock = take_lock(run.at("lock"), wait=False)
    if lock is None or run.has("process.json") or run.has("exit.json"):
        return
    spec = run.read("spec.json")
    if spec is not None:
        Supervisor(run, spec).main()


def end_rest(run: Run, spec: dict[str, Any]) -> list[int]:
    """KILL what is in the run's cgroup or of its account; return the processes that stay."""
    return cgroups.end(run) + job_accounts.end_processes(run, spec.get("user"))


class Supervisor:
    """The supervisor of one run, from its start to its exit.json."""

    def __init__(self, run: Run, spec: dict[str, Any]) -> None:
        self.run = run
        self.spec = spec
        self.log: Log
        self.pid = 0
        self.status: int | None = None
        self.started_s = 0.0
        self.ended_s = 0.0
        self.reason: str | None = None
        self.message = ""
        self.kill_at: float | None = None
        self.kill_again_s = KILL_AGAIN_S
        self.asked = False
        self.wake_fd = -1
        self.due = {"beat": 0.0, "disk": 0.0}
        self.process: dict[str, Any] = {}
        self.disk_use = disk.DiskUse(run, spec)
        self.measuring_s = 0.0
        """How long the present measurement of the disk use has taken so far."""
        self.measured_s = 0.0
        """How long the last one took."""
        self.wall: network_wall.Upkeep
        self.publication: Any = None
        """What publishes the run's hostname; None: it has none."""
        self.confinement: Any = None
        """What confines the run of a federated job; None: it is of none."""

    def main(self) -> None:
        """Start the command, supervise it until its process tree has ended, and write its exit."""
        self._listen()
        with contextlib.suppress(OSError), open("/proc/self/comm", "w") as file:
            file.write(NAME)
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
            file.write(OOM_SCORE)  # Only some containers do not let root do this.
        prctl.adopt_orphans()
        try:
            self._start()
        except RefusedError as refused:
            if not self.process:
                raise
            self._report_unstarted(refused)
            return
        while self._reap():
            self._consider_ending()
            self._pump()
        self._report()

    def _listen(self) -> None:
        self.wake_fd, wake = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(self.wake_fd, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: setattr(self, "asked", True))
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def _start(self) -> None:
        # Again, because the machine may have restarted since the staging: none starts without it.
        network_wall.keep(self.run.folders, self.spec.get("user"))
        self.wall = network_wall.Upkeep(self.run.folders, self.spec.get("user"))
        disk.reserve(self.run)
        mine = processes.find(os.getpid())
        self.process = {
            "pid": None,
            "start_ticks": None,
            "supervisor_pid": os.getpid(),
            "supervisor_start_ticks": mine.start_ticks if mine else 0,
            "started_at": processes.now(),
            "boot_id": processes.boot_id(),
            "runtime": self.spec.get("runtime", "process"),
        }
        # Written before the start, so that a supervisor that dies in between counts as started.
        self.run.write("process.json", self.process)
        if self.spec.get("federated"):
            self.confinement = load("federated.confinement:Confinement")(self.run, self.spec)
        self.log = self._open_log()
        self.started_s = processes.monotonic_s()
        self.pid = spawn.spawn(self.run, self.spec, self.log.inlet, self.confinement)
        if self.confinement is not None:
            self.confinement.started()
        self.log.begin()
        if self.spec.get("hostname"):
            self.publication = load("mdns.publication:Publication")(self.run, self.spec)
            self.publication.keep()
        first = processes.find(self.pid)
        self.process.update(pid=self.pid, start_ticks=first.start_ticks if first else 0)
        self.run.write("process.json", self.process)

    def _open_log(self) -> Log:
        return Log(self.run, self.spec)

    def _elapsed_s(self) -> float:
        return (self.ended_s or processes.monotonic_s()) - self.started_s

    def _reap(self) -> bool:
        """Collect ended children; return whether this process still has descendants."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.pid:
                self.status = status
                self.ended_s = processes.monotonic_s()
                if self.confinement is not None:
                    self.confinement.end()
            elif self.publication is not None:
                self.publication.reaped(pid, status)

    def _pump(self) -> None:
        """Wait for the next event or deadline; write the beat and check the disk when due."""
        next_at = min(self.due.values())
        if self.kill_at is not None:
            next_at = min(next_at, self.kill_at)
        limit_s = max(0.0, next_at - processes.monotonic_s())
        ready, _, _ = select.select([self.wake_fd], [], [], limit_s)
        if ready:
            os.read(self.wake_fd, 4096)
        now = processes.monotonic_s()
        if now >= self.due["beat"]:
            self.due["beat"] = now + BEAT_S
            self._beat()
        if now >= self.due["disk"]:
            self._measure_disk_use()

    def _beat(self) -> None:
        if self.kill_at is None:
            with contextlib.suppress(OSError):  # No process can be started just now.
                self.wall.keep()
        if self.publication is not None:
            self.publication.keep()
        with contextlib.suppress(OSError):  # A full disk: reported below; the last beat stays.
            self.run.write("beat.json", {"elapsed_s": self._elapsed_s()}, durable=False)
        if self.spec.get("is_idle_workload") and self.reason is None:
            self._check_lease()
        if disk.nearly_full(self.run):  # Measured soon: whoever has filled the disk has to end.
            soon = processes.monotonic_s() + SOON * self.measured_s
            self.due["disk"] = min(self.due["disk"], soon)

    def _measure_disk_use(self) -> None:
        """Measure the run's disk use; the longer a measurement takes, the rarer it is repeated.

        It is taken in steps, between which the supervisor is there for everything else.
        """
        started_s = processes.monotonic_s()
        is_done, problem = self.disk_use.step()
        now = processes.monotonic_s()
        self.measuring_s += now - started_s
        if not is_done:
            return
        self.measured_s, self.measuring_s = self.measuring_s, 0.0
        self._stop_if(problem)
        pause_s = max(LEAST_DISK_USE_S, self.measured_s * DISK_USE_SHARE)
        self.due["disk"] = now + min(pause_s, MOST_DISK_USE_S)

    def _check_lease(self) -> None:
        """End an idle workload whose lease has ended, also when nobody keeps it any more."""
        if load("idle.lease:has_ended")(self.run.folders):
            self.reason = "ended"
            self.message = load("idle.lease:ended_reason")(self.run.folders)
            self._start_ending(float(self.spec.get("grace_s") or 0))

    def _stop_if(self, problem: str | None) -> None:
        if problem and self.reason is None:
            self.reason, self.message = "disk-full", problem
            self._start_ending(float(self.spec.get("grace_s") or 0))

    def _consider_ending(self) -> None:
        if self.asked:
            self.asked = False
            self._end_as_asked()
        if self.status is not None and self.kill_at is None:
            self._start_ending(LEFTOVER_GRACE_S)
        if self.kill_at is not None and processes.monotonic_s() >= self.kill_at:
            process_tree.signal_descendants(signal.SIGKILL)
            # Repeat the KILL, ever more slowly: some processes may be in uninterruptible sleep.
            self.kill_at = processes.monotonic_s() + self.kill_again_s
            self.kill_again_s = min(self.kill_again_s * 2, 2.0)

    def _end_as_asked(self) -> None:
        request = self.run.read("end.json")
        grace_s = float((request or self.spec).get("grace_s") or 0)
        if self.status is None and self.reason is None:
            self.reason = "ended" if request else "node-stopping"
            self.message = "ended on request" if request else "the node is shutting down"
        self._start_ending(grace_s)

    def _start_ending(self, grace_s: float) -> None:
        kill_at = processes.monotonic_s() + grace_s
        first_time = self.kill_at is None
        self.kill_at = kill_at if self.kill_at is None else min(self.kill_at, kill_at)
        if not first_time:
            return
        if self.publication is not None:
            self.publication.end()
        if self.spec.get("runtime") == "podman" and self.status is None:
            # The client and its monitor must outlive the container to report its exit code, and
            # podman tells the container's first process alone, which may be a shell that waits.
            process_tree.signal_contained(signal.SIGTERM)
            containers.stop_in_background(self.run.run_id, grace_s)
            self.kill_at += containers.STOP_MARGIN_S
        else:
            process_tree.signal_descendants(signal.SIGTERM)

    def _report(self) -> None:
        if self.spec.get("runtime") == "podman":
            containers.remove(self.run.run_id)
        while left := end_rest(self.run, self.spec):
            os.write(2, ("still alive: %s\n" % left).encode())
        job_accounts.forget_ipc(self.spec.get("user"))
        self.log.finish()
        document = exits.describe(self.run, self.spec, self.status or 0)
        if self.confinement is not None:
            self.confinement.forget()
        disk.release(self.run)
        with contextlib.suppress(OSError):  # On a full disk the outcome matters more.
            self.run.forget_variables()
        if self.reason is not None:
            document.update(reason=self.reason, message=self.message)
        document.update(
            elapsed_s=self._elapsed_s(),
            started_at=self.process["started_at"],
            finished_at=processes.now(),
            log_bytes=self.run.log_bytes(),
            tree_gone=True,
        )
        self._write_exit(document)

    def _report_unstarted(self, refused: RefusedError) -> None:
        """Write the exit of a run whose command was not started, because a rule forbids it."""
        document = exits.not_run(refused.code, refused.message)
        disk.release(self.run)
        with contextlib.suppress(OSError):  # On a full disk the outcome matters more.
            self.run.forget_variables()
        document.update(
            elapsed_s=0.0,
            started_at=self.process["started_at"],
            finished_at=processes.now(),
            log_bytes=self.run.log_bytes(),
            tree_gone=True,
        )
        self._write_exit(document)

    def _write_exit(self, document: dict[str, Any]) -> None:
        while True:
            try:
                self.run.write("exit.json", document)
            except OSError as error:  # A full disk must not lose the outcome: wait for room.
                os.write(2, (json.dumps(str(error)) + "\n").encode())
                select.select([], [], [], BEAT_S)
            else:
                return
