"""Device days: the devices of each account that existed at any moment of a UTC day."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta

from sqlalchemy import exists, func, literal
from sqlmodel import Session, col, select

from activities.billing.ledger import DEVICE_FEES, Entry
from activities.billing.payers import credits_name
from activities.db.tables import Account, Device, LedgerTransaction
from workflows.contracts.billing import TransactionKind
from workflows.rules.billing.device_fees import device_day_microcredits, fee_until
from workflows.rules.billing.utc_days import DAY, bounds
from workflows.rules.counts import counted

MOST_DAYS = 31
"""The days of one call, and those that can still be charged."""
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
    def microcredits(self) -> int:
        return device_day_microcredits(self.devices, self.day)

    @property
    def entry(self) -> Entry:
        """The entry of the day, at its last moment, so that a month's statement has its days."""
        amount = self.microcredits
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


@dataclass(frozen=True)
class DeviceCosts:
    """What the devices of a payer cost now.

    microcredits_per_hour: the burn rate of them, until the end of this UTC day;
    uncharged_microcredits: the fees of days that are not charged yet, of this day the part that
    has passed. No later fact makes them less.
    """

    microcredits_per_hour: int = 0
    uncharged_microcredits: int = 0


def business_key(account_id: str, day: date) -> str:
    return f"device-day/{account_id}/{day.isoformat()}"


def device_days(
    session: Session, day: date, account_ids: Collection[str] | None = None
) -> list[DeviceDay]:
    """The devices of each account on a day that is not charged yet, with one query for all.

    account_ids: the accounts in question; None: all.
    """
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
    if account_ids is not None:
        query = query.where(col(Device.account_id).in_(account_ids))
    found: dict[str, DeviceDay] = {}
    for account_id, payer_id, region_id, devices in session.exec(query):
        of_account = found.setdefault(account_id, DeviceDay(account_id, payer_id, day))
        of_account.by_region[region_id] = devices
    return list(found.values())


def _paid_for(session: Session, payer_ids: Collection[str]) -> Sequence[str]:
    """The accounts with devices, of all times, that these pay for."""
    paid_by = col(Account.billing_account_id)
    own = paid_by.is_(None) & col(Account.id).in_(payer_ids)
    has_devices = exists().where(col(Device.account_id) == col(Account.id))
    query = select(Account.id).where(own | paid_by.in_(payer_ids), has_devices)
    return session.exec(query).all()


def device_costs(
    session: Session, now: datetime, payer_ids: Collection[str] | None = None
) -> dict[str, DeviceCosts]:
    """The costs of the devices of each payer that has some, or has fees that are not charged yet.

    payer_ids: the payers in question; None: all.
    """
    per_hour: dict[str, int] = defaultdict(int)
    uncharged: dict[str, int] = defaultdict(int)
    account_ids = None if payer_ids is None else _paid_for(session, payer_ids)
    if account_ids is not None and not account_ids:
        return {}
    today = day = now.astimezone(UTC).date()
    for _ in range(MOST_DAYS):
        found = device_days(session, day, account_ids)
        for each in found:
            uncharged[each.payer_id] += fee_until(now, each.devices, day)
            per_hour[each.payer_id] += each.microcredits // 24 if day == today else 0
        if day != today and not found:
            break  # An earlier day is charged before a later one.
        day -= DAY
    return {each: DeviceCosts(per_hour[each], uncharged[each]) for each in uncharged}


def uncharged_day(session: Session, account_id: str) -> date | None:
    """The last UTC day of an account without devices, if its device fee is not charged yet."""
    of_account = col(Device.account_id) == account_id
    last: datetime | None = session.exec(
        select(func.max(Device.removed_at)).where(of_account)
    ).one()
    if last is None:
        return None
    day = (last.astimezone(UTC) - MOMENT).date()
    key = col(LedgerTransaction.business_key) == business_key(account_id, day)
    return None if session.exec(select(LedgerTransaction.id).where(key)).first() else day
