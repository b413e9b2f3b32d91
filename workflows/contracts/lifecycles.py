"""What all lifecycles share: their nouns, the signals that several take, and the steps they record.

A new noun is a line of `LIFECYCLE_NOUNS` and one of the changes that `record` takes.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

from pydantic import Field

from workflows.contracts.artifacts import (
    CheckpointEvent,
    Content,
    DatasetEvent,
    ModelEvent,
    VolumeEvent,
)
from workflows.contracts.base import Contract
from workflows.contracts.billing import WorkerUsage
from workflows.contracts.datastores import DatastoreEvent, DatastoreWay
from workflows.contracts.deliveries import DeliveryStatus
from workflows.contracts.deployments import DeploymentEvent, DeploymentStatus, RolloutCounts
from workflows.contracts.devices import AssignmentOutcome, DeviceAssignment, DeviceEvent, DeviceRun
from workflows.contracts.events import (
    Event,
    JobEvent,
    LeaseEvent,
    NodeEvent,
    ProviderEvent,
    RegionEvent,
)
from workflows.contracts.federation import FederatedEvent, FederatedStatus
from workflows.contracts.jobs import JobEnding, WorkerProgress
from workflows.contracts.leases import ReleaseProgress
from workflows.contracts.machines import MachineOffer
from workflows.contracts.nodes import Hardware, IdleWorkloadFacts, Preparation, Requirement
from workflows.contracts.providers import Check, CloudResource
from workflows.contracts.removals import Removal
from workflows.contracts.statuses import JobStatus, LeaseStatus


@dataclass(frozen=True)
class LifecycleNoun:
    """A noun whose resources have a lifecycle, as ids, URLs, events and workflows name it."""

    prefix: str
    """Of the ids: `job` of `job-01jd…`."""
    name: str
    plural: str
    workflow: str
    events: type[StrEnum]
    final_statuses: frozenset[str] = frozenset({"archived"})
    """In these the workflow has ended, and nothing takes signals any more."""
    folder: str = ""
    """The folder of its lifecycle in `workflows/`; empty: that of its plural."""

    @property
    def module(self) -> str:
        """The module of its lifecycle, such as `workflows.nodes.node_lifecycle`."""
        file = f"{self.workflow.removesuffix('Lifecycle').lower()}_lifecycle"
        return f"workflows.{self.folder or self.plural}.{file}"


PROVIDER = LifecycleNoun("prv", "provider", "providers", "ProviderLifecycle", ProviderEvent)
REGION = LifecycleNoun("reg", "region", "regions", "RegionLifecycle", RegionEvent)
NODE = LifecycleNoun("nod", "node", "nodes", "NodeLifecycle", NodeEvent)
LEASE = LifecycleNoun(
    "lea",
    "lease",
    "leases",
    "LeaseLifecycle",
    LeaseEvent,
    frozenset(status for status in LeaseStatus if status.is_final),
)
JOB = LifecycleNoun(
    "job",
    "job",
    "jobs",
    "JobLifecycle",
    JobEvent,
    frozenset(status for status in JobStatus if status.is_final),
)


def _artifact(prefix: str, name: str, events: type[StrEnum]) -> LifecycleNoun:
    return LifecycleNoun(prefix, name, f"{name}s", "ArtifactLifecycle", events, folder="artifacts")


DATASET = _artifact("dat", "dataset", DatasetEvent)
MODEL = _artifact("mod", "model", ModelEvent)
CHECKPOINT = _artifact("chk", "checkpoint", CheckpointEvent)
VOLUME = _artifact("vol", "volume", VolumeEvent)
ARTIFACT_NOUNS = (DATASET, MODEL, CHECKPOINT, VOLUME)
"""The nouns of stored files, which have one lifecycle."""
DATASTORE = LifecycleNoun("dst", "datastore", "datastores", "DatastoreLifecycle", DatastoreEvent)
DEVICE = LifecycleNoun("dev", "device", "devices", "DeviceLifecycle", DeviceEvent)
DEPLOYMENT = LifecycleNoun(
    "dpl",
    "deployment",
    "device-deployments",
    "DeploymentLifecycle",
    DeploymentEvent,
    frozenset(status for status in DeploymentStatus if status.is_final),
    folder="devices",
)
FEDERATED = LifecycleNoun(
    "fed",
    "federated",
    "federated-jobs",
    "FederatedLifecycle",
    FederatedEvent,
    frozenset(status for status in FederatedStatus if status.is_final),
    folder="federation",
)
LIFECYCLE_NOUNS = (
    PROVIDER, REGION, NODE, LEASE, JOB, *ARTIFACT_NOUNS, DATASTORE, DEVICE, DEPLOYMENT, FEDERATED,
)  # fmt: skip


def noun_of(resource_id: str) -> LifecycleNoun:
    """The noun of `job-01jd…`. Raises: ValueError, when no lifecycle has ids like this."""
    prefix = resource_id.partition("-")[0]
    for noun in LIFECYCLE_NOUNS:
        if noun.prefix == prefix:
            return noun
    raise ValueError(f"{resource_id}: no lifecycle has ids like this")


def workflow_id_of(resource_id: str) -> str:
    """`job/job-01jd…`, the same for as long as the resource is there.

    Raises: ValueError, when no lifecycle has ids like this.
    """
    return f"{noun_of(resource_id).name}/{resource_id}"


class Refresh(Contract):
    """Signal `refresh`: poll the site, provider or machine of the lifecycle now."""


class Wake(Contract):
    """Signal `wake`, which is empty: what is wanted in the row has changed, so read the row."""


class ProviderChanges(Contract):
    noun: Literal["provider"] = "provider"
    checks: tuple[Check, ...] | None = None
    resources: tuple[CloudResource, ...] | None = None
    removal: Removal | None = None


class RegionChanges(Contract):
    """Fields that are None stay as they are."""

    noun: Literal["region"] = "region"
    removal: Removal | None = None


class HostChanges(Contract):
    """What changes in a node as in a device. Fields that are None stay as they are."""

    minion_id: str | None = None
    host: str | None = None
    port: int | None = None
    user: str | None = None
    hardware: Hardware | None = None
    requirements: tuple[Requirement, ...] | None = None
    preparation: Preparation | None = None
    seen_revision: int | None = None
    """The revision of the wanted status that the lifecycle has read and followed."""
    removal: Removal | None = None

    def known(self) -> dict[str, Any]:
        """The fields that are set, by name."""
        return {name: getattr(self, name) for name in self.model_fields_set}


class NodeChanges(HostChanges):
    noun: Literal["node"] = "node"
    idle_workload: IdleWorkloadFacts | None = None


class DeviceChanges(HostChanges):
    """Fields that are None stay as they are."""

    noun: Literal["device"] = "device"
    run: DeviceRun | None = None
    """What the device said last of its inference."""
    deploying: DeviceAssignment | None = None
    """The assignment that the device is about to follow."""
    outcome: AssignmentOutcome | None = None
    """An assignment that came to an end on the device; its deployment is woken with this step."""


class DeploymentChanges(Contract):
    """Fields that are None stay as they are."""

    noun: Literal["deployment"] = "deployment"
    counts: RolloutCounts | None = None
    deadline: datetime | None = None
    accepted_lost: int | None = None
    """How many lost devices a person goes on with."""


class FederatedChanges(Contract):
    """Fields that are None stay as they are."""

    noun: Literal["federated"] = "federated"
    creator_reason: str | None = None
    """The reason with the causes of the creator's side; the status reason is for both parties."""
    consumer_reason: str | None = None


