"""Who is warned of a short runway though none of its jobs runs; on both databases."""

from datetime import UTC, datetime, timedelta

import pytest
from sqlmodel import select
from temporalio.testing import ActivityEnvironment

from activities.billing.balance_guard import AT_ONCE, guard_balances
from activities.billing.payers import credits_name
from activities.db import tables
from activities.db.session import Database
from activities.settings import settings
from tests.activities.billing.test_device_days import events_of, give
from tests.activities.billing.test_device_fees import Owner
from tests.activities.billing.test_federated_fees import INFERENCE_HOUR, running, used
from tests.activities.placement.rows import statements
from workflows.effects.billing import BalancesGuarded, GuardBalances
from workflows.rules.billing.device_fees import device_day_microcredits
from workflows.rules.billing.utc_days import DAY, bounds

DEVICES = 1000


@pytest.fixture
def owner(migrated: Database) -> Owner:
    return Owner(migrated)


def guard() -> BalancesGuarded:
    guarded: BalancesGuarded = ActivityEnvironment().run(guard_balances, GuardBalances())
    return guarded


def lasts(owner: Owner, runway: timedelta) -> None:
    """Give the owner of devices what its fees until now cost, and what they cost for so long."""
    now = datetime.now(UTC)
    fee = device_day_microcredits(DEVICES, now.date())
    until_now = fee * (now - bounds(now.date())[0]) // timedelta(seconds=1) // 86_400
    with owner.database.write() as session:
        give(session, owner.account_id, until_now + int(fee / 24 * (runway / timedelta(hours=1))))


def events(owner: Owner) -> list[str]:
    with owner.database.read() as session:
        found = events_of(session, owner.account_id)
    return [each.removeprefix("billing.runway-") for each in found]


def test_a_payer_of_devices_alone_is_warned_once_and_learns_when_it_is_longer(
    owner: Owner,
) -> None:
    owner.add(DEVICES, at=datetime.now(UTC))
    lasts(owner, timedelta(hours=23))
    first = guard()
    assert first.payers == 1
    assert first.next_s is not None
    assert 21.9 * 3600 < first.next_s < 22.1 * 3600
    guard()
    assert events(owner) == ["24h"]
    with owner.database.write() as session:
        give(session, owner.account_id, 10**15)
    assert guard().next_s is not None
    assert events(owner) == ["24h", "longer"]


def test_who_has_nothing_left_is_warned_and_has_no_other_warning_ahead(owner: Owner) -> None:
    owner.add(DEVICES, at=datetime.now(UTC) - DAY)
    assert guard() == BalancesGuarded(payers=1, next_s=None)
    assert events(owner) == ["10min"]


def test_the_next_warning_is_that_of_the_payer_who_is_due_first(
    owner: Owner, migrated: Database
) -> None:
    other = Owner(migrated, "other")
    for each, hours in ((owner, 30), (other, 1000)):
        each.add(DEVICES, at=datetime.now(UTC))
        lasts(each, timedelta(hours=hours))
    guarded = guard()
    assert guarded.next_s is not None
    assert 5.9 * 3600 < guarded.next_s < 6.1 * 3600
    assert (events(owner), events(other)) == ([], [])


def test_an_installation_without_devices_warns_nobody(migrated: Database, owner: Owner) -> None:
    assert guard() == BalancesGuarded()
    with migrated.read() as session:
        assert session.exec(select(tables.EventRow)).all() == []


def test_many_payers_with_a_long_runway_cost_few_statements(
    migrated: Database, owner: Owner
) -> None:
    for number in range(5):
        each = Owner(migrated, f"branch-{number}")
        each.add(1, at=datetime.now(UTC))
        with migrated.write() as session:
            give(session, each.account_id, 10**12)
    with statements() as said:
        assert guard().payers == 5 < AT_ONCE
    assert len(said) < 12


def test_who_pays_federated_fees_is_warned_between_the_postings_of_the_jobs(
    migrated: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BASELOAD_SECRETS_KEY", "cd" * 32)
    settings.cache_clear()
    parties = running(migrated)
    used(parties, 0)
    for hours, known in ((30, []), (2, ["24h"]), (0.5, ["24h", "1h"])):
        with migrated.write() as session:
            name = credits_name(parties.maker_id)
            row = session.get_one(tables.LedgerAccount, name)
            # The job began long ago, and an hour at most is estimated.
            row.balance_microcredits = int(INFERENCE_HOUR * (hours + 1))
        assert guard().payers == 1
        with migrated.read() as session:
            types = events_of(session, parties.maker_id)
        assert [each.removeprefix("billing.runway-") for each in types] == known
