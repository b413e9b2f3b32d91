"""What the database adds up is what each lease says that it has cost."""

import random
from datetime import datetime, timedelta
from typing import Any

from activities.billing.machine_costs import spent_microcredits
from activities.db.session import Database
from tests.activities.cloud_rows import add_cloud_region, add_lease
from tests.activities.rows import NOW, add_payer
from workflows.rules.billing.metering import cumulative_microcredits

PRICES = (None, 0, 1, 359_999, 88_000_000)
MILLISECONDS = (-5000, 0, 999, 1000, 1_800_500, 3_599_999, 604_800_000)


def cost(lease: dict[str, Any], at: datetime) -> int:
    """Whole seconds, each lease rounded by itself, at the price that is known or was offered."""
    earlier = int(lease["earlier_microcredits"])
    if lease["began_at"] is None:
        return earlier
    offer = lease["offer"] or {}
    price = lease["microcredits_per_hour"] or offer.get("microcredits_per_hour") or 0
    seconds = ((lease["ended_at"] or at) - lease["began_at"]).total_seconds()
    return earlier + cumulative_microcredits(price, max(0, int(seconds)))


def test_spent_is_the_sum_of_what_each_lease_of_a_provider_has_cost(migrated: Database) -> None:
    dice = random.Random(7)
    with migrated.write() as session:
        account = add_payer(session)
        first, second, third = (
            add_cloud_region(session, account, zone, name=zone) for zone in "abc"
        )
        wanted = {first.provider_id: 0, second.provider_id: 0}
        for _ in range(60):
            region = dice.choice((first, second))
            began_at = dice.choice((None, NOW - timedelta(days=8)))
            ran = timedelta(milliseconds=dice.choice(MILLISECONDS))
            ended_at = began_at + ran if began_at and dice.random() < 0.8 else None
            lease = {
                "began_at": began_at,
                "ended_at": ended_at,
                "microcredits_per_hour": dice.choice(PRICES),
                "offer": dice.choice((None, {"microcredits_per_hour": 7_001})),
                "earlier_microcredits": dice.choice((0, 12_345)),
            }
            add_lease(session, region, "nod-1", **lease)
            wanted[region.provider_id] += cost(lease, NOW)
    asked = (first.provider_id, second.provider_id, third.provider_id)
    with migrated.read() as session:
        assert spent_microcredits(session, asked, NOW) == wanted
