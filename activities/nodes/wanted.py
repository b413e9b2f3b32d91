"""The wanted status of a node: requested by a person, read by the node's lifecycle."""

from temporalio import activity

from activities.db.session import database
from activities.db.tables import Account, Node
from activities.storage.idle_workload import IdleWorkload, seal_idle_workload
from workflows.contracts.statuses import NodeStatus
from workflows.effects.nodes import FindWantedStatus, IdleWorkloadWanted, WantedStatusFound


def want(row: Node, status: NodeStatus) -> None:
    """Set the wanted status of a locked row; a repeated request counts as another one."""
    row.wanted_status, row.wanted_revision = status, row.wanted_revision + 1


@activity.defn
def find_wanted_status(command: FindWantedStatus) -> WantedStatusFound:
    """The wanted status of the node, if its lifecycle has not followed it yet."""
    with database().read() as session:
        row = session.get(Node, command.node_id)
        account = None if row is None else session.get(Account, row.account_id)
    if row is None or account is None:
        return WantedStatusFound()
    idle_workload = _idle_workload(row, account)
    has_console = bool((row.preparation or {}).get("has_console"))
    if row.wanted_status is None or row.wanted_revision <= row.seen_revision:
        return WantedStatusFound(idle_workload=idle_workload, has_console=has_console)
    return WantedStatusFound(
        status=NodeStatus(row.wanted_status),
        revision=row.wanted_revision,
        idle_workload=idle_workload,
        has_console=has_console,
    )


def can_be_idle(row: Node) -> bool:
    """Whether a node can have an idle workload: it takes jobs, and nobody rents its machine."""
    return row.machine is None and "compute" in row.services


def _idle_workload(row: Node, account: Account) -> IdleWorkloadWanted | None:
    """What is wanted while the node is active; None: nothing, and nothing ever was."""
    if not can_be_idle(row) or not (row.mining or row.idle_workload):
        return None
    if not row.mining or not account.idle_workload or not account.wallets:
        return IdleWorkloadWanted()
    workload = IdleWorkload.model_validate(account.idle_workload)
    wallets = {f"BASELOAD_WALLET_{coin}": at for coin, at in account.wallets.items()}
    workload = workload.model_copy(update={"environment": {**workload.environment, **wallets}})
    sealed = seal_idle_workload(workload, row.region_id, row.id)
    return IdleWorkloadWanted(revision=str(account.idle_revision), sealed=sealed)
