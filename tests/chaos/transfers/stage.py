"""The place of the data faults: a region with central storage, two nodes, shares, and datasets."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import httpx

from tests.chaos.tally import Tally
from tests.doubles.file_server import FileServer
from tests.e2e.platform import ENDED, Platform, Resource, Site
from tests.e2e.stack import RunningStack
from tests.lab.file_servers import SMB_PASSWORD, SMB_USER, NfsServer, SmbServer
from tests.lab.machine import Machine
from tests.lab.machines import Lab
from tests.lab.waiting import wait_until

ROOT = "var/lib/baseload"
NODES = ("node-1", "node-2")
STORAGE = "storage"
LIMIT_S = 600.0
OVERHEAD_BYTES = 40 << 20
"""What the platform sends to machines beside a dataset while a fault goes on, at most."""
READ = """\
sha256sum < "$BASELOAD_DATASETS/{name}/file" | cut -d ' ' -f 1 > "$BASELOAD_OUTPUT/sha256"
cat "$BASELOAD_OUTPUT/sha256"
"""


@dataclass(frozen=True)
class Dataset:
    """A dataset of one file that no machine has seen before."""

    name: str
    id: str
    size_bytes: int
    sha256: str


@dataclass
class DataStage:
    """The stack, the machines and the servers. size_bytes: of a dataset; away_s: of a share."""

    stack: RunningStack
    platform: Platform
    lab: Lab
    site: Site
    provider_id: str
    web: FileServer
    nfs: NfsServer
    smb: SmbServer
    datastores: dict[str, str]
    size_bytes: int
    away_s: float
    tell: Callable[[str], None]
    tally: Tally = field(default_factory=Tally)
    nodes: dict[str, str] = field(default_factory=dict)
    """The paths of nodes by the names of their machines; under STORAGE the storage node of now."""
    storage_machine: str = STORAGE
    """The machine of the storage node of now."""
    _numbers: Iterator[int] = field(default_factory=count)

    # ── what is there ───────────────────────────────────────────────────────────────────────

    def machine(self, name: str) -> Machine:
        return self.lab.machines[self.storage_machine if name == STORAGE else name]

    def sent_bytes(self) -> int:
        """What this host has sent to the machines so far, that is, the platform."""
        link = Path("/sys/class/net") / self.lab.network.link
        return int((link / "statistics/tx_bytes").read_text())

    def dataset(self) -> Dataset:
        """A new dataset, of a web server, once it is stored."""
        name = f"set-{next(self._numbers)}"
        block = os.urandom(1 << 20)
        content = block * (self.size_bytes >> 20)
        path = f"/{name}/file"
        self.web.files[path] = content
        source = {"type": "web", "url": self.web.url(path)}
        made = self.platform.post("/v1/datasets", {"name": name, "source": source})
        self.platform.until_status(f"/v1/datasets/{made['id']}", "ready", limit_s=LIMIT_S)
        del self.web.files[path]
        return Dataset(name, made["id"], len(content), hashlib.sha256(content).hexdigest())

    # ── jobs ────────────────────────────────────────────────────────────────────────────────

    def job(self, dataset: Dataset, node: str, site: Site | None = None, **data: Any) -> str:
        """A job that reads all of a dataset on this node. The path of it."""
        self.only_active(node)
        self.tally.jobs += 1
        return self.platform.job(
            READ.format(name=dataset.name),
            (site or self.site).region_id,
            name=node,
            data={"datasets": [dataset.id], **data},
        )

    def only_active(self, *names: str) -> None:
        """Let these nodes take jobs, and no other one of the region."""
        for name, path in self.nodes.items():
            if name not in (STORAGE, *names):
                self._switch(path, "maintenance")
        for name in names:
            if name in self.nodes:
                self._switch(self.nodes[name], "active")

    def _switch(self, path: str, status: str) -> None:
        verb = {"active": "activate", "maintenance": "maintenance"}[status]
        if self.platform.get(path)["status"] != status:
            self.platform.post(f"{path}/{verb}")
            self.platform.until_status(path, status)

    def check(self, fault: str, job: str, dataset: Dataset) -> Resource:
        """Wait for the job's end, and see that it has read the dataset as it is.

        What its event says of its data; empty without such an event.
        """
        ended = self.platform.until(
            job, lambda found: found["status"] in ENDED, f"{job} has ended", LIMIT_S
        )
        if ended["status"] != "finished":
            self.wrong(fault, "lost", f"{job}: {ended['status']}: {ended['status_reason']}")
            return {}
        read = self.platform.log(job).strip()
        if read != dataset.sha256:
            self.wrong(fault, "lost", f"{job}: has read {read[:80]!r}, not {dataset.sha256}")
        return self.staged(job)

    def staged(self, job: str) -> Resource:
        """What the job's event says of its data; empty without such an event."""
        events = self.platform.items(f"{job}/events")
        found = [event["details"] for event in events if event["type"] == "job.data-staged"]
        return dict(found[-1]) if found else {}

    def wrong(self, fault: str, what: Any, message: str) -> None:
        self.tally.wrong(fault, what, message)
        self.tell(f"WRONG {self.tally.found[-1]}")

    # ── the world ───────────────────────────────────────────────────────────────────────────

    def until_sent(self, before: int, at_least: int) -> None:
        """Wait until the platform has sent so many bytes. Raises: TimeoutError."""
        deadline = time.monotonic() + LIMIT_S
        while self.sent_bytes() - before < at_least:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{at_least} bytes: not sent within {LIMIT_S:g} s")
            time.sleep(0.005)

    def cached_parts(self) -> list[Path]:
        """The parts in the region's cache, and what was broken off there."""
        return sorted((self.machine(STORAGE).disk / ROOT / "cache/parts").iterdir())

    @contextlib.contextmanager
    def cache_behind(self, node: str, port: int) -> Iterator[None]:
        """Let a node's connections to the region's cache come to a port of this host.

        They still go to the cache's address for whoever makes them, so its certificate is right.
        """
        cache = f"ip daddr {self.machine(STORAGE).address} tcp dport {self.cache_port()}"
        rule = f"{cache} dnat to {self.lab.network.host_address}:{port}"
        chain = f"chain output {{\ntype nat hook output priority -100;\n{rule}\n}}"
        machine = self.machine(node)
        machine.run("nft", "-f", "-", input_text=f"table ip onway {{\n{chain}\n}}\n")
        try:
            yield
        finally:
            machine.run("nft", "delete", "table", "ip", "onway")

    def cache_port(self) -> int:
        """The port at which the region's cache listens, as the row of its node says."""
        read = "SELECT json_extract(preparation, '$.cache') FROM nodes WHERE id = ?"
        own = self.platform.get(self.nodes[STORAGE])["id"]
        with contextlib.closing(sqlite3.connect(self.stack.home / "baseload.db")) as rows:
            (address,) = rows.execute(read, (own,)).fetchone()
        return int(address.rpartition(":")[2])

    def until_cache_serves(self) -> None:
        """Wait until the region's cache answers, which nobody else waits for."""
        url = f"https://{self.machine(STORAGE).address}:{self.cache_port()}/v2/"

        def answers() -> bool:
            with contextlib.suppress(httpx.TransportError):
                return httpx.get(url, timeout=5, trust_env=False, verify=False).is_success
            return False

        wait_until(answers, "the cache serves again", LIMIT_S)

    def age_interrupted(self) -> None:
        """Let what was broken off in the cache be of two hours ago."""
        for path in self.cached_parts():
            if path.name.startswith(".part-"):
                before = time.time() - 7200
                os.utime(path, (before, before))

    def replace_storage(self, name: str) -> str:
        """Ask for another machine as the storage node, which takes the place. The path of it.

        Until `storage_replaced` is called, the old one is the storage node of this stage.
        """
        machine = self.lab.add(name)
        self.site.announce(machine)
        asked = {"name": name, "minion_id": machine.minion_id}
        return f"/v1/nodes/{self.platform.post(f'{self.nodes[STORAGE]}/replace', asked)['id']}"

    def storage_replaced(self, node: str, name: str) -> None:
        """Wait until the old one is gone, take its machine away, and go on with the new one."""
        self.platform.until_status(self.nodes[STORAGE], "archived", limit_s=LIMIT_S)
        self.machine(STORAGE).power_cut()
        self.nodes[STORAGE], self.storage_machine = node, name

    def kill_cache(self) -> int:
        """kill -9 the server of the region's cache; how many processes there were."""
        killed = 0
        for pid in self.machine(STORAGE).pids():
            with contextlib.suppress(OSError):
                if b"serve_cache" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)
                    killed += 1
        return killed

    def forget(self, node: str) -> None:
        """Take all contents off a node, as if nobody had used them for long."""
        self.machine(node).run("sh", "-c", f"rm -rf /{ROOT}/contents/*")

    def pause(self, seconds: float) -> None:
        """What a share is away for; nothing says that it is over."""
        time.sleep(seconds)

    def look_around(self, fault: str) -> None:
        """See that nothing of a transfer is left on the machines and in the cache."""
        left: list[str] = []

        def look() -> bool:
            left[:] = [each for name in (STORAGE, *NODES) for each in leftovers(self.machine(name))]
            return not left

        with contextlib.suppress(TimeoutError):
            wait_until(look, "nothing is left", 90.0)
        for each in left:
            self.wrong(fault, "left", each)


