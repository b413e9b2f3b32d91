"""What the rows must never hold, each looked for by one query that no index or trigger helps."""

from collections.abc import Iterator

from activities.lifecycles.kinds import KINDS
from tests.simulation.rows_real.views import Views

_QUERIES = {
    "a GPU of a node is allocated twice": """
        SELECT allocations.node_id || ', GPU ' || gpu.value
        FROM allocations, json_each(gpu_indices) AS gpu WHERE released_at IS NULL
        GROUP BY allocations.node_id, gpu.value HAVING count(*) > 1""",
    "a port of a node is allocated twice": """
        SELECT node_id || ', port ' || port FROM allocations
        WHERE released_at IS NULL AND port IS NOT NULL
        GROUP BY node_id, port HAVING count(*) > 1""",
    "a run has two allocations": """
        SELECT job_id || '-' || worker || '-' || attempt FROM allocations
        GROUP BY job_id, worker, attempt HAVING count(*) > 1""",
    "an allocation is gone and not released, or released and not gone": """
        SELECT id || ' ' || state FROM allocations
        WHERE (state = 'gone') != (released_at IS NOT NULL)""",
    "an allocation leaves an archived node": """
        SELECT allocations.id FROM allocations JOIN nodes ON nodes.id = node_id
        WHERE state = 'leaving' AND nodes.status = 'archived'""",
    "the GPUs of an allocation are not those that are locked for it": """
        SELECT allocations.id FROM allocations WHERE released_at IS NULL
        AND (SELECT count(*) FROM gpu_allocations WHERE allocation_id = allocations.id
             AND released_at IS NULL) != json_array_length(gpu_indices)""",
    "a node reserves something else than its allocations hold": """
        SELECT nodes.id || ' ' || reserved_cpu_count || ' CPUs' FROM nodes WHERE
        (reserved_cpu_count, reserved_memory_bytes) != (
            SELECT coalesce(sum(allocations.cpu_count), 0),
            coalesce(sum(allocations.memory_bytes), 0)
            FROM allocations WHERE node_id = nodes.id AND released_at IS NULL)""",
    "two nodes of an account are one machine": """
        SELECT minion_id FROM nodes WHERE status != 'archived' AND minion_id != ''
        GROUP BY account_id, minion_id HAVING count(*) > 1""",
    "two leases have one machine name": """
        SELECT name FROM leases GROUP BY name HAVING count(*) > 1""",
    "an id is there twice": """
        SELECT id FROM (SELECT id FROM events UNION ALL SELECT id FROM outbox
        UNION ALL SELECT id FROM allocations UNION ALL SELECT id FROM ledger_transactions)
        GROUP BY id HAVING count(*) > 1""",
    "a step is there twice, or goes backwards": """
        SELECT resource_id || ' ' || sequence || '/' || "index" FROM (
            SELECT resource_id, sequence, "index",
            lag(sequence * 1000 + "index") OVER
                (PARTITION BY resource_id ORDER BY position) AS before FROM events)
        WHERE before >= sequence * 1000 + "index" """,
    "a posting is there twice under one business key": """
        SELECT business_key FROM ledger_transactions GROUP BY business_key HAVING count(*) > 1""",
    "the legs of a posting do not add up to 0": """
        SELECT transaction_id FROM ledger_postings
        GROUP BY transaction_id HAVING sum(amount_microcredits) != 0""",
    "a balance is not the sum of its postings": """
        SELECT name FROM ledger_accounts WHERE balance_microcredits != (SELECT
        coalesce(sum(amount_microcredits), 0) FROM ledger_postings WHERE ledger_account = name)""",
    "a job is charged something else than its meters have posted": """
        SELECT id FROM jobs WHERE charged_microcredits != (SELECT
        coalesce(sum(posted_microcredits), 0) FROM usage_meters WHERE job_id = jobs.id)""",
}
_LATER_EVENTS = (
    "SELECT max(events.sequence) || ' of ' || {table}.id FROM events"
    " JOIN {table} ON {table}.id = resource_id GROUP BY {table}.id"
    " HAVING max(events.sequence) > {table}.sequence"
)


def violations_of(views: Views) -> Iterator[str]:
    for what, query in _QUERIES.items():
        for row in views.all(query):
            yield f"{what}: {row[0]}"
    for kind in KINDS:
        for row in views.all(_LATER_EVENTS.format(table=kind.table.__tablename__)):
            yield f"an event is of a later step than its row: {row[0]}"
