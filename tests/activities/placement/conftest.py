"""An account with credits and a region, for tests of placement."""

import pytest

from activities.billing.ledger import add_credits
from activities.db import tables
from activities.db.session import Database
from tests.activities.rows import NOW, add_payer, add_region


@pytest.fixture
def place(migrated: Database) -> tuple[tables.Account, tables.Region]:
    """An account with credits and a region that has no nodes yet."""
    with migrated.write() as session:
        account = add_payer(session)
        add_credits(session, account, 1, "first", NOW)
        return account, add_region(session, account)
