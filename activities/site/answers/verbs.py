"""The answers of the agent's verbs, one model each, with the fields that the platform uses."""

from enum import StrEnum
from typing import Annotated, TypeAlias

from pydantic import Field

from activities.site.answers.bounds import (
    MOST_RUNS,
    Account,
    Address,
    BootId,
    ByteCount,
    ClockSeconds,
    Code,
    Count,
    Endpoint,
    ExitCode,
    FileBytes,
    Fingerprint,
    FolderBytes,
    GpuId,
    Instant,
    Name,
    RunName,
    Said,
    Seconds,
    Text,
)
from workflows.contracts.datastores import DatastoreWay
from workflows.contracts.jobs import Exit, RunReport
from workflows.contracts.nodes import Disk, Gpu, Hardware, IdleWorkloadState, Jetson
from workflows.contracts.statuses import RunState
from workflows.effects.datastores import DatastoreChecked


class Nothing(Said):
    """The answer of a verb that has done what it was asked, and has nothing to say of it."""


# ── runs ────────────────────────────────────────────────────────────────────────────────────────


class RunExit(Said):
    """The exit of a run, as its supervisor wrote it; an earlier release may have written less."""

    exit_code: ExitCode | None = None
    signal: ExitCode | None = None
    reason: Code = "exited"
    message: Text = ""
    elapsed_s: Seconds = 0.0
    started_at: Instant | None = None
    finished_at: Instant | None = None
    log_bytes: FileBytes = 0

    def exit(self, log_bytes: int | None = None) -> Exit:
        """The exit for the run's job; log_bytes: the length of the log, if a frame has told it."""
        found = Exit(**self.model_dump())
        return found if log_bytes is None else found.model_copy(update={"log_bytes": log_bytes})


class RunStatus(Said):
    """The answer of `start` and `end`, and the status of one run in other answers."""

    state: RunState
    elapsed_s: Seconds
    idle_s: Seconds = 0.0
    started_at: Instant | None = None
    exit: RunExit | None
    log_bytes: FileBytes

    def report(self, run_id: str) -> RunReport:
        """The report of the run for its job."""
        return RunReport(
            run_id=run_id,
            state=self.state,
            elapsed_s=self.elapsed_s,
            idle_s=self.idle_s,
            started_at=self.started_at,
            exit=self.exit.exit() if self.exit else None,
            log_bytes=self.log_bytes,
        )


class EndedRun(RunStatus):
    """An orphaned run that has ended."""

    told_before_s: ClockSeconds
    """How long ago the node has reported the run first."""


class LivingRun(RunStatus):
    """An orphaned run that could not be ended."""

    why: Text
    """What of the run is still alive."""


class Status(Said):
    """The answer of `status`."""

    boot_id: BootId
    runs: Annotated[dict[RunName, RunStatus], Field(max_length=MOST_RUNS)]


class Orphans(Said):
    """The answer of `orphans`."""

    ended: Annotated[dict[RunName, EndedRun], Field(max_length=MOST_RUNS)]
    alive: Annotated[dict[RunName, LivingRun], Field(max_length=MOST_RUNS)]
    cache_full: Text | None = None
    """Why the region's cache there could not keep what it was sent last."""


class Cleaned(Said):
    """The answer of `clean`."""

    kept: Annotated[tuple[RunName, ...], Field(max_length=MOST_RUNS)]
    """The runs that still run, whose folders stay."""


class StateFingerprint(Said):
    """The answer of `fingerprint_state`."""

    mark: Fingerprint
    bytes: FolderBytes
    files: Count


Joules = Annotated[float, Field(ge=0, le=1e15)]
"""An energy: more than any machine uses in a hundred years."""


class IdleWorkloadReport(Said):
    """The answer of `switch_idle_workload`."""

    state: IdleWorkloadState
    run_s: Seconds
    energy_joules: Joules | None = None
    energy_s: Seconds = 0.0
    reason: Text = ""


# ── code ────────────────────────────────────────────────────────────────────────────────────────


class CodePresence(Said):
    """The answer of `has_code`."""

    present: bool


class ModelPresence(Said):
    """The answer of `has_model`."""

    present: bool


InBase64 = Annotated[str, Field(max_length=96 << 10)]


class Attestation(Said):
    """The answer of `attest`: a report, and the certificates for it."""

    kind: Annotated[str, Field(max_length=64, pattern=r"^[a-z0-9_]*$")]
    report: InBase64
    certificates: InBase64


class Fetch(StrEnum):
    """The outcome of fetching code from a region's cache."""

    HERE = "here"
    FETCHED = "fetched"
    MISSING = "missing"
    DAMAGED = "damaged"
    UNREACHED = "unreached"


class FetchedCode(Said):
    """The answer of `fetch_code`."""

    found: Fetch
    words: Text
    fetched_bytes: ByteCount


# ── contents ────────────────────────────────────────────────────────────────────────────────────

MOST_CONTENTS = 256
"""The most contents of one run."""
MOST_PARTS_ASKED = 8192
"""The most parts that a cache is asked for at once."""


class FoundContent(Said):
    """How much of a content is on the node."""

    sha256: Fingerprint
    present: bool
    has_manifest: bool
    position: ByteCount
    """The byte at which its transfer goes on."""


class FoundContents(Said):
    """The answer of `find_contents`."""

    contents: Annotated[tuple[FoundContent, ...], Field(max_length=MOST_CONTENTS)]


class OpenedVolume(Said):
    """A volume that a run writes to."""

    name: Name
    mark: Fingerprint
    """The fingerprint of its files, as the run finds them."""


class OpenedVolumes(Said):
    """The answer of `open_volumes`."""

    volumes: Annotated[tuple[OpenedVolume, ...], Field(max_length=MOST_CONTENTS)]


