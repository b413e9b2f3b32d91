"""The commands of the tests of the clouds, about one lease of one provider."""

from typing import Any

from workflows.contracts.machines import MachineOffer, MachineSpec
from workflows.contracts.statuses import ProviderKind
from workflows.effects.machines import (
    CreateMachine,
    DescribeMachine,
    TerminateMachine,
    TerminateOrphanedMachine,
)
from workflows.effects.providers import (
    CheckProvider,
    ListOwnedMachines,
    ProviderResource,
    ReceiveNotifications,
)
from workflows.effects.reconciliation import ReconcileMachines
from workflows.effects.regions import RegionResource

PROVIDER, LEASE, NAME, ZONE = "prv-1", "lea-1", "baseload-lea-1", "us-central1-a"
OTHER_ZONE = "us-central1-b"
GCP = ProviderKind.GCP


def offer(zone: str = ZONE, *, spot: bool = True, gpus: int = 1) -> MachineOffer:
    gpu_type = "L4" if gpus else None
    machine_type = "g2-standard-8" if gpus else "n2-standard-4"
    return MachineOffer(
        zone=zone,
        machine_type=machine_type,
        gpu_type=gpu_type,
        gpu_count=gpus,
        spot=spot,
        microcredits_per_hour=1000,
    )


def creation(zone: str = ZONE, *, lifetime_s: int = 86400, **offered: Any) -> CreateMachine:
    return CreateMachine(
        **_named(zone),
        offer=offer(zone, **offered),
        spec=MachineSpec(lifetime_s=lifetime_s, tags={"region": "reg-1"}),
    )


def machine(zone: str = ZONE, **_: Any) -> DescribeMachine:
    return DescribeMachine(**_named(zone))


def termination(zone: str = ZONE, **more: Any) -> TerminateMachine:
    return TerminateMachine(**_named(zone), **more)


def orphan(name: str) -> TerminateOrphanedMachine:
    return TerminateOrphanedMachine(
        provider_kind=GCP, provider_id=PROVIDER, machine_name=name, zone=ZONE
    )


def resource(name: str) -> ProviderResource:
    return ProviderResource(provider_kind=GCP, provider_id=PROVIDER, resource=name)


def subnetwork() -> RegionResource:
    return RegionResource(
        provider_kind=GCP,
        provider_id=PROVIDER,
        region_id="reg-1",
        cloud_region="us-central1",
        resource="subnetwork",
    )


def comparison() -> ReconcileMachines:
    return ReconcileMachines(provider_kind=GCP, provider_id=PROVIDER, is_ready=True)


def listening(for_s: float = 3600.0) -> ReceiveNotifications:
    return ReceiveNotifications(provider_id=PROVIDER, kind=GCP, for_s=for_s)


def listing() -> ListOwnedMachines:
    return ListOwnedMachines(provider_kind=GCP, provider_id=PROVIDER)


def check() -> CheckProvider:
    return CheckProvider(provider_kind=GCP, provider_id=PROVIDER)


def _named(zone: str) -> dict[str, Any]:
    return {
        "lease_id": LEASE,
        "provider_id": PROVIDER,
        "provider_kind": GCP,
        "machine_name": NAME,
        "zone": zone,
    }
