"""Preferred credits are counted down to the microcredit, by machines that run too."""

from datetime import timedelta

import pytest

from activities.billing.preferred_credits import left_of, set_amount
from activities.db import tables
from activities.db.session import Database
from activities.placement.cloud_market import market
from tests.activities.cloud_rows import add_cloud_region, add_lease
from tests.activities.rows import NOW, add_payer

HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)


@pytest.fixture
def region(migrated: Database) -> tables.Region:
    """Its provider has 3,600 microcredits, and a machine that costs one in each second."""
    with migrated.write() as session:
        account = add_payer(session)
        given = add_cloud_region(session, account, preferred_credits_microcredits=3600)
        add_lease(session, given, "nod-1", began_at=NOW, microcredits_per_hour=3600)
        return given


def test_a_provider_is_preferred_until_the_second_in_which_its_credits_are_spent(
    migrated: Database, region: tables.Region
) -> None:
    for since, left in ((SECOND, 3599), (HOUR - SECOND, 1), (HOUR, 0), (HOUR + SECOND, 0)):
        with migrated.read() as session:
            row = session.get_one(tables.Provider, region.provider_id)
            assert left_of(session, [row], NOW + since) == {row.id: left}
            preferred = market(session, NOW + since).preferred
        assert preferred == (frozenset([region.provider_id]) if left else frozenset())


def test_an_amount_counts_from_when_it_was_set(migrated: Database, region: tables.Region) -> None:
    def given(amount: int | None, since: timedelta) -> dict[str, int]:
        with migrated.write() as session:
            row = session.get_one(tables.Provider, region.provider_id)
            set_amount(session, row, amount, NOW + since)
            return left_of(session, [row], NOW + since)

    provider_id = region.provider_id
    assert given(5000, HOUR) == {provider_id: 1400}, "raised: what is used stays used"
    assert given(None, 2 * HOUR) == {}
    assert given(100, 3 * HOUR) == {provider_id: 100}, "set anew: what was spent before is over"
    assert given(150, 4 * HOUR) == {provider_id: 50}, "beyond the amount nothing was counted"
    assert given(40, 4 * HOUR) == {provider_id: 0}


def test_a_provider_without_an_amount_has_nothing_left(
    migrated: Database, region: tables.Region
) -> None:
    with migrated.write() as session:
        row = session.get_one(tables.Provider, region.provider_id)
        row.preferred_credits_microcredits = None
        assert left_of(session, [row], NOW) == {}
        assert market(session, NOW).preferred == frozenset()
