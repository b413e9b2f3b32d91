"""One watcher per node: the new bytes of all logs, and the exits, as frames on stdout.

A frame is one JSON line, followed for kind `log` by `length` bytes. In each round every run may
send a small share, and the share shrinks on a slow line, so a run with a large log never delays the
others. The watcher keeps no state: each log resumes at the offset that the caller names.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import time
from typing import Any

from .cache.location import configuration_of
from .compiled import keep_compiled
from .folders import Folders, Run
from .runs import status
from .runs.idleness import Idleness

BUSY_POLL_S = 0.05
QUIET_POLL_S = 0.15
QUIET_AFTER_S = 2.0
IDLE_POLL_S = 0.25
LOST_CHECK_S = 5.0
HOSTNAMES_S = 1.0
BEAT_S = 2.0
IDLE_WORKLOAD_S = 30.0
CACHE_CHECK_S = 15.0
"""How soon a region's cache whose server was killed is there again; most nodes serve none."""
MOST_PER_ROUND_BYTES = 256 << 10
LEAST_PER_ROUND_BYTES = 16 << 10
ROUND_S = 0.1
SETTLED_S = 2.0


class Followed:
    """A watched run, and how far its log has been sent."""

    def __init__(self, run: Run, offset: int) -> None:
        self.run = run
        self.offset = offset
        self.log = -1
        self.log_bytes: int | None = None
        self.exit: dict[str, Any] | None = None
        self.sent_lost = False
        self.claimed = False
        self.started = False
        self.has_gpus = False
        self.idleness: Idleness | None = None
        self.has_hostname = False
        self.said_of_hostname: dict[str, Any] | None = None
        """What the last frame has said of the run's hostname."""

    def is_of_another(self, owner: str | None) -> bool:
        """Whether another control plane has staged the run; a spec exists before its log."""
        if self.claimed or owner is None or not self.run.has("spec.json"):
            return False
        self.claimed = True
        return bool((self.run.read("spec.json") or {}).get("owner", owner) != owner)

    def read(self, limit: int) -> bytes:
        """The next bytes of the log, at most `limit`, and none beyond its final length."""
        if self.log < 0:
            try:
                self.log = os.open(self.run.log, os.O_RDONLY)
            except FileNotFoundError:
                return b""
        if self.log_bytes is not None:
            limit = min(limit, self.log_bytes - self.offset)
        return os.pread(self.log, limit, self.offset) if limit > 0 else b""

    def check_exit(self) -> None:
        """Read the exit of the run, once, and the final length of its log."""
        if self.exit is None and self.run.has("exit.json"):
            self.exit = self.run.read("exit.json")
            if self.exit is not None:
                self.log_bytes = int(self.exit["log_bytes"])

    def is_done(self) -> bool:
        """Whether the run has ended and all of its log has been sent."""
        return self.log_bytes is not None and self.offset >= self.log_bytes

    def runs(self) -> bool:
        """Whether the run has started, and neither ended nor lost its supervisor."""
        if not self.started and self.run.has("process.json"):
            self.started = True
            spec = self.run.read("spec.json") or {}
            self.has_gpus = bool(spec.get("gpu_uuids"))
            self.has_hostname = bool(spec.get("hostname"))
            if spec.get("idle_timeout_s"):
                self.idleness = Idleness(self.run, spec)
        return self.started and self.exit is None and not self.sent_lost

    def close(self) -> None:
        """Close the log."""
        if self.log >= 0:
            os.close(self.log)
            self.log = -1


