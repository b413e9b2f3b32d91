"""Run specs: what a node needs for one run, sealed for the site of its region.

An activity that reads rows stores a run spec in the object store, and an activity of the site opens
it. Workflows know only its name.

A site's worker may be of an earlier release than whoever sealed the run spec, and a run without
its datasets, say, would fail or, worse, succeed. So a run spec names the fields that its run
requires; a worker that does not know one of them refuses, and the staging is tried again until a
newer worker takes it. A run spec that requires something is stored in a form that workers from
before this rule cannot read, which then fail likewise.
"""

import json
from typing import Any

from pydantic import Field

from activities.secrets.sealing import site_box
from activities.settings import settings
from activities.storage.blobs import blob_store
from activities.storage.datastore_access import RegionalData
from activities.storage.names import run_spec_name
from workflows.contracts.artifacts import ArtifactRole, Content
from workflows.contracts.base import Contract
from workflows.contracts.devices import OutputBuffer
from workflows.contracts.federation import FederatedRun
from workflows.contracts.jobs import WorkerAssignment
from workflows.contracts.nodes import NodeAddress


class RegionCache(Contract):
    """The region cache on the storage node of a region."""

    node: NodeAddress
    """The address by which the platform brings code to the region cache."""
    address: str
    """host:port, by which machines of the region read from the region cache."""
    is_secure: bool = False
    """Whether it speaks TLS; the cache of a node that an earlier release prepared does not."""
    has_packages: bool = True
    """Whether packages come through it."""
    wants_same_index: bool = False
    """Whether they do only where the machine's own index is that of the cache: on an own machine,
    whose owner may have set up another one."""


class Isolation(Contract):
    """What keeps a run apart from others on its node, and which node that is.

    It is sealed with the run spec, so that nobody who can only write to Temporal decides it.
    """

    node_id: str
    minion_id: str
    login_user: str
    job_user: str | None = None
    """The account of jobs; None: the run has the login user, where that is not root."""
    gpu_uuids: tuple[str, ...] = ()
    runtimes: tuple[str, ...] = ("process",)
    cpu_count: int = 0
    memory_bytes: int = 0
    owned: bool | None = None
    """Whether the node is of the account that owns the job's project, so that the run is built and
    pulled with what that owner has set up there; None: an earlier release, which placed jobs on
    owned nodes alone, has sealed it."""
    allows_apt_packages: bool | None = None
    """Whether Debian packages of the run are installed on the node itself, and not into the run's
    own root; None: as before, on the node, sealed by an earlier release."""
    machine_is_image: bool = False
    """Whether the rented machine is a container of the run's image, which nobody pulls there: the
    run is a process in it."""

    def difference(self, node: NodeAddress, assignment: WorkerAssignment) -> str | None:
        """What a command from outside of the seal says otherwise; None: it says the same."""
        pairs = {
            "node": (self.node_id, node.node_id),
            "minion id": (self.minion_id, node.minion_id),
            "login user": (self.login_user, node.user),
            "job user": (self.job_user, assignment.job_user),
            "GPUs": (self.gpu_uuids, assignment.gpu_uuids),
        }
        found = (
            f"{name} {given}, sealed {own}" for name, (own, given) in pairs.items() if own != given
        )
        return next(found, None)


class RunContent(Contract):
    """A dataset, model, checkpoint or volume of a run, and the folder in which the run finds it."""

    artifact_id: str
    role: ArtifactRole
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")
    """The name of the folder: that of the artifact, or its id."""
    content: Content
    place: str = ""
    """Where the content is stored, of a volume that a job has written; empty: as the artifact."""
    most_bytes: int | None = None
    """The most bytes that a volume may have which the run writes to."""

    @property
    def stored_at(self) -> str:
        """What names the content in the object store."""
        return self.place or self.artifact_id


class RunSpecTooNewError(ValueError):
    """The error for a run spec that requires what this release does not know."""


class RunHostname(Contract):
    """The hostname that the node of a run publishes by mDNS while the run is there."""

    reservation_id: str
    hostname: str = Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")
    """One label, to which `.local` is added."""
    order: int
    """Higher for whoever got the reservation later: a node leaves the hostname to the later one."""
    address: str
    """The address of the node for its peers, by which it finds the region's link."""


