"""Charging device fees: one ledger transaction for each account and UTC day."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import date
from typing import Any

from sqlalchemy import func
from sqlmodel import Session, select
from temporalio import activity

from activities.billing.device_days import MOST_DAYS, DeviceDay, device_days
from activities.billing.ledger import post
from activities.billing.runway import recompute_runway
from activities.db.session import database
from activities.db.tables import Device
from activities.outbox.dispatcher import relay_soon
from activities.temporal.heartbeats import beating_aside
from workflows.effects.billing import ChargeDeviceDays, DeviceDaysCharged
from workflows.rules.billing.utc_days import DAY

AT_ONCE = 100
"""The accounts of one database transaction; then others write."""


@activity.defn
def charge_device_days(command: ChargeDeviceDays) -> DeviceDaysCharged:
    """Charge the fees of closed days, also into the negative; days and accounts that are charged
    already are left out.

    The payer is that of the time of the call.
    """
    day = _first_day(command)
    transactions = microcredits = 0
    with beating_aside():
        for _ in range(MOST_DAYS):
            if day > command.through:
                break
            amounts = _charge(day)
            transactions, microcredits = transactions + len(amounts), microcredits + sum(amounts)
            day += DAY
    return DeviceDaysCharged(
        through=day - DAY, transactions=transactions, microcredits=microcredits
    )


def _first_day(command: ChargeDeviceDays) -> date:
    """The first day to charge; without a device, the last one that is asked for."""
    if command.after is not None:
        return command.after + DAY
    with database().read() as session:
        first: Any = session.exec(select(func.min(Device.created_at))).one()
    return command.through if first is None else min(first.date(), command.through)


def _charge(day: date) -> list[int]:
    """Charge one day; return the amounts."""
    with database().read() as session:
        found = device_days(session, day)
    charged: list[int] = []
    for start in range(0, len(found), AT_ONCE):
        with database().write() as session:
            amounts, request_ids = _post(session, found[start : start + AT_ONCE])
        relay_soon(request_ids)
        charged += amounts
    return charged


def _post(session: Session, days: Sequence[DeviceDay]) -> tuple[list[int], list[str]]:
    """Post the fees of some accounts; return the amounts, and the outbox rows of rechecks."""
    ordered = sorted(days, key=lambda each: each.payer_id)
    by_payer: dict[str, int] = defaultdict(int)
    for each in ordered:
        post(session, each.entry)
        by_payer[each.payer_id] += each.microcredits
    requests: list[str] = []
    for payer_id, total in by_payer.items():
        requests += recompute_runway(session, payer_id, moved=-total)
    return [each.microcredits for each in ordered], requests
