"""A hostile machine as a node of a site, with every activity that reaches a node."""

import contextlib
import gzip
import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncssh
import pytest
from temporalio.testing import ActivityEnvironment

from activities.agent.sessions.frames import EXIT, OUT, OUT_EOF, STARTED, encode
from activities.settings import settings
from activities.site.collection import collect_log, store_output
from activities.site.datastore_sources import transfer_from_datastore
from activities.site.datastores import check_datastore
from activities.site.device_logs import LogBytes, device_log
from activities.site.devices import (
    clear_device,
    stage_on_device,
    stop_device,
    switch_device,
    watch_device,
)
from activities.site.node_client import close_connections
from activities.site.nodes import (
    end_orphaned_runs,
    inspect_node,
    list_runs,
    prepare_node,
    reach_node,
    reboot_node,
    restore_logins,
    show_node_status,
    switch_idle_workload,
)
from activities.site.region_cache import fill_cache
from activities.site.run_names import RunNames
from activities.site.runs import clean_worker, end_worker, get_run_status, start_worker
from activities.site.sessions.node_session import NodeSession, RunDoor
from activities.site.staging import stage_worker
from activities.site.state_snapshots import save_snapshot
from activities.site.volumes import store_volume
from activities.site.watch import watch_node
from activities.storage.blobs import blob_store
from activities.storage.contents import ContentWriter, remove_content
from activities.storage.datastore_access import DatastoreAccess, RegionalData, seal_access
from activities.storage.names import code_name
from activities.storage.run_specs import (
    RegionCache,
    RunContent,
    RunSpec,
    seal_run_spec,
    seal_spec,
)
from activities.storage.state_snapshots import StateSnapshot
from activities.temporal import client
from tests.activities.archives import file, packed
from tests.activities.federated_sites import HONEST, federated_verbs
from tests.activities.sites import REGION, Jobs, isolated
from tests.failure.hostile_node import HostileNode, Words, answer, frame, hostile_node
from workflows.contracts.artifacts import ArtifactRole, RegionalSource
from workflows.contracts.datastores import DatastoreType
from workflows.contracts.devices import DeviceRun, HealthCheck, device_run_id
from workflows.contracts.jobs import WorkerAssignment
from workflows.contracts.nodes import NodeAddress
from workflows.contracts.regions import CacheAddress
from workflows.contracts.sessions import DeviceLogRequest
from workflows.contracts.statuses import NodeStatus
from workflows.effects.datastores import CheckDatastore, TransferFromDatastore
from workflows.effects.devices import (
    ClearDevice,
    StageOnDevice,
    StopDevice,
    SwitchDevice,
    WatchDevice,
)
from workflows.effects.jobs import (
    CleanWorker,
    CollectLog,
    EndWorker,
    GetRunStatus,
    SaveSnapshot,
    StageWorker,
    StartWorker,
    StoreOutput,
)
from workflows.effects.nodes import (
    EndOrphanedRuns,
    InspectNode,
    ListRuns,
    PrepareNode,
    ReachNode,
    RebootNode,
    RestoreLogins,
    ShowNodeStatus,
    SwitchIdleWorkload,
    WatchNode,
)
from workflows.effects.regions import FillCache
from workflows.effects.volumes import StoreVolume

OWN_JOB = "job-01jd0000000000000000000001"
OWN = f"{OWN_JOB}-0-2"
VICTIM_JOB = "job-01jd0000000000000000000000"
VICTIM = f"{VICTIM_JOB}-0-1"
BOOT = "0123-4567"
LOG = DeviceLogRequest(lines=100)
NOW = datetime(2026, 1, 2, tzinfo=UTC)
DATASET = "dat-01jd0000000000000000000000"
DEVICE = "dev-01jd0000000000000000000000"
DEVICE_RUN = {"number": 2, "status": "running", "exit_code": None, "reason": ""}
VOLUME = "vol-01jd0000000000000000000000"
UPLOAD = packed(file("train.py", b"print(1)"))
SHA256 = hashlib.sha256(UPLOAD).hexdigest()
"""The upload that the runs of the site have as code and as input."""