class Watcher:
    """The watcher of all runs of a node, which runs until stdin is closed."""

    def __init__(self, folders: Folders, request: dict[str, Any]) -> None:
        self.folders = folders
        self.owner: str | None = request.get("owner")
        self.utilisation_s = request.get("utilisation_s")
        self.live: dict[str, Followed] = {}
        self.ignored: set[str] = set()
        self.typed = b""
        self.share = MOST_PER_ROUND_BYTES
        self.runs_changed_at = -1.0
        self.sent_at = 0.0
        self.gpus: Any = None
        self.utilisation: Any = None
        self.cache_check_s = float(request.get("cache_check_s") or CACHE_CHECK_S)
        self.due = {"beat": 0.0, "lost": 0.0, "hostnames": 0.0}
        self.idle_workload_s = float(request.get("idle_workload_s") or IDLE_WORKLOAD_S)
        self.due["idle_workload"] = 0.0
        self.due["cache"] = time.monotonic() + self.cache_check_s
        for run_id, offset in (request.get("known") or {}).items():
            self.follow(run_id, offset)

    def follow(self, run_id: str, offset: int) -> None:
        """Watch a run, and send its log from that byte on."""
        self.forget(run_id)
        self.ignored.discard(run_id)
        self.live[run_id] = Followed(self.folders.run(run_id), int(offset))

    def forget(self, run_id: str) -> None:
        """Stop watching a run."""
        followed = self.live.pop(run_id, None)
        if followed is not None:
            followed.close()
        self.ignored.add(run_id)

    def serve(self) -> None:
        """Send frames, round after round, until stdin is closed."""
        while self._read_commands(self._round()):
            self._find_new_runs()
            running = [run for run in self.live.values() if run.runs()]
            self._report_idle(running)
            self._report_utilisation(running)
            self._report_hostnames(running)
            self._keep_beat()
            self._keep_idle_workload()

    def _round(self) -> float:
        """Send each run's share; return how long to wait before the next round."""
        started_at = time.monotonic()
        sent = 0
        for run_id in list(self.live):
            sent += self._advance(run_id)
        took = time.monotonic() - started_at
        if took > ROUND_S:
            self.share = max(LEAST_PER_ROUND_BYTES, self.share // 2)
        elif self.share < MOST_PER_ROUND_BYTES:
            self.share = self.share * 2
        if sent:
            return 0.0
        if not self.live:
            return IDLE_POLL_S
        return BUSY_POLL_S if started_at < self.sent_at + QUIET_AFTER_S else QUIET_POLL_S

    def _advance(self, run_id: str) -> int:
        followed = self.live[run_id]
        if followed.is_of_another(self.owner):
            self.forget(run_id)
            return 0
        followed.check_exit()
        payload = followed.read(self.share)
        if payload:
            _send(
                {
                    "run_id": run_id,
                    "kind": "log",
                    "offset": followed.offset,
                    "length": len(payload),
                },
                payload,
            )
            followed.offset += len(payload)
            self.sent_at = time.monotonic()
        if followed.is_done():
            _send(
                {
                    "run_id": run_id,
                    "kind": "exit",
                    "exit": followed.exit,
                    "log_bytes": followed.log_bytes,
                }
            )
            self.forget(run_id)
        # A short read means that the log has no more bytes for now.
        return len(payload) if len(payload) == self.share else 0

    def _read_commands(self, wait_s: float) -> bool:
        """Read and obey the caller's lines; return whether stdin is still open."""
        ready, _, _ = select.select([0], [], [], wait_s)
        if not ready:
            return True
        read = os.read(0, 1 << 16)
        if not read:
            return False
        *lines, self.typed = (self.typed + read).split(b"\n")
        for line in lines:
            if line.strip():
                self._obey(json.loads(line))
        return True

    def _obey(self, words: dict[str, Any]) -> None:
        for run_id, offset in (words.get("watch") or {}).items():
            self.follow(run_id, offset)
        for run_id in words.get("forget") or []:
            self.forget(run_id)

    def _find_new_runs(self) -> None:
        try:
            changed_at = os.stat(self.folders.runs).st_mtime
        except FileNotFoundError:
            return
        # A change within one tick of the file system's clock may not show in the time alone.
        if changed_at == self.runs_changed_at and time.time() - changed_at > SETTLED_S:
            return
        self.runs_changed_at = changed_at
        present = set(self.folders.run_ids())
        for run_id in present - self.ignored:
            if run_id not in self.live:
                self.follow(run_id, 0)
        # A removed run leaves both sets, so that the sets do not grow for ever.
        self.ignored &= present
        for run_id in set(self.live) - present:
            self.forget(run_id)
            self.ignored.discard(run_id)

    def _report_idle(self, running: list[Followed]) -> None:
        """Report each run that reaches its idle limit, before and then, until it works again."""
        due = [(run.run.run_id, run.idleness) for run in running if run.idleness]
        due = [(run_id, idleness) for run_id, idleness in due if idleness.is_due]
        asked = [run_id for run_id, idleness in due if idleness.asks_for_gpus]
        percent = self._gpu_work().percent() if asked else {}
        for run_id, idleness in due:
            if percent is None and run_id in asked:
                continue  # The driver of its GPUs has not answered yet.
            report = idleness.check(percent or {})
            if report is not None:
                _send({"run_id": run_id, **report})

    def _report_utilisation(self, running: list[Followed]) -> None:
        """Report what the runs use of the machine, every ten seconds while there are any."""
        if self.utilisation is None:
            if not running:
                return
            module = importlib.import_module(".runs.utilisation", __package__)
            every_s = self.utilisation_s or module.INTERVAL_S
            self.utilisation = module.Utilisation(self._gpu_work(), every_s)
        has_gpus = any(run.has_gpus for run in running)
        frame = self.utilisation.frame([run.run for run in running], has_gpus)
        if frame is not None:
            _send(frame)

    def _report_hostnames(self, running: list[Followed]) -> None:
        """Report what is said of the hostnames of runs, each time that it is something else."""
        now = time.monotonic()
        if now < self.due["hostnames"]:
            return
        self.due["hostnames"] = now + HOSTNAMES_S
        for followed in running:
            if not followed.has_hostname:
                continue
            said = followed.run.read("hostname.json")
            if said is not None and said != followed.said_of_hostname:
                followed.said_of_hostname = said
                _send({"run_id": followed.run.run_id, "kind": "hostname", **said})

    def _gpu_work(self) -> Any:
        """The poller of the GPUs, imported only on a machine that has runs."""
        if self.gpus is None:
            self.gpus = importlib.import_module(".host.gpu_work", __package__).GpuWork()
        return self.gpus

    def _keep_idle_workload(self) -> None:
        """Start the keeper of the idle workload again, as after a restart, and report figures."""
        now = time.monotonic()
        if now < self.due["idle_workload"]:
            return
        self.due["idle_workload"] = now + self.idle_workload_s
        if os.path.exists(os.path.join(self.folders.root, "idle", "workload.json")):
            importlib.import_module(".idle.keeper", __package__).launch(self.folders)
            module = importlib.import_module(".idle.workload", __package__)
            _send({"kind": "idle_workload", **module.report(self.folders)})

    def _keep_beat(self) -> None:
        now = time.monotonic()
        if now >= self.due["beat"]:
            self.due["beat"] = now + BEAT_S
            _send({"kind": "beat"})
        if now >= self.due["lost"]:
            self.due["lost"] = now + LOST_CHECK_S
            self._report_lost()
        if now >= self.due["cache"]:
            self.due["cache"] = now + self.cache_check_s
            _keep_cache(self.folders)

    def _report_lost(self) -> None:
        """Report each run whose supervisor is gone as lost, once; no exit will follow."""
        for run_id, followed in self.live.items():
            if followed.sent_lost or not followed.run.has("process.json"):
                continue
            state = status.state_of(followed.run)
            if state["state"] == "lost":
                followed.sent_lost = True
                _send(
                    {
                        "run_id": run_id,
                        "kind": "lost",
                        "elapsed_s": state["elapsed_s"],
                        "log_bytes": state["log_bytes"],
                    }
                )


def watch(request: dict[str, Any]) -> None:
    """Watch the runs of this node, and write frames to stdout until stdin is closed.

    known: maps run ids to the offsets from which the caller wants their logs.
    owner: the control plane whose runs are watched; runs of other control planes are ignored.
    utilisation_s: the seconds between two frames about what the runs use, if not as usual;
    idle_workload_s: those between two looks at the keeper of the idle workload;
    cache_check_s: those between two looks at the server of the region's cache.
    """
    keep_compiled()
    folders = Folders(request.get("root", ""))
    _keep_cache(folders)
    Watcher(folders, request).serve()


def _keep_cache(folders: Folders) -> None:
    """Start the server of the region's cache, if this machine serves it and it has ended."""
    if configuration_of(folders) is not None:
        from .cache.service import keep_serving  # noqa: PLC0415 - most nodes serve no cache

        keep_serving(folders)


def _send(header: dict[str, Any], payload: bytes = b"") -> None:
    waiting = memoryview(json.dumps(header).encode() + b"\n" + payload)
    while waiting:
        waiting = waiting[os.write(1, waiting) :]
