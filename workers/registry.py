"""The workflows that the main worker serves, and the sandbox that runs them."""

from importlib import import_module

from temporalio.worker import WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxRestrictions

from workers.sandbox import QuietSandbox, visit_payloads_only_with_codec
from workflows.billing.balance_guard import BalanceGuard
from workflows.billing.device_fees import DeviceFees
from workflows.billing.job_billing import JobBilling
from workflows.billing.payouts import Payouts
from workflows.contracts.lifecycles import LIFECYCLE_NOUNS, LifecycleNoun
from workflows.placement.loop import PlacementLoop
from workflows.providers.notifications import ProviderNotifications
from workflows.providers.offer_refresh import OfferRefresh
from workflows.providers.price_refresh import PriceRefresh
from workflows.reconciliation.reconcilers import (
    Housekeeping,
    LifecycleReconciliation,
    OutboxRelay,
)
from workflows.sessions.trunk_opening import TrunkOpening


def _lifecycle_of(noun: LifecycleNoun) -> type:
    """The lifecycle of a noun, such as `NodeLifecycle` of `workflows/nodes/node_lifecycle.py`."""
    found: type = getattr(import_module(noun.module), noun.workflow)
    return found


def _lifecycles() -> tuple[type, ...]:
    """The lifecycles of all nouns; one that several nouns share is there once."""
    return tuple(dict.fromkeys(_lifecycle_of(noun) for noun in LIFECYCLE_NOUNS))


WORKFLOWS: tuple[type, ...] = (
    *_lifecycles(),
    JobBilling,
    DeviceFees,
    Payouts,
    BalanceGuard,
    ProviderNotifications,
    PlacementLoop,
    OutboxRelay,
    LifecycleReconciliation,
    PriceRefresh,
    OfferRefresh,
    Housekeeping,
    TrunkOpening,
)


def workflow_runner() -> WorkflowRunner:
    """The sandbox, which imports our package `workflows` once instead of for each workflow run."""
    visit_payloads_only_with_codec()
    restrictions = SandboxRestrictions.default.with_passthrough_modules("workflows")
    return QuietSandbox(restrictions=restrictions)
