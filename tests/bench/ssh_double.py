"""`python -m tests.bench.ssh_double COUNT`: one process that answers SSH as so many machines.

Real SSH on a port and with a host key for each; behind it runs that are rows in memory instead of
processes. A command `sleep N` ends after N seconds, every other one at once. Each says that it is a
Jetson; as a device it runs at once what it is switched to. Prints one JSON line with the machines
when it serves; to every line that it is sent it answers how many of them are watched, to the line
`devices` those that are devices, and it ends when its stdin is closed.
"""

import asyncio
import gzip
import json
import re
import shlex
import sys
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import asyncssh

from activities.agent.devices.verbs import WATCH_BEAT_S
from activities.transport.agent_archive import agent_archive

BEAT_S = 2.0
POLL_S = 1.0
CPU_COUNT = 64
MEMORY_BYTES = 256 << 30
_MARK = re.compile(r"baseload-[0-9a-f]{24}")

_EMPTY_ARCHIVE = gzip.compress(bytes(10240))

Process = asyncssh.SSHServerProcess[bytes]


@dataclass
class Run:
    """One command that only seems to run."""

    state: str = "staged"
    lasts_s: float = 0.0
    began: float = 0.0
    exit: dict[str, Any] | None = None

    def told(self) -> dict[str, Any]:
        elapsed_s = time.monotonic() - self.began if self.began else 0.0
        return {
            "state": self.state,
            "pid": 1,
            "started_at": None,
            "elapsed_s": self.exit["elapsed_s"] if self.exit else elapsed_s,
            "exit": self.exit,
            "log_bytes": 0,
        }


