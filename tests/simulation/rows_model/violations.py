"""What the rows themselves must never hold, looked for from the beginning, beside every index."""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from activities.billing.payers import credits_name
from tests.simulation.rows_model.ledger import Ledger
from tests.simulation.rows_model.tables import Tables
from workflows.contracts.statuses import AllocationState, NodeStatus


def violations_of(tables: Tables, ledger: Ledger) -> Iterator[str]:
    yield from _held_twice(tables)
    yield from _states(tables)
    yield from _reserved(tables)
    yield from _events(tables)
    yield from _minions(tables)
    yield from _money(tables, ledger)
    yield from _without_credits(tables, ledger)


def _held_twice(tables: Tables) -> Iterator[str]:
    """A GPU or a port of a node with two live allocations, or a run with two."""
    live = [row for row in tables.allocations.values() if row.released_at is None]
    gpus = Counter((row.node_id, index) for row in live for index in row.gpu_indices)
    ports = Counter((row.node_id, row.port) for row in live if row.port is not None)
    runs = Counter((row.job_id, row.worker, row.attempt) for row in tables.allocations.values())
    for (node_id, index), count in gpus.items():
        if count > 1:
            yield f"{node_id}: GPU {index} is allocated {count} times"
    for (node_id, port), count in ports.items():
        if count > 1:
            yield f"{node_id}: port {port} is allocated {count} times"
    for run, count in runs.items():
        if count > 1:
            yield f"{run}: has {count} allocations"


def _states(tables: Tables) -> Iterator[str]:
    """An allocation that is gone and not released, or that an archived node still has."""
    for row in tables.allocations.values():
        if (row.state is AllocationState.GONE) != (row.released_at is not None):
            yield f"{row.id}: is {row.state}, released at {row.released_at}"
        if row.is_leaving and tables.nodes[row.node_id].status == NodeStatus.ARCHIVED:
            yield f"{row.id}: leaves the archived node {row.node_id}"


def _reserved(tables: Tables) -> Iterator[str]:
    """A node whose counters are not the sum of its live allocations, or beyond what it has."""
    cpus: Counter[str] = Counter()
    memory: Counter[str] = Counter()
    for row in tables.allocations.values():
        if row.released_at is None:
            cpus[row.node_id] += row.cpu_count
            memory[row.node_id] += row.memory_bytes
    for node in tables.nodes.values():
        found = node.reserved_cpu_count, node.reserved_memory_bytes
        if found != (cpus[node.id], memory[node.id]):
            yield f"{node.id}: reserves {found}, its allocations hold {cpus[node.id]} CPUs"


def _events(tables: Tables) -> Iterator[str]:
    """A step backwards, an event twice, an event after the row's last step."""
    for resource_id, events in tables.events.items():
        places = [(event.sequence, event.index) for event in events]
        if any(later <= earlier for earlier, later in pairwise(places)):
            yield f"{resource_id}: its events are not in order: {places}"
        row = tables.row(resource_id)
        if places and (row is None or places[-1][0] > row.sequence):
            yield f"{resource_id}: has an event of a later step than its row"


def _minions(tables: Tables) -> Iterator[str]:
    """Two nodes of one account with one machine, or two leases with one machine name."""
    nodes = Counter(
        (node.account_id, node.minion_id) for node in tables.open["node"].values() if node.minion_id
    )
    for (account_id, minion_id), count in nodes.items():
        if count > 1:
            yield f"{account_id}: {count} nodes are the machine {minion_id}"
    for name, count in Counter(row.name for row in tables.leases.values()).items():
        if count > 1:
            yield f"{name}: {count} leases have this name"


def _money(tables: Tables, ledger: Ledger) -> Iterator[str]:
    """Postings that are not balanced, a balance that is not their sum, a meter beside them."""
    sums: Counter[str] = Counter()
    for key, legs in ledger.posted.items():
        sums.update(legs)
        if sum(legs.values()) != 0:
            yield f"{key}: its legs add up to {sum(legs.values())}"
    for name, balance in ledger.balances.items():
        if balance != sums[name]:
            yield f"{name}: has {balance}, its postings add up to {sums[name]}"
    charged: Counter[str] = Counter()
    for meter in tables.meters.values():
        charged[meter.job_id] += meter.posted_microcredits
    for job in tables.jobs.values():
        if job.charged_microcredits != charged[job.id]:
            yield f"{job.id}: is charged {job.charged_microcredits}, posted {charged[job.id]}"


def _without_credits(tables: Tables, ledger: Ledger) -> Iterator[str]:
    """An allocation that costs, made for an account when it had no credits any more."""
    since = {each: ledger.out_since.get(credits_name(each)) for each in tables.accounts}
    if not any(since.values()):
        return
    for row in tables.allocations.values():
        account_id = tables.jobs[row.job_id].account_id
        out_since = since[account_id]
        if out_since is not None and row.created_at > out_since and row.gpu_indices:
            yield f"{row.job_id} gets a place at {row.node_id}, and {account_id} has no credits"