def leftovers(machine: Machine) -> list[str]:
    """Transfers that are under way on a machine, or were broken off and left."""
    root = machine.disk / ROOT
    found = [
        f"{machine.name}: {path.name}"
        for folder, pattern in (("contents", ".arriving-*"), ("cache", "**/.part-*"))
        if (root / folder).is_dir()
        for path in (root / folder).glob(pattern)
    ]
    verbs = ("receive_content", "fetch_content", "keep_parts")
    found += [
        f"{machine.name}: runs {line}"
        for line in machine.command_lines()
        if any(verb in line for verb in verbs)
    ]
    return found


@contextlib.contextmanager
def data_stage(
    lab: Lab, size_bytes: int, away_s: float, tell: Callable[[str], None]
) -> Iterator[DataStage]:
    """From nothing to a region whose nodes take jobs, and to nothing again."""
    stack = RunningStack(
        lab.folder / "home",
        lab.network.host_address,
        source_networks="127.0.0.0/8",
        job_end_grace_s="1",
    )
    with contextlib.ExitStack() as servers:
        servers.callback(stack.close)
        stack.wait_until_ready()
        platform = Platform(stack.url, stack.administrator_key)
        servers.enter_context(platform.http)
        account = platform.get("/v1/account")["id"]
        platform.post(f"/v1/accounts/{account}/credits", {"amount_microcredits": 10**12})
        provider = platform.post("/v1/providers", {"kind": "physical"})["id"]
        platform.until_status(f"/v1/providers/{provider}", "ready")
        site = central_site(platform, provider, "lab")
        nodes = {STORAGE: storage_node(site, lab.add(STORAGE))}
        for name in NODES:
            (nodes[name],) = site.join(lab.add(name))
        web = servers.enter_context(FileServer().serving())
        nfs = servers.enter_context(NfsServer(lab.network, "nfs", 100))
        smb = servers.enter_context(SmbServer(lab.network, "smb", 101))
        nfs.start()
        smb.start()
        yield DataStage(
            stack, platform, lab, site, provider, web, nfs, smb,
            _datastores(platform, site, nfs, smb), size_bytes, away_s, tell, nodes=nodes,
        )  # fmt: skip


