"""The place of the device faults: a platform, a region with central storage, and Jetsons."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tests.chaos.edge.inference import LEDGERS, command_of, inferences_of
from tests.chaos.edge.tally import Tally
from tests.chaos.edge.verdicts import Seen, Wanted, Wrong, verdicts, verdicts_of_output
from tests.chaos.stack import PatientPlatform, RoomStack, lose_patience
from tests.chaos.transfers.stage import central_site, storage_node
from tests.doubles.file_server import FileServer
from tests.e2e.platform import Resource, Site
from tests.lab.file_servers import NfsServer
from tests.lab.jetsons import Jetson
from tests.lab.machine import Machine
from tests.lab.machines import Lab
from tests.lab.waiting import wait_until

ROOT = "var/lib/baseload"
STORAGE = "storage"
DEVICES = {"shop-1": "Orin NX", "shop-2": "AGX Orin"}
SHARE_PATH = "seen"
LIMIT_S = 400.0
REST_S = 90.0
"""How long a device may take until all of it is as it must be."""
COUNTED_S = 330.0
"""How long a deployment may take until it has seen that something newer was asked."""
OPEN = ("new", "rolling_out", "rolling_back")
HEALTH = {"up_s": 1, "limit_s": 60, "log_line": None}
KEEPER = "run_device"
WATCH = "watch_device"


@dataclass
class Edge:
    """The stack, its devices by name, and what each of them must run."""

    stack: RoomStack
    platform: PatientPlatform
    lab: Lab
    site: Site
    nfs: NfsServer
    web: FileServer
    datastore_id: str
    tell: Callable[[str], None]
    tally: Tally = field(default_factory=Tally)
    paths: dict[str, str] = field(default_factory=dict)
    configuration_id: str = ""
    wanted: dict[str, Wanted] = field(default_factory=dict)
    _files: int = 0

    # ── what is there ───────────────────────────────────────────────────────────────────────

    def machine(self, name: str) -> Machine:
        return self.lab.machines[name]

    def row(self, name: str) -> Resource:
        return self.platform.get(self.paths[name])

    def root(self, name: str) -> Path:
        """The agent's root on the disk of a device that runs."""
        return self.machine(name).disk / ROOT

    def state(self, name: str) -> dict[str, Any]:
        """What the keeper of a device has written last."""
        return read(self.root(name) / "device/state.json")

    def add_device(self, name: str, model: str, disk_mib: int | None = None) -> None:
        """A Jetson that has joined and is active, set to the configuration.

        disk_mib: the size of its disk, of which a power cut leaves nothing; None: a large one.
        """
        machine = self.lab.add(name, "systemd", Jetson(model))
        machine.run("mkdir", "--mode=1777", f"/{LEDGERS}")
        if disk_mib is not None:
            machine.small_disk(f"/{ROOT}", disk_mib)
        self.site.announce(machine)
        body = {"region_id": self.site.region_id, "name": name, "minion_id": machine.minion_id}
        self.paths[name] = f"/v1/devices/{self.platform.post('/v1/devices', body)['id']}"
        self.platform.until_status(self.paths[name], "active", limit_s=LIMIT_S)
        self._change(self.paths[name], {"configuration_id": self.configuration_id})

    def add_configuration(self) -> None:
        """The configuration of all devices, whose first revision nobody runs."""
        document = {
            "name": "detector", "region_id": self.site.region_id, "command": "exit 1",
            "health": HEALTH, "disk_size_gb": 1, "output": self._output(),
        }  # fmt: skip
        made = self.platform.post("/v1/device-configurations", document)
        self.configuration_id = made["id"]

    def _output(self) -> Resource:
        return {"type": "regional", "datastore_id": self.datastore_id, "path": SHARE_PATH}

    def _change(self, path: str, body: Resource) -> Resource:
        changed: Resource = self.platform.ask("PATCH", path, json=body).json()
        return changed

    # ── deployments ─────────────────────────────────────────────────────────────────────────

    def revise(self, *, how: str = "", **changes: Any) -> int:
        """The next revision, whose number its command says.

        how: what its command does before it is one that runs for ever.
        """
        path = f"/v1/device-configurations/{self.configuration_id}"
        number = int(self.platform.get(path)["latest_revision"]) + 1
        plain: Resource = {"model": None, "environment": {"image": None}, "health": HEALTH}
        self._change(path, {**plain, "command": command_of(number, how), **changes})
        return number

    def deploy(self, revision: int, *names: str, **policy: Any) -> str:
        """Ask for a revision on devices, and wait for nothing. The path of the deployment."""
        ids = [self.paths[name].rpartition("/")[2] for name in names]
        body = {"configuration_id": self.configuration_id, "device_ids": ids, **policy}
        made = self.platform.post("/v1/device-deployments", {**body, "revision": revision})
        return f"/v1/device-deployments/{made['id']}"

    def begin(self, *names: str, policy: Resource | None = None, **changes: Any) -> str:
        """Ask for a new revision that must run on them. The path of the deployment."""
        revision = self.revise(**changes)
        self.wanted |= {name: Wanted(revision) for name in names}
        return self.deploy(revision, *names, **(policy or {}))

    def ended(self, deployment: str, status: str = "finished") -> Resource:
        """Wait for the end of a deployment, which must be this one."""
        final = ("finished", "stopped", "failed", "rolled_back")
        found = self.platform.until(
            deployment, lambda row: row["status"] in final, "it has ended", LIMIT_S
        )
        if found["status"] != status:
            raise AssertionError(f"{deployment}: {found['status']}: {found['status_reason']}")
        return found

    def reach(self, name: str) -> None:
        """Wait until the row of a device says what it must run."""

        def is_there(row: Resource) -> bool:
            asked, running = row["requested"] or {}, row["running"] or {}
            is_right = running.get("revision") == self.wanted[name].revision
            return row["status"] == "active" and bool(asked.get("followed")) and is_right

        self.platform.until(self.paths[name], is_there, f"{name} follows", LIMIT_S)

    def model(self, mebibytes: int) -> str:
        """The id of a new model of random bytes, once it is stored."""
        self._files += 1
        path = f"/model-{self._files}.bin"
        self.web.files[path] = os.urandom(mebibytes << 20)
        source = {"type": "web", "url": self.web.url(path)}
        body = {"name": f"model-{self._files}", "source": source}
        made = self.platform.post("/v1/models", body)
        self.platform.until_status(f"/v1/models/{made['id']}", "ready", limit_s=LIMIT_S)
        del self.web.files[path]
        return str(made["id"])

    # ── the world ───────────────────────────────────────────────────────────────────────────

    def injected(self, fault: str, times: int = 1) -> None:
        self.tally.rows[fault].faults += times

    def wrong(self, fault: str, what: Wrong, message: str) -> None:
        self.tell(f"WRONG {self.tally.wrong(fault, what, message)}")

    def look_around(self, fault: str) -> None:
        """See that every device is as it must be, and that all output is on the share."""
        for name in self.paths:
            self.tally.rows[fault].devices += 1
            left: list[tuple[Wrong, str]] = []
            look = partial(self._is_right, name, left)
            with contextlib.suppress(TimeoutError):
                wait_until(look, f"{name} is at rest", REST_S)
            for what, message in left:
                self.wrong(fault, what, f"{name}: {message}")
        self._look_at_platform(fault)
        self._look_at_output(fault)

    def _is_right(self, name: str, left: list[tuple[Wrong, str]]) -> bool:
        try:
            left[:] = list(verdicts(self.wanted[name], self.seen(name)))
        except (OSError, RuntimeError) as changing:  # What it reads may be replaced just now.
            left[:] = [("untrue", f"cannot be read: {changing}")]
        return not left

    def seen(self, name: str) -> Seen:
        """A device, its files and its row, as they are now."""
        machine, root = self.machine(name), self.root(name)
        lines = machine.command_lines()
        runs = sorted(path.name for path in (root / "runs").iterdir())
        units = machine.disk / "etc/systemd/system"
        broken = [*(root / "device").glob(".*"), *units.glob(".baseload-*")]
        broken += root.glob("runs/*/.part-*")
        failed = self._of_failed(name, root)
        if not failed:  # Else what has come of its model, which goes with it.
            broken += root.glob("contents/.arriving-*")
        logs = {run: _log_bytes(root / "runs" / run) for run in runs}
        device_id = self.paths[name].rpartition("/")[2]
        return Seen(
            inferences=tuple(sorted(inferences_of(lines))),
            run_ids=frozenset(_run_ids(machine)),
            row=self.row(name),
            state=self.state(name),
            folders=tuple(runs),
            newest=failed,
            units=tuple(sorted(path.name for path in units.glob("baseload-device*"))),
            keepers=sum(f" {KEEPER} " in line for line in _firsts(machine, KEEPER)),
            watches=sum(f" {WATCH}" in line for line in lines),
            log_bytes=logs,
            parts=tuple(str(path.relative_to(machine.disk)) for path in broken),
            specs=tuple(self._specs(device_id)),
        )

    def _of_failed(self, name: str, root: Path) -> frozenset[str]:
        """What is there of an assignment that came to its end before the device was asked."""
        done = int(self.state(name).get("done", 0))
        newer = [path.name for path in (root / "runs").iterdir() if number_in(path) > done]
        return frozenset(newer if self.wanted[name].failed and len(newer) == 1 else ())

    def _specs(self, device_id: str) -> Iterator[str]:
        for path in (self.stack.home / "storage").rglob(f"*{device_id}*/*"):
            if path.is_file():
                yield str(path.relative_to(self.stack.home))

    def _look_at_platform(self, fault: str) -> None:
        """See that deployments end, also those in whose place something newer was asked."""
        left: list[str] = []

        def look() -> bool:
            rows = self.platform.items("/v1/device-deployments", limit=100)
            opened = [row for row in rows if row["status"] in OPEN]
            left[:] = [f"{row['id']} is {row['status']} still" for row in opened]
            return not left

        with contextlib.suppress(TimeoutError):
            wait_until(look, "no deployment is open", COUNTED_S)
        for each in left:
            self.wrong(fault, "left", each)

    def ledger(self) -> dict[str, int]:
        """For each start of a command how many files it has written."""
        found: dict[str, int] = {}
        for name in self.paths:
            found |= _ledger(self.machine(name).disk / LEDGERS)
        return found

    def ledger_of(self, name: str) -> int:
        """How many files a device has written so far."""
        return sum(_ledger(self.machine(name).disk / LEDGERS).values())

    def _look_at_output(self, fault: str) -> None:
        """What was written until now comes to the share."""
        ledger = self.ledger()
        left: list[tuple[Wrong, str]] = []

        def look() -> bool:
            folder = self.nfs.shared / SHARE_PATH
            try:
                stored = [(path.name, path.read_text()) for path in folder.iterdir()]
            except FileNotFoundError:  # It has got its own name meanwhile.
                return False
            left[:] = verdicts_of_output(ledger, stored)
            return not left

        with contextlib.suppress(TimeoutError):
            wait_until(look, "the output is on the share", REST_S)
        for what, message in left:
            self.wrong(fault, what, message)

    def pause(self, seconds: float) -> None:
        """How long something is away; nothing says that it is over."""
        time.sleep(seconds)