@dataclass
class Machine:
    """One machine: its runs and who watches them."""

    runs: dict[str, Run] = field(default_factory=dict)
    watchers: set[Process] = field(default_factory=set)
    is_device: bool = False
    number: int = 0
    """Of the assignment that it follows as a device."""

    def is_watched(self) -> bool:
        """Whether a watcher's connection is open; the watcher itself notices that at a beat."""
        return any(not each.stdin.at_eof() and not each.is_closing() for each in self.watchers)

    def answer(self, verb: str, asked: dict[str, Any]) -> dict[str, Any]:
        return {"ok": True, **getattr(self, f"do_{verb}")(asked)}

    def do_status(self, asked: dict[str, Any]) -> dict[str, Any]:
        run_ids = self.runs if asked["run_ids"] is None else asked["run_ids"]
        unknown = Run("unknown")
        runs = {run_id: self.runs.get(run_id, unknown).told() for run_id in run_ids}
        return {"runs": runs, "boot_id": "1"}

    def do_inspect(self, asked: dict[str, Any]) -> dict[str, Any]:
        hardware = {
            "cpu_count": CPU_COUNT,
            "memory_bytes": MEMORY_BYTES,
            "free_disk_bytes": 1 << 42,
            "runtimes": ["process"],
            "is_root": True,
            "boot_id": "1",
            "jetson": {"model_text": "Orin NX", "compatible": ["nvidia,p3767-0000"]},
        }
        return {"hardware": hardware}

    def do_prepare(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {"job_user": "baseload-job", "unreachable_peers": [], "closed_logins": False}

    def do_find_cache_address(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {"host": None}

    def do_stage(self, asked: dict[str, Any]) -> dict[str, Any]:
        word, _, seconds = asked["spec"]["command"].partition(" ")
        lasts_s = float(seconds) if word == "sleep" else 0.0
        self.runs.setdefault(asked["run_id"], Run(lasts_s=lasts_s))
        return {}

    def do_start(self, asked: dict[str, Any]) -> dict[str, Any]:
        run_id = asked["run_id"]
        run = self.runs[run_id]
        if run.state == "staged":
            run.state, run.began = "running", time.monotonic()
            asyncio.get_running_loop().call_later(run.lasts_s, self._exit, run_id, "exited")
        return run.told()

    def do_end(self, asked: dict[str, Any]) -> dict[str, Any]:
        self.runs.setdefault(asked["run_id"], Run())
        self._exit(asked["run_id"], "ended")
        return self.runs[asked["run_id"]].told()

    def do_clean(self, asked: dict[str, Any]) -> dict[str, Any]:
        for run_id in asked["run_ids"]:
            self.runs.pop(run_id, None)
        return {"removed": asked["run_ids"], "kept": []}

    def do_orphans(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {"ended": {}, "alive": {}}

    def do_prune(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {"removed": []}

    def do_device_status(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {"run": self.inference(), "done": self.number, "boot_id": "1"}

    def do_stage_device(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {}

    def do_switch_device(self, asked: dict[str, Any]) -> dict[str, Any]:
        self.number = asked["number"]
        return {"run": self.inference()}

    def do_clear_device(self, asked: dict[str, Any]) -> dict[str, Any]:
        self.number = 0
        return {"lost_files": 0}

    def inference(self) -> dict[str, Any]:
        return {"number": self.number, "status": "running" if self.number else "stopped"}

    async def watch_device(self, process: Process) -> None:
        """What it runs, when that is new, and beats, as the agent's own watcher."""
        self.is_device = True
        self.watchers.add(process)
        said, beat_at = -1, 0.0
        try:
            while not process.stdin.at_eof() and not process.is_closing():
                if said != self.number:
                    said = self.number
                    _say(process, {"kind": "device", "run": self.inference(), "boot_id": "1"})
                if time.monotonic() >= beat_at:
                    beat_at = time.monotonic() + WATCH_BEAT_S
                    _say(process, {"kind": "beat"})
                await asyncio.sleep(POLL_S)
        finally:
            self.watchers.discard(process)

    async def watch(self, process: Process) -> None:
        """Beats, and every exit; one that was told before is told again to a new watcher."""
        self.watchers.add(process)
        try:
            for run_id, run in self.runs.items():
                if run.exit is not None:
                    _say(process, _exit_frame(run_id, run.exit))
            while not process.stdin.at_eof() and not process.is_closing():
                _say(process, {"kind": "beat"})
                await asyncio.sleep(BEAT_S)
        finally:
            self.watchers.discard(process)

    def _exit(self, run_id: str, reason: str) -> None:
        run = self.runs.get(run_id)
        if run is None or run.exit is not None:
            return
        elapsed_s = time.monotonic() - run.began if run.began else 0.0
        run.exit = {
            "exit_code": 0 if reason == "exited" else None,
            "reason": reason,
            "elapsed_s": elapsed_s,
            "finished_at": datetime.now(UTC).isoformat(),
        }
        run.state = "exited"
        for process in self.watchers:
            _say(process, _exit_frame(run_id, run.exit))


def _exit_frame(run_id: str, ended: dict[str, Any]) -> dict[str, Any]:
    return {"run_id": run_id, "kind": "exit", "exit": ended, "log_bytes": 0}


def _say(process: Process, words: dict[str, Any]) -> None:
    process.stdout.write(json.dumps(words).encode() + b"\n")


class _Anybody(asyncssh.SSHServer):
    def begin_auth(self, username: str) -> bool:
        return False


async def _serve(machine: Machine, process: Process) -> None:
    script = shlex.split(process.command or "")[-1]
    mark = (_MARK.search(script) or [""])[0]
    process.stdout.write(f"\n{mark}\n".encode())
    if "sha256sum" in script:
        process.stdout.write(f"/double\npython3\n{agent_archive().sha256}\n".encode())
        process.exit(0)
        return
    verb = shlex.split(script)[-1]
    asked = json.loads(await process.stdin.readline())
    if verb == "watch":
        await machine.watch(process)
    elif verb == "watch_device":
        await machine.watch_device(process)
    elif verb == "pack_output":
        process.stdout.write(_EMPTY_ARCHIVE)
    else:
        _say(process, machine.answer(verb, asked))
    process.exit(0)


async def _listen(machine: Machine) -> dict[str, Any]:
    key = asyncssh.generate_private_key("ssh-ed25519")

    async def serve(process: Process) -> None:
        await _serve(machine, process)

    listener = await asyncssh.listen(
        "127.0.0.1",
        0,
        server_factory=_Anybody,
        server_host_keys=[key],
        process_factory=serve,
        encoding=None,
        compression_algs=None,
    )
    return {
        "port": listener.get_port(),
        "host_public_key": key.export_public_key().decode().strip(),
        "minion_id": key.get_fingerprint("sha256"),
    }


async def main(count: int) -> None:
    machines = [Machine() for _ in range(count)]
    _print([await _listen(machine) for machine in machines])
    while asked := await asyncio.to_thread(sys.stdin.readline):
        of_devices = asked.strip() == "devices"
        meant = [each for each in machines if each.is_device or not of_devices]
        _print(sum(machine.is_watched() for machine in meant))


def _print(words: Any) -> None:
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
