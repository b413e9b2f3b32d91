"""Effects of reconciliation: the outbox, lost workflows, machines against leases."""

from workflows.contracts.base import Contract
from workflows.effects.effect import Effect


class RelayOutbox(Contract):
    """Relay at most `limit` outbox rows that are older than `older_than_s`."""

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


class ReconcileMachines(Contract):
    """Compare the machines that every provider lists with the leases."""


class MachinesReconciled(Contract):
    released: tuple[str, ...] = ()
    """The names of machines whose lease does not need them; their termination was requested."""
    unknown: tuple[str, ...] = ()
    """Orphaned machines, for a person to decide on."""
    missing: tuple[str, ...] = ()
    """Ready leases whose machine the provider does not list; they were signalled `refresh`."""
    failed: tuple[str, ...] = ()
    """Providers whose machines could not be listed, and why."""

    def plus(self, **more: tuple[str, ...]) -> "MachinesReconciled":
        return MachinesReconciled(
            **{name: getattr(self, name) + more.get(name, ()) for name in type(self).model_fields}
        )


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
    start_to_close_s=240,
    heartbeat_s=60,
)
"""Terminate machines whose lease does not need them, and report orphaned and missing machines."""
