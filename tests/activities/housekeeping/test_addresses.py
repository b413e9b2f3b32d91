"""The removal of the postal addresses of boot-drive requests."""

from datetime import UTC, datetime, timedelta

import pytest
from sqlmodel import select

from activities.db import tables
from activities.db.session import Database
from activities.housekeeping import addresses
from activities.housekeeping.addresses import remove_addresses
from tests.activities.rows import add_payer, add_region

NOW = datetime(2026, 5, 1, tzinfo=UTC)
AGES = {
    "received-31": True, "received-29": False, "refused-31": True, "withdrawn-31": True,
    "shipped-31": False, "shipped-181": True, "approved-999": False, "requested-999": False,
}  # fmt: skip
"""Status and age in days of a request, and whether its address has to go."""


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
def test_the_address_goes_when_nobody_needs_it_and_all_else_stays(
    migrated: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(addresses, "BATCH", 3)
    with migrated.write() as session:
        account = add_payer(session)
        region = add_region(session, account)
        for each in AGES:
            status, days = each.split("-")
            at = NOW - timedelta(days=int(days))
            session.add(
                tables.BootDriveRequest(
                    id=f"bdr-{each}", account_id=account.id, region_id=region.id, drive_count=1,
                    ship_to=["Ada", "London"], tracking="RM-42", carrier="Royal Mail",
                    status=status, created_at=at, updated_at=at,
                )
            )  # fmt: skip
    assert remove_addresses(NOW) == sum(AGES.values())
    assert remove_addresses(NOW) == 0
    with migrated.read() as session:
        rows = session.exec(select(tables.BootDriveRequest)).all()
        assert {row.id.removeprefix("bdr-"): row.ship_to is None for row in rows} == AGES
        assert all((row.tracking is None) == (row.ship_to is None) for row in rows)
        assert {row.carrier for row in rows} == {"Royal Mail"}
