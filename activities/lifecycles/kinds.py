"""The lifecycle kinds, one line for each noun, for the code that all lifecycles share.

The folder of each noun has its `starts.py`; the names of nouns are in
`workflows/contracts/lifecycles.py`.
"""

from typing import Any

from sqlalchemy import ColumnElement
from sqlmodel import col

from activities.artifacts.starts import resume_artifact, start_artifact
from activities.datastores.starts import resume_datastore, start_datastore
from activities.db import tables
from activities.devices.starts import (
    resume_deployment,
    resume_device,
    start_deployment,
    start_device,
)
from activities.federation.starts import resume_federated, start_federated
from activities.jobs.starts import end_job, resume_job, start_job
from activities.leases.starts import resume_lease, start_lease
from activities.nodes.starts import resume_node, start_node
from activities.outbox.workflow_starts import LifecycleKind
from activities.providers.starts import resume_provider, start_provider
from activities.regions.starts import resume_region, start_region
from workflows.contracts.lifecycles import (
    CHECKPOINT,
    DATASET,
    DATASTORE,
    DEPLOYMENT,
    DEVICE,
    FEDERATED,
    JOB,
    LEASE,
    MODEL,
    NODE,
    PROVIDER,
    REGION,
    VOLUME,
)

KINDS: tuple[LifecycleKind[Any, Any], ...] = (
    LifecycleKind(PROVIDER, tables.Provider, start_provider, resume_provider),
    LifecycleKind(REGION, tables.Region, start_region, resume_region),
    LifecycleKind(NODE, tables.Node, start_node, resume_node),
    LifecycleKind(LEASE, tables.Lease, start_lease, resume_lease),
    LifecycleKind(JOB, tables.Job, start_job, resume_job, end_job, starts_for_removal=True),
    LifecycleKind(DATASET, tables.Dataset, start_artifact, resume_artifact),
    LifecycleKind(MODEL, tables.Model, start_artifact, resume_artifact),
    LifecycleKind(CHECKPOINT, tables.Checkpoint, start_artifact, resume_artifact),
    LifecycleKind(VOLUME, tables.Volume, start_artifact, resume_artifact),
    LifecycleKind(DATASTORE, tables.Datastore, start_datastore, resume_datastore),
    LifecycleKind(DEVICE, tables.Device, start_device, resume_device),
    LifecycleKind(DEPLOYMENT, tables.DeviceDeployment, start_deployment, resume_deployment),
    LifecycleKind(FEDERATED, tables.FederatedJob, start_federated, resume_federated),
)
KIND_BY_NOUN = {kind.noun.name: kind for kind in KINDS}


def is_open(kind: LifecycleKind[Any, Any]) -> ColumnElement[bool]:
    """Whether a row has not ended: a failed node still has a workflow, a failed job has none."""
    ended = sorted(str(status) for status in kind.noun.final_statuses)
    return col(kind.table.status).not_in(ended)
