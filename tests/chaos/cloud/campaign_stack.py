"""The room: the stack as users run it, Google's double beside it, and a healthy region there."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from tests.chaos.campaign_stack import aside
from tests.chaos.cloud.database import Name, RestartedServer, RoomDatabase, Rows, SqliteFile
from tests.chaos.cloud.runs import Runs
from tests.chaos.stack import PatientPlatform, RoomStack, lose_patience
from tests.doubles.gcp.boot import Vm
from tests.doubles.gcp.contained_boot import ContainedBoot
from tests.doubles.gcp.double import GcpDouble, service_account_key
from workers.runner.lifecycle import program_states
from workers.runner.stack import Stack

CLOUD_REGION = "us-central1"
GPUS = "T4:1"
CREATE_S = 0.5
DELETE_S = 0.5
BOOT_S = 0.2
NETWORK_S = 0.1
MANY = 1000.0
METRICS = ("CPUS", "INSTANCES", "NVIDIA_T4_GPUS", "PREEMPTIBLE_NVIDIA_T4_GPUS",
           "PREEMPTIBLE_CPUS", "IN_USE_ADDRESSES", "DISKS_TOTAL_GB", "SSD_TOTAL_GB")  # fmt: skip
LIMITS = {
    "": dict.fromkeys(("GPUS_ALL_REGIONS", "CPUS_ALL_REGIONS"), MANY),
    CLOUD_REGION: dict.fromkeys(METRICS, MANY),
}
CREDITS = 10**12
SERVES = '"event": "serves'
JOB_END_GRACE_S = "1"


class CloudStack(RoomStack):
    """Whose Google is the double."""

    def __init__(self, home: Path, double: GcpDouble, **settings: str) -> None:
        self._google = double.environment
        super().__init__(home, "127.0.0.1", **settings)

    def _plan(self, environment: dict[str, str]) -> Stack:
        return super()._plan({**environment, **self._google})

    def served(self, name: str) -> int:
        """How often a program has begun to serve, as its log tells; 0 for one that does not."""
        log = self._stack.log(name)
        return log.read_text(errors="replace").count(SERVES) if log.exists() else 0

    def serves_anew(self, before: Mapping[str, int]) -> bool:
        """Whether each of them has begun to serve since; `before` is what `served` was."""
        return all(not count or self.served(name) > count for name, count in before.items())

    def answer(self, names: Iterable[str]) -> bool:
        """Whether these programs run and answer, whatever the others do."""
        return set(names) <= {
            program.name for program in program_states(self._stack) if program.ready
        }


class CloudRoom:
    """One stack and one cloud, for as long as the block lasts."""

    def __init__(self, tell: Callable[[str], None], database: Name = "sqlite") -> None:
        self.tell = tell
        self.folder = Path(tempfile.mkdtemp(prefix="baseload-cloud-room-"))
        self.boot = ContainedBoot()
        self.double = GcpDouble(boot=self.boot)
        self.cloud = self.double.cloud
        self._set_the_cloud()
        self.double.__enter__()
        home = self.folder / "home"
        self.server = RestartedServer() if database == "postgresql" else None
        self.database: RoomDatabase = self.server or SqliteFile(home)
        settings = {"job_end_grace_s": JOB_END_GRACE_S, **self.database.settings}
        self.stack = CloudStack(home, self.double, **settings)
        self._held: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self.runs = Runs()
        self.platform: PatientPlatform
        self.region_id = self.provider_id = ""
        self.storage: frozenset[str] = frozenset()
        """Names of the machines that the region has for itself."""

    def _set_the_cloud(self) -> None:
        durations = self.cloud.durations
        durations.insert_s, durations.delete_s = CREATE_S, DELETE_S
        durations.ssh_s, durations.network_s = BOOT_S, NETWORK_S
        durations.stop_s = DELETE_S
        for region, limits in LIMITS.items():
            self.double.project.limits[region] = dict(limits)

    async def open(self) -> None:
        """Until the region is healthy. Raises: TimeoutError, AssertionError."""
        await self.runs.open()
        await aside(self.stack.wait_until_ready, 180.0)
        self.platform = PatientPlatform(self.stack.url, self.stack.administrator_key)
        await aside(self._make_region)
        self.storage = frozenset(vm.name for vm in self.vms())

    def _make_region(self) -> None:
        owner = self.platform
        own = owner.get("/v1/account")["id"]
        owner.post(f"/v1/accounts/{own}/credits", {"amount_microcredits": CREDITS})
        body: dict[str, Any] = {"kind": "gcp", "credentials": service_account_key(self.double)}
        self.provider_id = owner.post("/v1/providers", body)["id"]
        owner.until_status(f"/v1/providers/{self.provider_id}", "ready")
        body = {
            "provider_id": self.provider_id, "name": "cloud", "cloud_region": CLOUD_REGION,
            "storage_node_class": "micro", "relaxed_requirements": ["all"],
        }  # fmt: skip
        self.region_id = owner.post("/v1/regions", body)["id"]
        owner.until_status(f"/v1/regions/{self.region_id}", "healthy", limit_s=300)

    def vms(self) -> list[Vm]:
        """Every machine that is at the provider now, whatever it does."""
        with self.cloud.lock:
            return list(self.cloud.machines.vms.values())

    def preempt(self, name: str) -> bool:
        """Let the provider take this machine back. False: it does not run."""
        with self.cloud.lock:
            paths = [path for path, vm in self.cloud.machines.vms.items() if vm.name == name]
            return any(self.cloud.machines.preempt(path) for path in paths)

    def rows(self, query: str) -> Rows:
        """What the database answers."""
        return self.database.rows(query)

    @asynccontextmanager
    async def held(self, names: Iterable[str]) -> AsyncIterator[None]:
        """Nobody else does anything to these programs meanwhile."""
        async with AsyncExitStack() as stack:
            for name in sorted(names):
                await stack.enter_async_context(self._held[name])
            yield

    async def end_region(self) -> list[str]:
        """Remove it; what is left at the provider, and the leases that live, afterwards."""
        path = f"/v1/regions/{self.region_id}"
        await aside(self.platform.ask, "DELETE", path)
        await aside(self.platform.until_status, path, "archived", limit_s=120)
        left = [f"machine {vm.name}: {vm.body['status']}" for vm in self.vms()]
        live = "SELECT name, status FROM leases WHERE status NOT IN ('released', 'refused')"
        left += [f"lease {name}: {status}" for name, status in self.rows(live)]
        with self.cloud.lock:
            running = self.cloud.meter.running()
        return left + [f"machine {charge.name}: is charged" for charge in running]

    def close(self, evidence: Path | None = None) -> None:
        """evidence: where the stack's home is copied to."""
        lose_patience(self)
        try:
            self.stack.close()
            if evidence is not None:
                shutil.copytree(self.stack.home, evidence, dirs_exist_ok=True)
        finally:
            self.runs.close()
            self.double.close()
            self.database.close()
            shutil.rmtree(self.folder, ignore_errors=True)
