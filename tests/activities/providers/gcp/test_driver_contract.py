"""Google's machines keep to what every driver keeps to."""

import pytest

from activities.providers.gcp.driver import GoogleMachines
from activities.providers.gcp.network import make_network
from activities.providers.gcp.session import GoogleSession
from activities.providers.gcp.subnetworks import make_subnetwork
from tests.activities.providers.driver_contract import DriverContract, Market
from tests.doubles.gcp.double import GcpDouble
from tests.doubles.gcp.faults import Fault, FaultKind
from workflows.contracts.machines import MachineOffer

OURS, REGION = "prv-01abc", "us-central1"
OFFER = MachineOffer(
    zone="us-central1-a",
    machine_type="n1-standard-8",
    gpu_type="T4",
    gpu_count=1,
    microcredits_per_hour=730_000,
)


class TestGoogleMachines(DriverContract):
    @pytest.fixture
    def market(
        self, gcp: GcpDouble, google: GoogleSession, monkeypatch: pytest.MonkeyPatch
    ) -> Market:
        key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPlatform baseload"
        monkeypatch.setattr("activities.providers.gcp.driver.region_public_key", lambda _: key)
        make_network(google, OURS)
        make_subnetwork(google, OURS, REGION)
        faults = gcp.cloud.faults

        def strike(kind: FaultKind) -> None:
            faults.add(Fault(kind, "compute.instances.insert"))

        def lose_a_reply() -> None:
            faults.clear()
            for change in ("insert", "delete"):
                faults.add(Fault(FaultKind.LOST_REPLY, f"compute.instances.{change}"))

        return Market(
            driver=GoogleMachines(google, OURS),
            offer=OFFER,
            another=OFFER.model_copy(update={"gpu_type": "V100"}),
            lose_a_reply=lose_a_reply,
            sell_out=lambda: strike(FaultKind.STOCKOUT),
            refuse=lambda: strike(FaultKind.FORBIDDEN),
            go_away=lambda: faults.unreachable_for(60),
            made=lambda: gcp.cloud.machines.made,
        )