class ContentFetch(StrEnum):
    """The outcome of fetching a content from a region's cache."""

    FETCHED = "fetched"
    MISSING = "missing"
    DAMAGED = "damaged"
    UNREACHED = "unreached"


class FetchedContent(Said):
    """The answer of `fetch_content`."""

    found: ContentFetch
    words: Text
    part: Count
    """The number of the part that could not be had."""
    position: ByteCount
    fetched_bytes: ByteCount


class MissingParts(Said):
    """The answer of `missing_parts`."""

    missing: Annotated[
        tuple[Annotated[int, Field(ge=0, lt=MOST_PARTS_ASKED)], ...],
        Field(max_length=MOST_PARTS_ASKED),
    ]


class CacheHost(Said):
    """The answer of `find_cache_address`."""

    host: Address | None = None


class FilledCache(Said):
    """The answer of `fill_cache`."""

    files: Count
    bytes: ByteCount
    left_files: Count
    reason: Text


# ── datastores ──────────────────────────────────────────────────────────────────────────────────


class DatastoreSeen(Said):
    """The answer of `check_datastore`."""

    way: DatastoreWay
    reachable: bool
    writable: bool
    refused: bool = False
    reason: Text | None = None

    def found(self) -> DatastoreChecked:
        """What the node has seen, for the lifecycle of the datastore."""
        return DatastoreChecked(
            is_reachable=self.reachable,
            is_writable=self.writable,
            is_refused=self.refused,
            way=self.way,
            reason=self.reason,
        )


class OutputOnDatastore(Said):
    """The answer of `store_on_datastore`; files: None, where the run wrote them there itself."""

    files: Count | None = None
    bytes: FolderBytes = 0
    left_out: Count = 0


class DatastoreListed(Said):
    """The answer of `list_datastore`: what the files of a folder are, as one tar stream."""

    identity: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    bytes: Annotated[int, Field(ge=0, le=1 << 50)]
    files: Count


# ── the machine ─────────────────────────────────────────────────────────────────────────────────


class _Gpu(Gpu, Said):
    index: Annotated[int, Field(ge=0, lt=1024)]
    name: Name
    uuid: GpuId
    memory_mib: Annotated[int, Field(ge=0, le=1 << 24)] | None = None
    pcie_generation: Annotated[int, Field(ge=0, le=100)] | None = None
    pcie_lanes: Annotated[int, Field(ge=0, le=1024)] | None = None
    driver_version: Name | None = None


SensorName: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$")]
Celsius: TypeAlias = Annotated[float, Field(ge=-273.15, le=10_000)]


class _Disk(Disk, Said):
    name: Name
    size_bytes: ByteCount
    rotational: bool | None = None
    transport: Name | None = None


class _Jetson(Jetson, Said):
    model_text: Name
    compatible: Annotated[tuple[Name, ...], Field(max_length=32)] = ()
    l4t_release: Annotated[str, Field(pattern=r"^R[0-9]{1,4}(\.[0-9]{1,4}){0,3}$")] | None = None
    jetpack: Annotated[str, Field(pattern=r"^[0-9]{1,4}(\.[0-9]{1,4}){0,3}$")] | None = None
    power_mode: Name | None = None
    temperatures_c: Annotated[dict[SensorName, Celsius], Field(max_length=32)] = Field(
        default_factory=dict
    )
    gpu_load: Annotated[int, Field(ge=0, le=100)] | None = None


CpuCount: TypeAlias = Annotated[int, Field(ge=1, le=1 << 16)]


class _Hardware(Hardware, Said):
    hostname: Name = ""
    os_name: Name = ""
    kernel: Name = ""
    python_version: Name = ""
    cpu_count: CpuCount
    core_count: CpuCount | None = None
    cpu_model: Name = ""
    memory_bytes: ByteCount
    free_disk_bytes: ByteCount = 0
    disk_bytes: ByteCount = 0
    disk_mb_per_s: Annotated[int, Field(ge=0, le=1 << 30)] | None = None
    cpu_mb_per_s: Annotated[int, Field(ge=0, le=1 << 30)] | None = None
    disks: Annotated[tuple[_Disk, ...], Field(max_length=1024)] = ()
    gpus: Annotated[tuple[_Gpu, ...], Field(max_length=64)] = ()
    network_mbps: Annotated[int, Field(ge=0, le=1 << 30)] | None = None
    tpm: bool = False
    is_root: bool = False
    runtimes: Annotated[tuple[Code, ...], Field(max_length=16)] = ("process",)
    addresses: Annotated[tuple[Address, ...], Field(max_length=1024)] = ()
    reboot_required: bool = False
    boot_id: BootId
    jetson: _Jetson | None = None


class Inspection(Said):
    """The answer of `inspect`."""

    hardware: _Hardware

    def found(self) -> Hardware:
        """The hardware, as a node's lifecycle and its row have it."""
        return Hardware(**self.hardware.model_dump())


class ServedCache(Said):
    """The region's cache on a storage node: where it is served, or why it is not."""

    address: Endpoint | None = None
    is_secure: bool = False
    """Whether it speaks TLS."""
    reason: Text | None = None


class Prepared(Said):
    """The answer of `prepare`."""

    job_user: Account | None
    closed_logins: bool
    unreachable_peers: Annotated[tuple[Name, ...], Field(max_length=MOST_RUNS)]
    cache: ServedCache | None = None
    no_wall_reason: Text | None = None
    open_gpus_reason: Text | None = None
    no_run_root_reason: Text | None = None
    no_confinement_reason: Text | None = None
    no_attestation_reason: Text | None = None
    has_console: bool = False
    nfs_way: Text | None = None
    smb_way: Text | None = None
