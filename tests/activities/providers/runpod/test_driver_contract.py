"""RunPod's pods keep to what every driver keeps to."""

from collections.abc import Callable

import pytest

from activities.providers.runpod.driver import RunPodMachines
from tests.activities.providers.driver_contract import DriverContract, Market
from tests.activities.providers.runpod.conftest import Sessions
from tests.doubles.rented.boot import NoBoot
from tests.doubles.rented.faults import FaultKind
from tests.doubles.runpod.double import RunPodDouble
from workflows.contracts.machines import MachineOffer

OFFER = MachineOffer(
    zone="secure",
    machine_type="secure-1",
    gpu_type="RTX4090",
    gpu_count=1,
    microcredits_per_hour=690_000,
    provider_offer_id="NVIDIA GeForce RTX 4090",
)


class TestRunPodMachines(DriverContract):
    @pytest.fixture
    def market(self, make_runpod: Callable[..., RunPodDouble], session_with: Sessions) -> Market:
        double = make_runpod(rate=300.0, boot=NoBoot())

        def lose_a_reply() -> None:
            double.faults.clear()
            for change in ("create", "delete"):
                double.fault(FaultKind.LOST_REPLY, f"pods.{change}")

        return Market(
            driver=RunPodMachines(session_with(double), "prv-01abc"),
            offer=OFFER,
            another=OFFER.model_copy(update={"provider_offer_id": "NVIDIA RTX A6000"}),
            lose_a_reply=lose_a_reply,
            sell_out=lambda: double.catalogue.free.update({(OFFER.provider_offer_id, "SECURE"): 0}),
            refuse=lambda: double.catalogue.forbidden.add(OFFER.provider_offer_id),
            go_away=lambda: double.away(36_000),
            made=lambda: double.pods.made,
            looks_back=False,
        )
