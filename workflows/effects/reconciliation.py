"""Effects of reconciliation: the outbox, lost workflows, machines against leases."""

from datetime import datetime

from workflows.contracts import queues
from workflows.contracts.base import Contract
from workflows.contracts.errors import NON_RETRYABLE_AT_PROVIDERS
from workflows.effects.effect import HEARTBEAT_S, CloudCommand, Effect


class RelayOutbox(Contract):
    """Relay the due outbox rows of at most `limit` resources that are older than `older_than_s`."""

    older_than_s: float = 5
    limit: int = 500


class OutboxRelayed(Contract):
    delivered: int
    more: bool = False


class RestartLostWorkflows(Contract):
    """Find lost workflows, `page_size` rows at a time, and restart them."""

    page_size: int = 200


class LostWorkflowsRestarted(Contract):
    restarted: tuple[str, ...] = ()


class ReconcileMachines(CloudCommand):
    """Compare the machines that a provider lists with its leases."""

    provider_id: str
    is_ready: bool = False
    """Whether the provider is ready, so that its notifications are received."""


class MachinesReconciled(Contract):
    released: tuple[str, ...] = ()
    """The names of machines whose lease does not need them; their termination was requested."""
    unknown: tuple[str, ...] = ()
    """Orphaned machines, for a person to decide on."""
    missing: tuple[str, ...] = ()
    """Ready leases whose machine the provider does not list; they were signalled `refresh`."""
    failed: tuple[str, ...] = ()
    """Machines that could not be terminated and leases that could not be read, and why."""
    reconciled_at: datetime | None = None
    """When the comparison began; None: it is not complete, because something has failed."""


relay_outbox = Effect("relay_outbox", RelayOutbox, OutboxRelayed)
"""Start the workflows and send the signals of outbox rows that are not relayed yet."""

restart_lost_workflows = Effect(
    "restart_lost_workflows",
    RestartLostWorkflows,
    LostWorkflowsRestarted,
    start_to_close_s=240,
    heartbeat_s=60,
)
"""Restart lost workflows; the workflow of a job then ends what its lost run left."""

reconcile_machines = Effect(
    "reconcile_machines",
    ReconcileMachines,
    MachinesReconciled,
    queue=queues.CLOUD,
    start_to_close_s=240,
    schedule_to_close_s=300,
    heartbeat_s=HEARTBEAT_S,
    retry_first_s=5,
    non_retryable=NON_RETRYABLE_AT_PROVIDERS,
)
"""Terminate machines whose lease does not need them, and report orphaned and missing machines."""