class JobChanges(Contract):
    """Fields that are None stay as they are."""

    noun: Literal["job"] = "job"
    attempt: int | None = None
    workers: tuple[WorkerProgress, ...] | None = None
    output_bytes: int | None = None
    log_bytes: int | None = None
    """The stored logs of all attempts that have ended."""
    state_bytes: int | None = None
    """The stored state snapshots."""
    delivery_status: DeliveryStatus | None = None
    confirms: tuple[str, ...] = ()
    """The allocations that the job takes over with this step, which is not written unless all of
    them are live."""
    restarts: int | None = None
    retries: int | None = None
    retry_at: datetime | None = None
    """When the pause before a retry ends. Written as it is: None says that there is no pause."""
    ran_s: int | None = None
    unsettled: tuple[WorkerUsage, ...] | None = None
    """The usage that could not be posted, for the reconciliation; empty: all is posted."""
    ending: JobEnding | None = None
    """Written as it is: None says that the job is not asked to end."""
    release: bool = False
    """Release the job's allocations in the same transaction."""
    leaving: tuple[str, ...] = ()
    """The allocations among them whose runs nobody has seen end: they go over to their nodes."""
    staying_nodes: tuple[str, ...] = ()
    """Of those that were made for it: they are not asked to leave with that."""


class LeaseChanges(Contract):
    """Fields that are None stay as they are."""

    noun: Literal["lease"] = "lease"
    offer: MachineOffer | None = None
    provider_machine_id: str | None = None
    host: str | None = None
    port: int | None = None
    user: str | None = None
    minion_id: str | None = None
    microcredits_per_hour: int | None = None
    began_at: datetime | None = None
    ended_at: datetime | None = None
    earlier_microcredits: int | None = None
    """What the machines of earlier offers have cost that were not kept."""
    ending: ReleaseProgress | None = None
    is_another: bool = False
    """What is known of the machine of an earlier offer is not about this one."""


class ArtifactChanges(Contract):
    """Fields that are None stay as they are."""

    noun: Literal["dataset", "model", "checkpoint", "volume"]
    content: Content | None = None
    removal: Removal | None = None


class DatastoreChanges(Contract):
    """Fields that are None stay as they are."""

    noun: Literal["datastore"] = "datastore"
    way: DatastoreWay | None = None
    """How the node that has checked it last reaches it."""
    removal: Removal | None = None


Changes = (
    ProviderChanges
    | RegionChanges
    | NodeChanges
    | JobChanges
    | LeaseChanges
    | ArtifactChanges
    | DatastoreChanges
    | DeviceChanges
    | DeploymentChanges
    | FederatedChanges
)


class Record(Contract):
    """One step: applied once, in order; an older or repeated one changes nothing."""

    resource_id: str
    account_id: str
    sequence: int
    at: datetime
    status: str
    status_reason: str | None = None
    events: tuple[Event, ...] = ()
    changes: Changes = Field(discriminator="noun")
    run_id: str = ""
    history_length: int = 0
    """The workflow run that records the step, and how long its history is then."""


class Recorded(Contract):
    applied: bool
    """False: this step, or a later one, had been written before; or it was not confirmed."""
    confirmed: bool = True
    """False: the step was to confirm allocations that are not live any more."""
    sequence: int = 0
    """Of the last step that the row has; higher than the written one when the row is ahead."""
    is_stale: bool = False
    """Whether this run does not know that later step. A run whose worker was killed writes steps
    once more that it has written before, and is not stale."""
