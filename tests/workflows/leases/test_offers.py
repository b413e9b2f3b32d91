"""Which offers of a lease are tried, in which order, and why one is not."""

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.workflows.leases.test_machine import OFFER, REQUEST
from workflows.contracts.machines import MachineOffer, Shortage
from workflows.leases.machine import Machine
from workflows.leases.offers import Offers

OTHER = OFFER.model_copy(update={"zone": "zone-b"})
DEAR = OFFER.model_copy(update={"zone": "zone-c", "microcredits_per_hour": 1001})


def offers(tried: MachineOffer | None = None, **changes: Any) -> Offers:
    """Of a lease that has tried one of its three offers."""
    asked = REQUEST.model_copy(update={"offers": (OFFER, OTHER, DEAR), **changes})
    machine = Machine(asked, None)
    machine.offer = tried
    return Offers(asked, machine)


def test_the_offer_that_was_tried_is_the_first() -> None:
    assert offers().in_order() == [OFFER, OTHER, DEAR]
    assert offers(OTHER).in_order() == [OTHER, OFFER, DEAR]


@pytest.mark.parametrize(("cap", "is_refused"), [(None, False), (1000, True), (1001, False)])
def test_an_offer_above_the_cap_is_refused(cap: int | None, is_refused: bool) -> None:
    words = (
        "costs 0.001001 credits an hour, the cap is 0.001 credits an hour" if is_refused else None
    )
    assert offers(price_cap_microcredits_per_hour=cap).refusal_before(DEAR) == words
    assert offers(DEAR, price_cap_microcredits_per_hour=cap).refusal_before(DEAR) is None


def test_an_offer_that_was_short_is_refused_unless_its_machine_may_exist() -> None:
    until = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
    for tried, words in ((None, "none left; not asked again before 12:30:00 UTC"), (OFFER, None)):
        found = offers(tried)
        short = Shortage(scope=OFFER.scope, reason="none left", until=until)
        found._shortages = {OFFER.scope: short}
        assert found.refusal_before(OFFER) == words
        assert found.refusal_before(OTHER) is None