def read(path: Path) -> dict[str, Any]:
    """A small document of a device; empty while there is none."""
    with contextlib.suppress(OSError, ValueError):
        found: dict[str, Any] = json.loads(path.read_bytes())
        return found
    return {}


def number_in(folder: Path) -> int:
    """The number of the assignment that a run folder is of; 0: of none."""
    number = folder.name.split("-")[-2:-1]
    return int(number[0]) if number and number[0].isdigit() else 0


def _ledger(folder: Path) -> dict[str, int]:
    found = {}
    for path in folder.iterdir():
        with contextlib.suppress(ValueError):  # Cut while it was written.
            found[path.name] = int(path.read_text())
    return found


def _log_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("log*"))


def _run_ids(machine: Machine) -> set[str]:
    """The runs to which processes of a machine belong, by their environment."""
    found = set()
    for pid in machine.pids():
        with contextlib.suppress(OSError):
            for one in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                if one.startswith(b"BASELOAD_RUN_ID="):
                    found.add(one.partition(b"=")[2].decode())
    return found


def _firsts(machine: Machine, word: str) -> list[str]:
    """The command lines of processes with this word whose parent has another one."""
    lines = {}
    for pid in machine.pids():
        with contextlib.suppress(OSError, IndexError):
            line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            if word in line:
                lines[pid] = (parent, line)
    return [line for parent, line in lines.values() if parent not in lines]


