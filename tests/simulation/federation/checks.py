"""What holds of federated jobs: always, and when all is well again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import timedelta
from fractions import Fraction
from math import floor
from typing import TYPE_CHECKING, cast

from activities.billing.ledger import FEDERATED_FEES
from activities.billing.ledger_audit.audit import audit
from activities.billing.payers import credits_name
from tests.simulation.life import machines_given_up
from tests.simulation.rows_real import RealRows
from workflows.contracts.billing import TransactionKind
from workflows.contracts.jobs import parse_run_id
from workflows.contracts.statuses import JobType

if TYPE_CHECKING:
    from tests.simulation.federation.life import Federated, FederatedPlayer

ENDED = ("settled", "refused")
TRAINING, INFERENCE = 2_650_000, 1_850_000
"""Microcredits per worker-hour: what both parties have agreed to, whatever the product's table."""
PROMPTLY = timedelta(minutes=3)
"""Within that a withdrawn consent has ended the job, where nothing goes wrong."""
AT_LAST = timedelta(minutes=45)
"""Within that after all is well again, whatever was lost before."""


def statuses_of(rows: RealRows) -> dict[str, str]:
    return {
        row["id"]: row["status"] for row in rows.select("SELECT id, status FROM federated_jobs")
    }


def always(player: FederatedPlayer) -> Iterable[str]:
    """Nothing runs and nothing is stored of a federated job that has ended; its usage is posted."""
    life, rows = player.life, cast("RealRows", player.life.rows)
    query = "SELECT *, sealed_key IS NOT NULL AS has_key FROM federated_jobs WHERE status IN (?, ?)"
    ended = {row["job_id"]: row for row in rows.select(query, *ENDED)}
    for row in ended.values():
        name = row["id"]
        if row["has_key"] or any(f"/{name}/" in each for each in rows.store.sealed_models):
            yield f"{name}: is {row['status']}, and its model or its key is there"
        if rows.unsettled_of(row["job_id"]):
            yield f"{name}: is {row['status']}, and usage of its job is not posted"
    given_up = machines_given_up(life)
    for process in life.world.processes():
        job_id = parse_run_id(process.run_id)[0]
        if process.state == "running" and job_id in ended and process.machine not in given_up:
            yield f"{process.run_id}: runs, and {ended[job_id]['id']} has ended"
    if player.is_quiet:
        for one in player.federated.values():
            yield from _runs_as_allowed(player, one, PROMPTLY)


def at_rest(player: FederatedPlayer) -> Iterable[str]:
    rows = cast("RealRows", player.life.rows)
    statuses = statuses_of(rows)
    for one in player.federated.values():
        if statuses[one.federated_id] not in ENDED:
            yield f"{one.federated_id}: is {statuses[one.federated_id]}, and nobody does anything"
        yield from _runs_as_allowed(player, one, PROMPTLY if player.is_quiet else AT_LAST)
        yield from _fee_is_exact(rows, one, is_one_owner=one.account_id == player.parties.clinic)
    yield from _keys_are_released_once(player)
    with rows.reading() as session:
        for difference in audit(session).differences:
            yield f"the ledger audit: {difference}"
    if rows.store.sealed_models:
        yield f"sealed models are left: {sorted(rows.store.sealed_models)}"


def _runs_as_allowed(player: FederatedPlayer, one: Federated, within: timedelta) -> Iterable[str]:
    """No command runs once a consent was withdrawn for good, but for a moment.

    within: of the withdrawal where nothing goes wrong, else of the calm as well.
    """
    life, given = player.life, player.given.get(one.federated_id)
    lost = player.parties.lost_at(one.account_id, given)
    processes = life.processes().get(one.job_id, [])
    if given is None and processes:
        yield f"{one.job_id}: ran, and {one.federated_id} has created no job"
    if lost is None:
        return
    begins = lost if player.is_quiet or life.calm_at is None else max(lost, life.calm_at)
    for process in processes:
        ended = process.ended_at or life.engine.now()
        if process.began_at is not None and ended > begins + within:
            how = f"from {process.began_at:%H:%M:%S} to {ended:%H:%M:%S}"
            yield f"{process.run_id}: ran {how}, and consent was withdrawn at {lost:%H:%M:%S}"


def _fee_is_exact(rows: RealRows, one: Federated, *, is_one_owner: bool) -> Iterable[str]:
    """The creator alone has paid the agreed fee for each second of a worker; one owner none."""
    agreed = TRAINING if one.type is JobType.TRAINING else INFERENCE
    rate = 0 if is_one_owner else agreed
    meters = rows.select("SELECT posted_s FROM usage_meters WHERE job_id = ?", one.job_id)
    expected = sum(
        floor(Fraction(rate * each["posted_s"], 3600) + Fraction(1, 2)) for each in meters
    )
    query = (
        "SELECT moved.account_id, legs.ledger_account, sum(legs.amount_microcredits) AS amount"
        " FROM ledger_transactions AS moved JOIN ledger_postings AS legs"
        " ON legs.transaction_id = moved.id WHERE moved.job_id = ? AND moved.kind = ?"
        " GROUP BY 1, 2"
    )
    paid = {
        (row["account_id"], row["ledger_account"]): row["amount"]
        for row in rows.select(query, one.job_id, TransactionKind.FEDERATED_FEE.value)
    }
    mine = one.account_id
    fee = {
        (mine, credits_name(mine)): -expected,
        (mine, FEDERATED_FEES): expected,
    }
    if paid != (fee if expected else {}):
        yield f"{one.federated_id}: its fee is {expected} microcredits, and was posted as {paid}"


def _keys_are_released_once(player: FederatedPlayer) -> Iterable[str]:
    """The key of a model comes into the run spec of each start once, and into no other one."""
    known = {one.job_id: one.federated_id for one in player.federated.values()}
    keys: dict[str, set[str]] = defaultdict(set)
    times: dict[tuple[str, int, int], set[str]] = defaultdict(set)
    for each in cast("RealRows", player.life.rows).store.releases:
        keys[each.key].add(each.job_id)
        times[each.job_id, each.attempt, each.worker].add(each.activity_id)
        if known.get(each.job_id) != each.federated_id or not each.federated_id:
            yield f"{each.job_id}: has the key of another one, {each.federated_id}"
    for jobs in keys.values():
        if len(jobs) > 1:
            yield f"{sorted(jobs)}: have one key"
    if player.life.has_forgotten:
        return
    for (job_id, attempt, _), asked in times.items():
        if len(asked) > 1:
            yield f"{job_id}: its key was released {len(asked)} times for attempt {attempt}"
