"""Work orders: what one node needs to run one worker, sealed for the site of its region.

Written by an activity that reads rows, opened by one that talks to nodes; between them the order
lies in the object store, and workflows know only its place.
"""

from pydantic import Field

from activities.secrets.sealing import site_box
from activities.settings import settings
from activities.storage.blobs import blob_store
from activities.storage.names import run_spec_name
from workflows.contracts.base import Contract
from workflows.contracts.nodes import NodeAddress


class RegionCache(Contract):
    """The cache of a region in a cloud, on its storage node."""

    node: NodeAddress
    """By which the platform brings code to it."""
    address: str
    """host:port, by which machines of the region fetch from it."""


class RunSpec(Contract):
    """Everything that a node must know of one worker and a workflow must not."""

    run_id: str
    command: str
    environment: dict[str, str] = Field(default_factory=dict, repr=False)
    """Variables and resolved secrets."""
    image: str | None = None
    python_packages: tuple[str, ...] = ()
    apt_packages: tuple[str, ...] = ()
    code_sha256: str | None = None
    input_sha256: str | None = None
    """The uploaded archive that becomes the input folder."""
    disk_size_gb: int = 10
    grace_s: int = 10
    idle_timeout_s: int | None = None
    """How long it may do nothing on a machine that is rented; None: as long as it likes."""
    port: int | None = None
    cache: RegionCache | None = None
    """Of the region that the node was leased in; None: everything is brought to the node itself."""


def seal_run_spec(job_id: str, attempt: int, worker: int, region_id: str, order: RunSpec) -> str:
    """Store an order; its place. Doing it again replaces it. Blocking."""
    reference = run_spec_name(job_id, attempt, worker)
    content = order.model_dump_json().encode()
    sealed = site_box(region_id).seal(content, reference.encode())
    blob_store(settings().storage).put(reference, sealed)
    return reference


def open_run_spec(reference: str, region_id: str) -> RunSpec:
    """The order at a place. Blocking.

    Raises: BlobMissingError; SealBrokenError where it was sealed for another site.
    """
    sealed = blob_store(settings().storage).get(reference)
    return RunSpec.model_validate_json(site_box(region_id).open(sealed, reference.encode()))
