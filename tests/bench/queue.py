"""Planning rounds over a long queue, beside the bare queries of the same rows."""

import random
import tracemalloc
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import func, insert
from sqlmodel import Session, col, select

from activities.billing.ledger import add_credits
from activities.db import tables
from activities.db.session import Database
from activities.placement.planning import plan_placements
from tests.activities.placement.rows import add_gpu_node, add_waiting_job
from tests.activities.rows import NOW, add_payer, add_region
from tests.bench.home import home
from tests.bench.machine import MIB
from tests.bench.measure import Row, best_s, ms
from tests.bench.stack import scaled
from workflows.effects.placement import PlanPlacements

WAITING = 100_000
NODES = 1_000
ACCOUNTS = 5
DEMANDS = 50
PLACED = 500
AIM_S = 1.0
_AT_ONCE = 10_000


def rows() -> list[Row]:
    """On SQLite, in a folder of its own; of each account every tenth node is free."""
    waiting, nodes = scaled(WAITING, DEMANDS), scaled(NODES, ACCOUNTS)
    with home() as (_, opened):
        for number in range(ACCOUNTS):
            _add_account(opened, number, nodes // ACCOUNTS, waiting // ACCOUNTS)
        plan_placements(PlanPlacements(limit=1))  # which reads what later rounds do not read again
        placed_s = best_s(_round, runs=1)
        nothing_fits_s = best_s(_until_nothing_fits)
        bare_s = best_s(lambda: _bare(opened))
        peak = _peak_bytes()
    amount = f"{waiting:,} waiting jobs of {DEMANDS} demands, {nodes:,} nodes"
    return [
        Row(
            f"a round that places up to {PLACED} jobs: {amount}",
            ms(placed_s),
            f"one bare query that counts the waiting jobs by demand: {ms(bare_s)}",
            "< 1 s",
            placed_s < AIM_S,
        ),
        Row(
            f"a round in which nothing fits: {amount}",
            f"{ms(nothing_fits_s)}, {nothing_fits_s / bare_s:,.1f} ×",
            f"the same query: {ms(bare_s)}; its Python objects take {peak / MIB:,.1f} MiB at most",
            "< 1 s",
            nothing_fits_s < AIM_S,
        ),
    ]


def _round() -> int:
    return plan_placements(PlanPlacements(limit=PLACED)).placed


def _until_nothing_fits() -> None:
    while _round():
        pass


def _peak_bytes() -> int:
    """The most memory that the Python objects of a round take, beside what was there before."""
    tracemalloc.start()
    try:
        _round()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _bare(opened: Database) -> None:
    with opened.read() as session:
        session.execute(
            select(tables.Job.project_id, tables.Job.demand_key, func.count())
            .where(tables.Job.status == "waiting_for_resources")
            .group_by(col(tables.Job.project_id), col(tables.Job.demand_key))
        ).all()


def _add_account(opened: Database, number: int, nodes: int, waiting: int) -> None:
    with opened.write() as session:
        account = add_payer(session, f"payer-{number}")
        add_credits(session, account, 1_000_000, f"credits-{number}", NOW)
        region = add_region(session, account)
        for index in range(nodes):
            node = add_gpu_node(session, region, f"n{number}-{index}", gpus=8, cpus=64)
            if index % 10:
                node.reserved_cpu_count = node.cpu_count
        _add_jobs(session, account, number, waiting)


def _add_jobs(session: Session, account: tables.Account, number: int, waiting: int) -> None:
    """Some demands fit, most of them no node at all."""
    examples = [
        add_waiting_job(session, account, gpus=1 + demand % 8, workers=1 + demand // 8)
        for demand in range(DEMANDS // ACCOUNTS)
    ]
    found = list(_copies(examples, number, waiting - len(examples)))
    for start in range(0, len(found), _AT_ONCE):
        session.execute(insert(tables.Job), found[start : start + _AT_ONCE])


def _copies(examples: list[tables.Job], number: int, count: int) -> Iterator[dict[str, Any]]:
    chance = random.Random(number)
    now = datetime.now(UTC)
    values = [example.model_dump() for example in examples]
    for index in range(count):
        at = now - timedelta(seconds=chance.randint(0, 86_400))
        like = values[index % len(values)]
        yield like | {"id": f"job-{number}-{index:06}", "created_at": at, "waiting_since": at}
