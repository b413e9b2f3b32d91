"""Guests in the balances of their payers. As activities/billing/guests.py; none is pre-empted."""

from datetime import datetime, timedelta

from activities.billing.guests import ENDING_S, billed_until
from tests.simulation.rows_model.records import UsageMeter
from tests.simulation.rows_model.tables import Tables
from workflows.rules.billing.metering import cumulative_microcredits


def reserved(tables: Tables, payer_id: str, now: datetime) -> int:
    """As guests.py:reserved_microcredits."""
    found = 0
    for each in tables.running_meters.get(payer_id, {}).values():
        if not each.rates.is_market_price:
            continue
        held = tables.allocation_of.get((each.job_id, each.worker, each.attempt))
        released_at = None if held is None else held.released_at
        ends = billed_until(each.credits_used_up_at, None), released_at, now
        through_s = _through_s(tables, each, min(end for end in ends if end is not None))
        if through_s > each.posted_s:
            found += cumulative_microcredits(each.microcredits_per_hour, through_s)
            found -= cumulative_microcredits(each.microcredits_per_hour, each.posted_s)
    return found


def _through_s(tables: Tables, meter: UsageMeter, until: datetime) -> int:
    lasted_s = int((until - meter.started_at).total_seconds())
    for worker in tables.jobs[meter.job_id].workers:
        if worker.index == meter.worker and worker.exit is not None:
            return min(lasted_s, int(worker.elapsed_s))
    return lasted_s


def free_of_charge(tables: Tables, payer_id: str, now: datetime) -> int:
    """As guests.py:free_of_charge."""
    before = now - timedelta(seconds=ENDING_S)
    return sum(
        each.microcredits_per_hour
        for each in tables.running_meters.get(payer_id, {}).values()
        if each.credits_used_up_at is not None and each.credits_used_up_at <= before
    )


def end_for_credits(tables: Tables, job_id: str, now: datetime) -> None:
    """As guests.py:end_for_credits."""
    for meter in tables.meters_of.get(job_id, {}).values():
        is_first = meter.credits_used_up_at is None
        if meter.rates.is_market_price and meter.running and is_first:
            tables.set(meter, credits_used_up_at=now)