DATASTORE = DatastoreAccess(
    id="dst-01jd0000000000000000000000",
    name="lab",
    type=DatastoreType.NFS,
    host="nas",
    root_path="/srv/lab",
)
_GPU = {
    "index": 0,
    "name": "NVIDIA H100",
    "uuid": "GPU-1",
    "memory_mib": 81559,
    "pcie_generation": 5,
    "pcie_lanes": 16,
    "driver_version": "550.1",
}
HARDWARE = {
    "hostname": "h",
    "os_name": "Debian",
    "kernel": "6.1",
    "python_version": "3.11",
    "cpu_count": 8,
    "core_count": 4,
    "cpu_model": "EPYC",
    "memory_bytes": 1 << 36,
    "free_disk_bytes": 1 << 40,
    "disks": [{"name": "sda", "size_bytes": 1 << 40, "rotational": False, "transport": "sas"}],
    "gpus": [_GPU],
    "network_mbps": 1000,
    "tpm": True,
    "is_root": True,
    "runtimes": ["process"],
    "addresses": ["10.0.0.2"],
    "reboot_required": False,
    "boot_id": BOOT,
    "jetson": {
        "model_text": "NVIDIA Jetson AGX Orin Developer Kit",
        "compatible": ["nvidia,p3701-0005", "nvidia,tegra234"],
        "l4t_release": "R36.4.3",
        "jetpack": "6.2",
        "power_mode": "MAXN",
        "temperatures_c": {"cpu": 52.968, "tj": 51},
        "gpu_load": 14,
    },
}
"""What our agent finds on a machine."""


