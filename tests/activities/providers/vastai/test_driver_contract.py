"""Vast.ai's instances keep to what every driver keeps to."""

from collections.abc import Callable

import pytest

from activities.providers.vastai.driver import VastMachines
from tests.activities.providers.driver_contract import DriverContract, Market
from tests.activities.providers.vastai.conftest import Sessions
from tests.doubles.rented.boot import NoBoot
from tests.doubles.rented.faults import FaultKind
from tests.doubles.vastai.double import VastDouble
from workflows.contracts.machines import MachineOffer

ASK = 7000002
OFFER = MachineOffer(
    zone="bg",
    machine_type="ask-1",
    gpu_type="RTX4090",
    gpu_count=1,
    microcredits_per_hour=310_000,
    provider_offer_id=str(ASK),
)


class TestVastMachines(DriverContract):
    @pytest.fixture
    def market(self, make_vastai: Callable[..., VastDouble], session_with: Sessions) -> Market:
        double = make_vastai(boot=NoBoot())

        def lose_a_reply() -> None:
            double.faults.clear()
            for change in ("asks.accept", "instances.destroy"):
                double.fault(FaultKind.LOST_REPLY, change)

        return Market(
            driver=VastMachines(session_with(double), "prv-01abc"),
            offer=OFFER,
            another=OFFER.model_copy(update={"zone": "us", "provider_offer_id": "7000001"}),
            lose_a_reply=lose_a_reply,
            sell_out=lambda: double.market.withdraw(ASK),
            refuse=lambda: setattr(double.account, "balance", 0.0),
            go_away=lambda: double.away(36_000),
            made=lambda: double.instances.made,
            looks_back=False,
        )
