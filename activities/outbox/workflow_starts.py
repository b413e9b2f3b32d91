"""From a row to the start of its workflow: name, id, argument and what it is found by."""

from dataclasses import dataclass
from typing import Any

from sqlmodel import Session
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

from activities.db import tables
from activities.settings import settings
from workflows.contracts.base import Contract
from workflows.contracts.job_submission import JobSubmission
from workflows.contracts.jobs import JobRequest
from workflows.contracts.leases import LeaseRequest
from workflows.contracts.machines import MachineClaim, MachineOffer, MachineSpec
from workflows.contracts.nodes import NodeRequest
from workflows.contracts.providers import ProviderRequest
from workflows.contracts.regions import RegionRequest
from workflows.contracts.statuses import JobStatus, JobType, NodeType, ProviderKind
from workflows.rules.jobs.resources import resources_of

NOUNS = {"prv": "provider", "reg": "region", "nod": "node", "job": "job", "lea": "lease"}
TABLES: dict[str, type[tables.LifecycleRow]] = {
    "prv": tables.Provider,
    "reg": tables.Region,
    "nod": tables.Node,
    "job": tables.Job,
    "lea": tables.Lease,
}


@dataclass(frozen=True)
class WorkflowStart:
    """All that Temporal is told when the workflow of a resource is started."""

    workflow: str
    id: str
    argument: Contract
    search_attributes: TypedSearchAttributes
    summary: str


def prefix_of(resource_id: str) -> str:
    """`job` of `job-01jd…`. Raises: ValueError, when it is no lifecycle's."""
    prefix = resource_id.partition("-")[0]
    if prefix not in NOUNS:
        raise ValueError(f"{resource_id}: no lifecycle has ids like this")
    return prefix


def workflow_id_of(resource_id: str) -> str:
    """`job/job-01jd…`, the same for as long as the resource is there."""
    return f"{NOUNS[prefix_of(resource_id)]}/{resource_id}"


def row_of(session: Session, resource_id: str) -> tables.LifecycleRow | None:
    """The row of a lifecycle's resource."""
    return session.get(TABLES[prefix_of(resource_id)], resource_id)


def start_of(
    session: Session, row: tables.LifecycleRow, argument: dict[str, Any] | None = None
) -> WorkflowStart:
    """The start of a row's workflow; argument: of the request, such as `{"removal": true}`."""
    if isinstance(row, tables.Provider):
        return _start_of_provider(row)
    if isinstance(row, tables.Region):
        return _start_of_region(row)
    if isinstance(row, tables.Node):
        return _start_of_node(row, session.get_one(tables.Region, row.region_id))
    if isinstance(row, tables.Job):
        return _start_of_job(row, removal=bool((argument or {}).get("removal")))
    if isinstance(row, tables.Lease):
        return _start_of_machine(row)
    raise TypeError(f"{row.id}: a {type(row).__name__} has no workflow")


def _start_of_provider(row: tables.Provider) -> WorkflowStart:
    request = ProviderRequest(
        provider_id=row.id,
        account_id=row.account_id,
        kind=ProviderKind(row.kind),
        sequence=row.sequence,
    )
    return _start("ProviderLifecycle", row, request, {"ProviderKind": row.kind})


def _start_of_region(row: tables.Region) -> WorkflowStart:
    request = RegionRequest(
        region_id=row.id,
        account_id=row.account_id,
        provider_id=row.provider_id,
        provider_kind=ProviderKind(row.provider_kind),
        name=row.name,
        cloud_region=row.cloud_region or "",
        sequence=row.sequence,
    )
    found_by = {"RegionId": row.id, "ProviderKind": row.provider_kind}
    return _start("RegionLifecycle", row, request, found_by)


def _start_of_node(row: tables.Node, region: tables.Region) -> WorkflowStart:
    request = NodeRequest(
        node_id=row.id,
        account_id=row.account_id,
        region_id=row.region_id,
        name=row.name,
        minion_id=row.minion_id,
        type=NodeType(row.type),
        services=tuple(row.services),
        machine=None if row.machine is None else MachineClaim.model_validate(row.machine),
        host=row.host,
        port=row.port,
        user=row.user,
        root=region.node_root,
        exclusive=region.exclusive_nodes,
        public=region.public,
        central_storage=region.storage_mode == "central",
        relaxed_requirements=tuple(region.relaxed_requirements),
        sequence=row.sequence,
    )
    found_by = {"RegionId": row.region_id, "NodeId": row.id, "ProviderKind": region.provider_kind}
    return _start("NodeLifecycle", row, request, found_by)


def _start_of_job(row: tables.Job, *, removal: bool) -> WorkflowStart:
    spec = JobSubmission.model_validate(row.spec)
    gpu_types = resources_of(spec).gpu_types
    chosen = settings()
    request = JobRequest(
        job_id=row.id,
        account_id=row.account_id,
        project_id=row.project_id,
        name=row.name,
        type=JobType(row.type),
        worker_count=len(spec.workers),
        gpu_types=gpu_types,
        end_all_on_failure=spec.safety.end_all_on_failure,
        keeps_output=spec.keeps_output,
        grace_s=chosen.job_end_grace_s,
        unreachable_limit_s=chosen.job_unreachable_limit_s,
        billing_period_s=chosen.billing_period_s,
        max_restarts=spec.safety.max_restarts,
        state_interval_s=chosen.state_interval_s,
        auto_terminate=spec.safety.auto_terminate,
        idle_timeout_s=spec.idle_timeout_s,
        removal=removal or row.status == JobStatus.REMOVING,
        sequence=row.sequence,
    )
    found_by = {"ProjectId": row.project_id, "JobType": row.type}
    if gpu_types:
        found_by["GpuType"] = gpu_types[0]
    return _start("JobLifecycle", row, request, found_by)


def _start_of_machine(row: tables.Lease) -> WorkflowStart:
    request = LeaseRequest(
        lease_id=row.id,
        account_id=row.account_id,
        region_id=row.region_id,
        provider_id=row.provider_id,
        provider_kind=ProviderKind(row.provider_kind),
        machine_name=row.name,
        holder_id=row.holder_id,
        offers=tuple(MachineOffer.model_validate(offer) for offer in row.offers),
        spec=MachineSpec.model_validate(row.spec),
        price_cap_microcredits_per_hour=row.price_cap_microcredits_per_hour,
        deadline=row.deadline,
        sequence=row.sequence,
    )
    found_by = {"RegionId": row.region_id, "ProviderKind": row.provider_kind}
    return _start("LeaseLifecycle", row, request, found_by)


def _start(
    workflow: str, row: tables.LifecycleRow, argument: Contract, found_by: dict[str, str]
) -> WorkflowStart:
    named = {"AccountId": row.account_id, "ResourceStatus": row.status, **found_by}
    pairs = [
        SearchAttributePair(SearchAttributeKey.for_keyword(name), value)
        for name, value in named.items()
    ]
    return WorkflowStart(
        workflow=workflow,
        id=workflow_id_of(row.id),
        argument=argument,
        search_attributes=TypedSearchAttributes(pairs),
        summary=f"{NOUNS[prefix_of(row.id)]} {row.name}",
    )