class RunSpec(Contract):
    """Everything that a node must know of one run and a workflow must not."""

    run_id: str
    command: str
    environment: dict[str, str] = Field(default_factory=dict, repr=False)
    """Variables and resolved secrets."""
    key_files: dict[str, str] = Field(default_factory=dict, repr=False)
    """By name, the files of the third-party keys that the run gets."""
    key_paths: dict[str, str] = Field(default_factory=dict)
    """Variables that name such files, with `{keys}` for their folder."""
    image: str | None = None
    registry_login: str | None = Field(default=None, repr=False)
    """USER:PASSWORD of the image's registry, by the project's own key; None: it is pulled without
    one."""
    python_packages: tuple[str, ...] = ()
    apt_packages: tuple[str, ...] = ()
    requirements: str | None = None
    """The file of the code that names further packages."""
    setup: tuple[str, ...] = ()
    """What runs before the command."""
    code_sha256: str | None = None
    input_sha256: str | None = None
    """The uploaded archive that becomes the input folder."""
    contents: tuple[RunContent, ...] = ()
    """What the run has of datasets, a model, checkpoints and volumes."""
    datastores: dict[str, RegionalData] = Field(default_factory=dict, repr=False)
    """By folder of the run, `input` or `output`, the folder of a datastore that it stands for."""
    output_buffer: OutputBuffer | None = None
    """Of a device: what it keeps of its output; None: of a job, or the output is no datastore's."""
    disk_size_gb: int = 10
    grace_s: int = 10
    idle_timeout_s: int | None = None
    """The longest idle time of the run on a leased machine; None: no limit."""
    port: int | None = None
    is_port_private: bool = False
    """Whether the port is reached by sessions alone, as that of a notebook or an endpoint without a
    reservation."""
    hostname: RunHostname | None = None
    """What the node publishes for the run; None: its job has no reservation."""
    isolation: Isolation | None = None
    """None: an earlier release has sealed the run spec."""
    cache: RegionCache | None = None
    """The region cache for a leased node; None: the platform brings all files to the node."""
    federation: FederatedRun | None = None
    """How the run of a federated job is confined; None: it is of no federated job."""
    model_key: str | None = Field(default=None, repr=False)
    """The key of the sealed model, 32 bytes in hexadecimal; None: no model of it is sealed, or its
    key needs an attestation."""


NOT_REQUIRED = frozenset(
    {
        "run_id", "command", "environment", "image", "python_packages", "apt_packages",
        "requirements", "setup", "code_sha256", "input_sha256", "disk_size_gb", "grace_s",
        "idle_timeout_s", "port", "is_port_private", "isolation", "cache",
    }
)  # fmt: skip
"""The fields that every worker knows, from before run specs named what they require."""


def required_by(spec: RunSpec) -> list[str]:
    """The fields whose values a worker must know, because they are not the defaults."""
    found = spec.model_fields_set - NOT_REQUIRED
    fields = RunSpec.model_fields
    return sorted(
        name
        for name in found
        if getattr(spec, name) != fields[name].get_default(call_default_factory=True)
    )


def _encoded(spec: RunSpec) -> str:
    if not (requires := required_by(spec)):
        return spec.model_dump_json()
    return json.dumps({"requires": requires, "run_spec": spec.model_dump(mode="json")})


def _decoded(content: bytes) -> RunSpec:
    document: dict[str, Any] = json.loads(content)
    if "requires" not in document:
        return RunSpec.model_validate(document)
    if unknown := sorted(set(document["requires"]) - RunSpec.model_fields.keys()):
        found = ", ".join(unknown)
        raise RunSpecTooNewError(f"it requires {found}, which this worker's release does not know")
    return RunSpec.model_validate(document["run_spec"])


def seal_run_spec(job_id: str, attempt: int, worker: int, region_id: str, spec: RunSpec) -> str:
    """Store a sealed run spec of a job; return its name. A second call replaces it. Blocks."""
    return seal_spec(run_spec_name(job_id, attempt, worker), region_id, spec)


def seal_spec(reference: str, region_id: str, spec: RunSpec) -> str:
    """Store a sealed run spec under this name, and return the name. Blocks."""
    sealed = site_box(region_id).seal(_encoded(spec).encode(), reference.encode())
    blob_store(settings().storage).put(reference, sealed)
    return reference


def open_run_spec(reference: str, region_id: str) -> RunSpec:
    """The run spec of this name. Blocks.

    Raises: BlobMissingError, when there is none; SealBrokenError, when it was sealed for another
    site; RunSpecTooNewError.
    """
    sealed = blob_store(settings().storage).get(reference)
    return _decoded(site_box(region_id).open(sealed, reference.encode()))
