"""Which queue is served by what: workflows and activities of each kind of worker."""

from temporalio.worker import WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxRestrictions

from workers.sandbox import QuietSandbox
from workflows.billing import JobBilling
from workflows.job import JobLifecycle
from workflows.machine import MachineLifecycle
from workflows.news import ProviderNews
from workflows.node import NodeLifecycle
from workflows.placement import PlacementLoop
from workflows.provider import ProviderLifecycle
from workflows.region import RegionLifecycle
from workflows.sweep import MachineSweep, PriceRefresh, Starts, Sweep

WORKFLOWS = (
    ProviderLifecycle,
    RegionLifecycle,
    NodeLifecycle,
    JobLifecycle,
    JobBilling,
    MachineLifecycle,
    ProviderNews,
    PlacementLoop,
    Starts,
    Sweep,
    MachineSweep,
    PriceRefresh,
)


def workflow_runner() -> WorkflowRunner:
    """The sandbox, with our own pure package passed through once instead of per run."""
    restrictions = SandboxRestrictions.default.with_passthrough_modules("workflows")
    return QuietSandbox(restrictions=restrictions)
