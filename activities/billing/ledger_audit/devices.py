"""Checks of device fees: the devices of each UTC day are counted anew, from their rows."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from itertools import groupby
from typing import Any

from sqlalchemy import and_, func, not_, or_, select
from sqlmodel import Session

from activities.billing.ledger import DEVICE_FEES
from activities.billing.ledger_audit.books import own_credits
from activities.billing.ledger_audit.checks import Check, Difference, streamed
from activities.billing.payers import credits_name
from activities.db.tables import Device, LedgerPosting, LedgerTransaction
from workflows.contracts.billing import TransactionKind
from workflows.rules.billing.device_fees import device_day_microcredits
from workflows.rules.billing.utc_days import DAY, bounds

_device: Any = Device
_posting: Any = LedgerPosting
_transaction: Any = LedgerTransaction
_account_id = _transaction.details["account_id"].as_string()
MOMENT = timedelta(microseconds=1)
_fees = _transaction.kind == TransactionKind.DEVICE_DAY.value


def _device_days(session: Session) -> Iterator[Difference]:
    """Each charged day has the devices that existed on it, and no day in between is left out.

    The last charged day may be in the middle of its charging: a missing day is reported when a
    later one was charged, to whomever.
    """
    newest = session.execute(select(func.max(_transaction.at)).where(_fees)).scalar_one()
    if newest is None:
        return
    last, seen = _day(newest), set()
    query = (
        select(_account_id.label("account_id"), _transaction.id, _transaction.business_key,
               _transaction.details, _transaction.at, _posting.amount_microcredits)
        .outerjoin(
            LedgerPosting,
            and_(
                _posting.transaction_id == _transaction.id, _posting.ledger_account == DEVICE_FEES
            ),
        )
        .where(_fees)
        .order_by(_account_id)
    )  # fmt: skip
    for account_id, rows in groupby(streamed(session, query), lambda row: row.account_id or ""):
        seen.add(account_id)
        yield from _of_account(session, account_id, rows, last)
    for (account_id,) in streamed(session, select(_device.account_id).distinct()):
        if account_id not in seen:
            yield from _of_account(session, account_id, (), last)


def _of_account(
    session: Session, account_id: str, rows: Iterable[Any], last: date
) -> Iterator[Difference]:
    existing = _existing(session, account_id, last)
    charged: set[date] = set()
    for row in rows:
        day = _day(row.at)
        charged.add(day)
        yield from _of_day(row, account_id, day, existing.get(day, {}))
    for day, devices in existing.items():
        if devices and day < last and day not in charged:
            what = "each day is charged on which there were devices"
            expected, subject = f"{sum(devices.values())} devices", _key(account_id, day)
            yield Difference("device-days", subject, what, expected, "no transaction")


def _of_day(
    row: Any, account_id: str, day: date, devices: Mapping[str, int]
) -> Iterator[Difference]:
    count = sum(devices.values())
    facts: tuple[tuple[str, object, object], ...] = (
        ("the devices that existed on the day", dict(devices),
         row.details.get("devices_by_region")),
        ("how many they are", count, row.details.get("devices")),
        (f"the fee of {count} devices on {day}", device_day_microcredits(count, day),
         row.amount_microcredits),
        ("the day is that of its instant", day.isoformat(), row.details.get("day")),
        ("its instant is the last of the day", bounds(day)[1] - MOMENT, row.at),
        ("the business key is that of the day", _key(account_id, day), row.business_key),
    )  # fmt: skip
    for what, expected, found in facts:
        if expected != found:
            yield Difference("device-days", row.id, what, str(expected), str(found))


def _existing(session: Session, account_id: str, last: date) -> dict[date, dict[str, int]]:
    """The devices of an account by region, by each day from its first device to `last`.

    A device counts on each day on which it existed at any moment.
    """
    changes: dict[date, Counter[str]] = defaultdict(Counter)
    query = select(_device.region_id, _device.created_at, _device.removed_at)
    for row in streamed(session, query.where(_device.account_id == account_id)):
        changes[_day(row.created_at)][row.region_id] += 1
        if row.removed_at is not None:
            changes[_day(row.removed_at - MOMENT) + DAY][row.region_id] -= 1
    found: dict[date, dict[str, int]] = {}
    there: Counter[str] = Counter()
    day = min(changes, default=last + DAY)
    while day <= last:
        there.update(changes.get(day, {}))
        found[day] = {region: count for region, count in there.items() if count}
        day += DAY
    return found


def _key(account_id: str, day: date) -> str:
    return f"device-day/{account_id}/{day.isoformat()}"


def _day(at: datetime) -> date:
    return at.astimezone(UTC).date()


def _device_payers(session: Session) -> Iterator[Difference]:
    """A device fee moves from the credits of its payer to the platform, and nothing else."""
    is_right = or_(
        and_(_posting.ledger_account == DEVICE_FEES, _posting.amount_microcredits > 0),
        and_(_posting.ledger_account == own_credits(), _posting.amount_microcredits < 0),
    )
    query = (
        select(_transaction.id, _transaction.account_id, _posting.ledger_account)
        .join(LedgerPosting, _posting.transaction_id == _transaction.id)
        .where(_fees, not_(is_right))
    )
    for name, payer_id, found in streamed(session, query):
        what = "a device fee moves from its payer to the platform"
        yield Difference("device-payers", name, what, credits_name(payer_id), found)


DEVICES = (
    Check("device-days", "each day has the fee of the devices that existed on it", _device_days),
    Check("device-payers", "each device fee moves from its payer to the platform", _device_payers),
)
