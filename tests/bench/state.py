"""What writing steps and reservations costs, beside bare inserts into the same database."""

from activities.billing.ledger import add_credits
from activities.db import tables
from activities.db.ids import new_id
from activities.db.session import Database
from activities.lifecycles.record import record
from activities.placement.planning import plan_placements
from tests.activities.placement.rows import add_gpu_node, add_waiting_job
from tests.activities.rows import NOW, add_payer, add_region
from tests.bench.home import home
from tests.bench.measure import Row, best_s, both_best_s, compared
from workflows.contracts.events import Event
from workflows.contracts.lifecycles import JobChanges, Record
from workflows.effects.placement import PlanPlacements

STEPS = 300
JOBS = 200


def rows() -> list[Row]:
    """On SQLite, in a folder of its own."""
    with home() as (_, opened):
        return [_steps(opened), _reservations(opened)]


def _steps(opened: Database) -> Row:
    with opened.write() as session:
        account = add_payer(session)
        job = add_waiting_job(session, account)
    sequence = 0

    def write_steps() -> None:
        nonlocal sequence
        for _ in range(STEPS):
            sequence += 1
            record(
                Record(
                    resource_id=job.id,
                    account_id=account.id,
                    sequence=sequence,
                    at=NOW,
                    status="running",
                    events=(Event(type="job.running", message="runs"),),
                    changes=JobChanges(),
                )
            )

    seconds, bare = both_best_s(write_steps, lambda: _bare_commits(opened, account.id))
    return compared("record a step", f"{STEPS} commits", seconds, "one insert a commit", bare)


def _bare_commits(opened: Database, account_id: str) -> None:
    for _ in range(STEPS):
        with opened.write() as session:
            session.add(
                tables.AuditRow(id=new_id("aud"), account_id=account_id, action="none", at=NOW)
            )


def _reservations(opened: Database) -> Row:
    with opened.write() as session:
        account = add_payer(session, "placer")
        add_credits(session, account, 1, "placer", NOW)
        region = add_region(session, account)
        for number in range(JOBS // 4):
            add_gpu_node(session, region, f"n{number}")
        for _ in range(JOBS):
            add_waiting_job(session, account)

    seconds = best_s(lambda: plan_placements(PlanPlacements()), runs=1)
    bare = best_s(lambda: _bare_rows(opened, account.id))
    amount = f"{JOBS} jobs, {JOBS // 4} nodes"
    return compared("place waiting jobs", amount, seconds, "one commit of as many inserts", bare)


def _bare_rows(opened: Database, account_id: str) -> None:
    with opened.write() as session:
        for _ in range(2 * JOBS):
            session.add(
                tables.AuditRow(id=new_id("aud"), account_id=account_id, action="none", at=NOW)
            )