def central_site(platform: Platform, provider_id: str, name: str) -> Site:
    """A healthy region with central storage and nothing in it."""
    body = {
        "provider_id": provider_id, "name": name, "relaxed_requirements": ["all"],
        "storage_mode": "central",
    }  # fmt: skip
    region = platform.post("/v1/regions", body)["id"]
    platform.until_status(f"/v1/regions/{region}", "healthy")
    return Site(platform, region)


def storage_node(site: Site, machine: Machine) -> str:
    """The machine as the active storage node of the region. The path of it."""
    site.announce(machine)
    node = site.add(machine, services=["storage"])
    site.platform.until_status(node, "active")
    return node


def _datastores(platform: Platform, site: Site, nfs: NfsServer, smb: SmbServer) -> dict[str, str]:
    """The ids of the datastores `sets` and `results`, once they are ready."""
    bodies: tuple[Resource, ...] = (
        {"name": "sets", "type": "nfs", "address": nfs.address, "root_path": str(nfs.shared)},
        {"name": "results", "type": "smb", "address": smb.address, "root_path": "/data",
         "user": SMB_USER, "password": SMB_PASSWORD},
    )  # fmt: skip
    made = {}
    for body in bodies:
        asked = {"region_id": site.region_id, **body}
        made[body["name"]] = platform.post("/v1/datastores", asked)["id"]
    for each in made.values():
        platform.until_status(f"/v1/datastores/{each}", "ready")
    return made