@dataclass
class HostileSite:
    """One hostile machine, and what a site's worker process has beside it."""

    machine: HostileNode
    jobs: Jobs
    folder: Path
    """Everything that the process can write to lies below it."""
    heard: list[str] = field(default_factory=list)
    """The details of heartbeats."""

    @property
    def node(self) -> NodeAddress:
        return self.machine.address("nod-hostile", REGION)

    @property
    def name(self) -> str:
        """The name of its own run on the node."""
        return RunNames(self.node).of(OWN)

    async def do(self, verb: str) -> Any:
        """Do an activity that asks this of the node; its result."""
        return await self.perform(*self.activities()[verb]())

    async def perform(self, activity: Callable[[Any], Any], command: Any) -> Any:
        """Do an activity with this command; its result."""
        environment = ActivityEnvironment()
        environment.on_heartbeat = lambda *details: self.heard.extend(map(str, details))
        return await environment.run(activity, command)

    def activities(self) -> dict[str, Callable[[], tuple[Any, Any]]]:
        """By verb: an activity and its command."""
        node, run = self.node, {"node": self.node, "run_id": OWN}
        orphans = EndOrphanedRuns(node=node, among=(self.name,), live=())
        snapshot = SaveSnapshot(at=NOW, **run)
        cache = RegionCache(node=node, address="10.0.0.1:8710")
        shown = ShowNodeStatus(node=node, status=NodeStatus.ACTIVE)

        return {
            "status": lambda: (get_run_status, GetRunStatus(**run)),
            "status of the node": lambda: (reach_node, ReachNode(node=node)),
            "status of all": lambda: (list_runs, ListRuns(node=node)),
            "status with its log": lambda: (collect_log, CollectLog(**run)),
            "inspect": lambda: (inspect_node, InspectNode(node=node)),
            "prepare": lambda: (prepare_node, PrepareNode(node=node, exclusive=True)),
            "release": lambda: (restore_logins, RestoreLogins(node=node)),
            "switch_idle_workload": lambda: (switch_idle_workload, SwitchIdleWorkload(node=node)),
            "show_status": lambda: (show_node_status, shown),
            "reboot": lambda: (reboot_node, RebootNode(node=node, boot_id=BOOT)),
            "has_code": lambda: (stage_worker, self._stage(code_sha256=SHA256)),
            "unpack_code": lambda: (stage_worker, self._stage(code_sha256=SHA256)),
            "fetch_code": lambda: (stage_worker, self._stage(cache=cache, code_sha256=SHA256)),
            "keep_code": lambda: (stage_worker, self._stage(cache=cache, code_sha256=SHA256)),
            "put_input": lambda: (stage_worker, self._stage(input_sha256=SHA256)),
            "fetch_input": lambda: (stage_worker, self._stage(cache=cache, input_sha256=SHA256)),
            "restore_state": lambda: (stage_worker, self._stage(restores_state=True)),
            "stage": lambda: (stage_worker, self._stage()),
            "fingerprint_state": lambda: (save_snapshot, snapshot),
            "pack_state": lambda: (save_snapshot, snapshot),
            "start": lambda: (start_worker, StartWorker(**run)),
            "end": lambda: (end_worker, EndWorker(grace_s=0, **run)),
            "clean": lambda: (clean_worker, CleanWorker(**run)),
            "orphans": lambda: (end_orphaned_runs, orphans),
            "prune": lambda: (end_orphaned_runs, orphans),
            "read_log": lambda: (collect_log, CollectLog(**run)),
            "pack_output": lambda: (store_output, StoreOutput(**run)),
            "watch": lambda: (watch_node, WatchNode(node=node)),
            **self._of_data(cache),
            **self._of_devices(),
            "run_command": lambda: (self._hear, RunDoor(node, OWN).command(("true",), None)),
            "connect_port": lambda: (self._hear, RunDoor(node, OWN).port(8888)),
        }

    def _of_data(self, cache: RegionCache) -> dict[str, Callable[[], tuple[Any, Any]]]:
        """Those of the verbs of contents, volumes, datastores and caches."""
        node = self.node
        source = CacheAddress(node_id="nod-2", address="10.0.0.2:8710", is_secure=True)

        def staged() -> StageWorker:
            return self._stage(cache=cache, contents=self._contents())

        return {
            "find_contents": lambda: (stage_worker, self._stage(contents=self._contents())),
            "receive_content": lambda: (stage_worker, self._stage(contents=self._contents())),
            "fetch_content": lambda: (stage_worker, staged()),
            "missing_parts": lambda: (stage_worker, staged()),
            "keep_parts": lambda: (stage_worker, staged()),
            **federated_verbs(self._stage, self.node),
            "open_volumes": lambda: (stage_worker, self._stage(contents=self._contents(VOLUME))),
            "fingerprint_volume": lambda: (store_volume, self._store_volume()),
            "pack_volume": lambda: (store_volume, self._store_volume()),
            "store_on_datastore": lambda: (store_output, self._store()),
            "check_datastore": lambda: (check_datastore, self._check()),
            "list_datastore": lambda: (transfer_from_datastore, self._read()),
            "read_datastore": lambda: (transfer_from_datastore, self._read()),
            "find_cache_address": lambda: (
                prepare_node,
                PrepareNode(node=node, exclusive=True, serves_cache=True),
            ),
            "fill_cache": lambda: (fill_cache, FillCache(node=node, source=source)),
        }

    def _of_devices(self) -> dict[str, Callable[[], tuple[Any, Any]]]:
        """Those of the verbs of devices."""
        node, assignment = self.node, {"node": self.node, "number": 2}
        return {
            "device_status": lambda: (stage_on_device, self._stage_on_device()),
            "stage_device": lambda: (stage_on_device, self._stage_on_device()),
            "switch_device": lambda: (
                switch_device,
                SwitchDevice(health=HealthCheck(), **assignment),
            ),
            "stop_device": lambda: (stop_device, StopDevice(**assignment)),
            "clear_device": lambda: (clear_device, ClearDevice(node=node)),
            "watch_device": lambda: (watch_device, WatchDevice(node=node, known=DeviceRun())),
            "read_device_log": lambda: (self._hear_log, device_log(node, LOG)),
        }

    def _stage_on_device(self) -> StageOnDevice:
        run_id = device_run_id(self.node.node_id, 2)
        spec = RunSpec(run_id=run_id, command="true", isolation=isolated(self.node))
        reference = seal_spec(f"device-specs/{DEVICE}/2", REGION, spec)
        return StageOnDevice(node=self.node, number=2, spec=reference)

    @staticmethod
    async def _hear_log(opening: AbstractAsyncContextManager[AsyncIterator[LogBytes]]) -> None:
        """Hear all of a log."""
        async with opening as pieces:
            async for _ in pieces:
                continue

    @staticmethod
    def _contents(artifact_id: str = DATASET) -> tuple[RunContent, ...]:
        """A dataset of the own job, in the store, or a volume that it writes to."""
        writer = ContentWriter(blob_store(settings().storage), artifact_id, "test")
        writer.write(UPLOAD)
        content = writer.finish(1, len(UPLOAD))
        role = ArtifactRole.DATASET if artifact_id == DATASET else ArtifactRole.VOLUME_WRITER
        found = RunContent(artifact_id=artifact_id, role=role, name="digits", content=content)
        return (found,)

    def _store_volume(self) -> StoreVolume:
        self._stage(contents=self._contents(VOLUME))
        return StoreVolume(node=self.node, run_id=OWN, volume_id=VOLUME, at=NOW)

    @staticmethod
    async def _hear(opening: AbstractAsyncContextManager[NodeSession]) -> None:
        """Hear all that is said in a session."""
        async with opening as session:
            async for _ in session.frames:
                continue

    def _stage(self, restores_state: bool = False, **spec: Any) -> StageWorker:
        content = RunSpec(run_id=OWN, command="true", isolation=isolated(self.node), **spec)
        blobs = blob_store(settings().storage)
        blobs.put(code_name(SHA256), UPLOAD)
        blobs.put(StateSnapshot(1, NOW, "ab").name(OWN_JOB, 0), UPLOAD)
        return StageWorker(
            node=self.node,
            run_id=OWN,
            run_spec=seal_run_spec(OWN_JOB, 2, 0, REGION, content),
            assignment=WorkerAssignment(worker=0, node=self.node),
            restores_state=restores_state,
        )

    def _store(self) -> StoreOutput:
        output = RegionalData(datastore=DATASTORE, path="results")
        self._stage(datastores={"output": output})
        return StoreOutput(node=self.node, run_id=OWN)

    def _check(self) -> CheckDatastore:
        access = seal_access(REGION, DATASTORE)
        return CheckDatastore(node=self.node, datastore_id=DATASTORE.id, access=access)

    def _read(self) -> TransferFromDatastore:
        source = RegionalSource(type="regional", datastore_id=DATASTORE.id)
        remove_content(blob_store(settings().storage), DATASET)  # Of another activity.
        return TransferFromDatastore(
            node=self.node,
            artifact_id=DATASET,
            source=source,
            access=seal_access(REGION, DATASTORE),
            most_bytes=1 << 20,
        )

    def honest(self) -> dict[str, Any]:
        """By verb: an answer as our agent gives it."""
        ended = {
            "exit_code": 0,
            "signal": None,
            "reason": "exited",
            "message": "",
            "elapsed_s": 2.5,
        }
        state = {
            "state": "exited",
            "pid": 7,
            "started_at": "2026-01-01T00:00:00.000000+00:00",
            "elapsed_s": 2.5,
            "idle_s": 0.0,
            "exit": {**ended, "log_bytes": 5},
            "log_bytes": 5,
        }
        return {
            # Not staged yet, so that the input and the state are brought as well.
            "status": {"runs": {self.name: {**state, "state": "unknown"}}, "boot_id": BOOT},
            "inspect": {"hardware": HARDWARE},
            "prepare": {
                "job_user": "baseload-job",
                "closed_logins": True,
                "unreachable_peers": [],
                "cache": {"address": "10.0.0.2:8710", "is_secure": True, "reason": None},
                "no_wall_reason": None,
                "no_run_root_reason": None,
                "nfs_way": "kernel",
                "smb_way": "user-space (kernel without cifs)",
            },
            "has_code": {"present": False},
            **HONEST,
            "fetch_code": {"found": "missing", "words": "404", "fetched_bytes": 0},
            "fetch_input": {"found": "missing", "words": "404", "fetched_bytes": 0},
            "find_cache_address": {"host": "10.0.0.1"},
            "switch_idle_workload": {"state": "off", "run_s": 0.0},
            "fill_cache": {"files": 2, "bytes": 9, "left_files": 0, "reason": ""},
            **self._honest_of_data(),
            "device_status": {"run": DEVICE_RUN, "boot_id": BOOT, "no_unit_reason": None},
            "switch_device": {"run": DEVICE_RUN, "failed": None},
            "stop_device": {"run": {**DEVICE_RUN, "status": "stopped"}, "failed": None},
            "start": state,
            "end": state,
            "clean": {"removed": [], "kept": []},
            "orphans": {
                "ended": {self.name: {**state, "told_before_s": 0.0}},
                "alive": {},
                "cache_full": None,
            },
        }

    def _honest_of_data(self) -> dict[str, Any]:
        """Those of the verbs that bring, list and store data."""
        return {
            "find_contents": {
                "contents": [
                    {
                        "sha256": self._contents()[0].content.sha256,
                        "present": False,
                        "has_manifest": False,
                        "position": 0,
                    }
                ]
            },
            "fetch_content": {
                "found": "missing",
                "words": "404",
                "part": 0,
                "position": 0,
                "fetched_bytes": 0,
            },
            "missing_parts": {"missing": [0]},
            "store_on_datastore": {"files": 2, "bytes": 9, "left_out": 0, "way": "user-space"},
            "check_datastore": {
                "way": "user-space",
                "reachable": True,
                "writable": False,
                "reason": "can only be read",
                "no_mount_reason": "mount.nfs: No such device",
            },
            "list_datastore": {"identity": "ab" * 32, "bytes": 10_240, "files": 1},
            "fingerprint_state": {"mark": "ab12", "bytes": 5, "files": 1},
            "fingerprint_volume": {"mark": "ab12", "bytes": 5, "files": 1},
            "open_volumes": {"volumes": [{"name": "digits", "mark": "ab12"}]},
        }

    def is_honest(self) -> None:
        """Let the machine answer as our agent does."""
        said = self.honest()
        self.machine.says.update({verb: answer(**words) for verb, words in said.items()})
        for verb in ("pack_output", "pack_state", "pack_volume"):
            self.machine.says[verb] = Words(UPLOAD)
        for verb in ("put_input", "restore_state", "receive_content", "keep_parts"):
            self.machine.says[verb] = Words(takes=True)
        self.machine.says["receive_model"] = Words(takes=True)
        self.machine.says["read_log"] = Words(b"hello")
        self.machine.says["read_datastore"] = Words(gzip.decompress(UPLOAD))
        ended = encode(EXIT, b'{"reason": "exited", "exit_code": 0}')
        self.machine.says["run_command"] = Words(encode(STARTED) + encode(OUT, b"hi") + ended)
        self.machine.says["connect_port"] = Words(encode(STARTED) + encode(OUT_EOF))
        state = frame(kind="device", run=DEVICE_RUN, boot_id=BOOT)
        self.machine.says["watch_device"] = Words(frame(kind="beat") + state)
        name = RunNames(self.node).of(device_run_id(self.node.node_id, 2))
        head = {"kind": "log", "run_id": name, "offset": 0, "length": 2}
        self.machine.says["read_device_log"] = Words(frame(b"hi", **head))
        self.machine.says["watch"] = Words(frame(kind="beat"))

    def files(self) -> dict[Path, bytes]:
        """Every file outside of the store of the process and of the machine's own disk."""
        inside = (self.folder / "home" / "storage", self.folder / "disk")
        found = [path for path in self.folder.rglob("*") if path.is_file()]
        return {
            path: path.read_bytes()
            for path in found
            if not any(path.is_relative_to(each) for each in inside)
        }


@contextlib.asynccontextmanager
async def hostile_site(folder: Path, patch: pytest.MonkeyPatch) -> AsyncIterator[HostileSite]:
    """A hostile machine, and everything that a site's activities find in their process."""
    key, disk = folder / "key", folder / "disk"
    disk.mkdir(parents=True, exist_ok=True)
    key.write_bytes(asyncssh.generate_private_key("ssh-ed25519").export_private_key())
    patch.setenv("BASELOAD_HOME", str(folder / "home"))
    patch.setenv("BASELOAD_SSH_KEY", str(key))
    patch.setenv("BASELOAD_SECRETS_KEY", "ab" * 32)
    patch.setenv("BASELOAD_NODE_NETWORKS", "127.0.0.1/32")
    settings.cache_clear()
    jobs = Jobs()
    patch.setattr(client, "_client", jobs)
    async with hostile_node(disk) as machine:
        machine.says["status"] = answer(runs={}, boot_id=BOOT)
        yield HostileSite(machine, jobs, folder)
        await close_connections()
    settings.cache_clear()


@pytest.fixture
async def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HostileSite]:
    async with hostile_site(tmp_path, monkeypatch) as found:
        yield found