@contextlib.contextmanager
def edge(lab: Lab, tell: Callable[[str], None]) -> Iterator[Edge]:
    """From nothing to devices that run their first revision, and to nothing again."""
    stack = RoomStack(
        lab.folder / "home",
        lab.network.host_address,
        source_networks="127.0.0.0/8",
        job_end_grace_s="1",
        reconciliation_interval_s="15",
        announcements_per_minute="6000",
    )
    with contextlib.ExitStack() as servers:
        servers.callback(stack.close)
        stack.wait_until_ready()
        platform = PatientPlatform(stack.url, stack.administrator_key)
        servers.enter_context(platform.http)
        account = platform.get("/v1/account")["id"]
        platform.post(f"/v1/accounts/{account}/credits", {"amount_microcredits": 10**12})
        provider = platform.post("/v1/providers", {"kind": "physical"})["id"]
        platform.until_status(f"/v1/providers/{provider}", "ready")
        site = central_site(platform, provider, "shops")
        storage_node(site, lab.add(STORAGE))
        web = servers.enter_context(FileServer().serving())
        nfs = servers.enter_context(NfsServer(lab.network, "nfs", 100))
        nfs.start()
        asked = {"region_id": site.region_id, "name": "seen", "type": "nfs"}
        asked |= {"address": nfs.address, "root_path": str(nfs.shared)}
        datastore = platform.post("/v1/datastores", asked)["id"]
        platform.until_status(f"/v1/datastores/{datastore}", "ready")
        found = Edge(stack, platform, lab, site, nfs, web, datastore, tell)
        servers.callback(lose_patience, found)
        found.add_configuration()
        for name, model in DEVICES.items():
            found.add_device(name, model)
        found.ended(found.begin(*DEVICES))
        yield found
