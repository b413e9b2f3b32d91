"""Effects of the reconciliation: the outbox, lost workflows, machines without a lease."""

from workflows.contracts.base import Contract
from workflows.effects.effect import Effect


class RelayOutbox(Contract):
    """Deliver what the API has written down and could not relay: at most `limit`."""

    older_than_s: float = 5
    limit: int = 500


class OutboxRelayed(Contract):
    delivered: int
    more: bool = False


class RestartLostWorkflows(Contract):
    """Find what has lost its workflow, `page_size` rows at a time."""

    page_size: int = 200


class LostWorkflowsRestarted(Contract):
    restarted: tuple[str, ...] = ()


class ReconcileMachines(Contract):
    """Compare every provider's list of machines with the leases."""


class MachinesReconciled(Contract):
    released: tuple[str, ...] = ()
    """Machines that nobody held, by name: their end was asked for."""
    unknown: tuple[str, ...] = ()
    """Machines with our ownership label that no lease names: for a person to look at."""
    missing: tuple[str, ...] = ()
    """Leases that are ready, and whose machine is not listed: they were told to look."""
    failed: tuple[str, ...] = ()
    """Providers that could not be asked, and why."""

    def plus(self, **more: tuple[str, ...]) -> "MachinesReconciled":
        return MachinesReconciled(
            **{name: getattr(self, name) + more.get(name, ()) for name in type(self).model_fields}
        )


relay_outbox = Effect("relay_outbox", RelayOutbox, OutboxRelayed)
"""Start the workflows and send the signals that the API's rows ask for and nobody has sent."""

restart_lost_workflows = Effect(
    "restart_lost_workflows",
    RestartLostWorkflows,
    LostWorkflowsRestarted,
    start_to_close_s=240,
    heartbeat_s=60,
)
"""Rows in an open state whose workflow is gone: start it again; a job then ends what it left."""

reconcile_machines = Effect(
    "reconcile_machines",
    ReconcileMachines,
    MachinesReconciled,
    start_to_close_s=240,
    heartbeat_s=60,
)
"""What carries our ownership label at a provider and no lease holds is ended."""
