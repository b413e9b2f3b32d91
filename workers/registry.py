"""Which queue is served by what: workflows and activities of each kind of worker."""

from temporalio.worker import WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxRestrictions

from workers.sandbox import QuietSandbox
from workflows.billing.job_billing import JobBilling
from workflows.jobs.job_lifecycle import JobLifecycle
from workflows.leases.lease_lifecycle import LeaseLifecycle
from workflows.nodes.node_lifecycle import NodeLifecycle
from workflows.placement.loop import PlacementLoop
from workflows.providers.notifications import ProviderNotifications
from workflows.providers.price_refresh import PriceRefresh
from workflows.providers.provider_lifecycle import ProviderLifecycle
from workflows.reconciliation.reconcilers import (
    LeaseReconciliation,
    LifecycleReconciliation,
    OutboxRelay,
)
from workflows.regions.region_lifecycle import RegionLifecycle

WORKFLOWS = (
    ProviderLifecycle,
    RegionLifecycle,
    NodeLifecycle,
    JobLifecycle,
    JobBilling,
    LeaseLifecycle,
    ProviderNotifications,
    PlacementLoop,
    OutboxRelay,
    LifecycleReconciliation,
    LeaseReconciliation,
    PriceRefresh,
)


def workflow_runner() -> WorkflowRunner:
    """The sandbox, with our own pure package passed through once instead of per run."""
    restrictions = SandboxRestrictions.default.with_passthrough_modules("workflows")
    return QuietSandbox(restrictions=restrictions)
