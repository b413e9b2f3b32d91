"""Charging device fees: one ledger transaction for each account and UTC day."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any

from sqlalchemy import exists, func, literal
from sqlmodel import Session, col, select
from temporalio import activity

from activities.billing.ledger import DEVICE_FEES, Entry, post
from activities.billing.payers import credits_name
from activities.billing.runway import recheck_jobs
from activities.db.session import database
from activities.db.tables import Account, Device, LedgerTransaction
from activities.outbox.dispatcher import relay_soon
from activities.temporal.heartbeats import beating_aside
from workflows.contracts.billing import TransactionKind
from workflows.effects.billing import ChargeDeviceDays, DeviceDaysCharged
from workflows.rules.billing.device_fees import device_day_microcredits
from workflows.rules.billing.utc_days import DAY, bounds
from workflows.rules.counts import counted

MOST_DAYS = 31
"""The days of one call."""
AT_ONCE = 100
"""The accounts of one database transaction; then others write."""
MOMENT = timedelta(microseconds=1)


@dataclass
class DeviceDay:
    """The devices of one account that existed at any moment of a UTC day."""

    account_id: str
    payer_id: str
    day: date
    by_region: dict[str, int] = field(default_factory=dict)

    @property
    def devices(self) -> int:
        return sum(self.by_region.values())

    @property
    def entry(self) -> Entry:
        """The entry of the day, at its last moment, so that a month's statement has its days."""
        amount = device_day_microcredits(self.devices, self.day)
        return Entry(
            business_key=business_key(self.account_id, self.day),
            kind=TransactionKind.DEVICE_DAY,
            account_id=self.payer_id,
            region_id=next(iter(self.by_region)) if len(self.by_region) == 1 else None,
            legs={credits_name(self.payer_id): -amount, DEVICE_FEES: amount},
            at=bounds(self.day)[1] - MOMENT,
            description=f"{counted(self.devices, 'device')} on {self.day}",
            details={
                "account_id": self.account_id,
                "day": self.day.isoformat(),
                "devices": self.devices,
                "devices_by_region": self.by_region,
            },
        )


def business_key(account_id: str, day: date) -> str:
    return f"device-day/{account_id}/{day.isoformat()}"


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


def device_days(session: Session, day: date) -> list[DeviceDay]:
    """The devices of each account on a day that is not charged yet, with one query for all."""
    begins_at, ends_at = bounds(day)
    key = literal("device-day/") + col(Device.account_id) + literal(f"/{day.isoformat()}")
    query = (
        select(
            Device.account_id,
            func.coalesce(Account.billing_account_id, Account.id),
            Device.region_id,
            func.count(),
        )
        .join(Account, col(Account.id) == col(Device.account_id))
        .where(
            col(Device.created_at) < ends_at,
            col(Device.removed_at).is_(None) | (col(Device.removed_at) > begins_at),
            ~exists().where(col(LedgerTransaction.business_key) == key),
        )
        .group_by(
            col(Device.account_id),
            col(Account.billing_account_id),
            col(Account.id),
            col(Device.region_id),
        )
        .order_by(col(Device.account_id), col(Device.region_id))
    )
    found: dict[str, DeviceDay] = {}
    for account_id, payer_id, region_id, devices in session.exec(query):
        of_account = found.setdefault(account_id, DeviceDay(account_id, payer_id, day))
        of_account.by_region[region_id] = devices
    return list(found.values())


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
    amounts: list[int] = []
    by_payer: dict[str, int] = defaultdict(int)
    for each in sorted(days, key=lambda each: each.payer_id):
        entry = each.entry
        post(session, entry)
        amounts.append(entry.legs[DEVICE_FEES])
        by_payer[each.payer_id] += amounts[-1]
    requests = [recheck_jobs(session, payer_id, total) for payer_id, total in by_payer.items()]
    return amounts, [each for some in requests for each in some]
