"""The reconciliation of a marketplace, where a machine's place is hearsay and its name is not."""

from collections.abc import Callable, Iterator

import pytest
from temporalio.testing import ActivityEnvironment

from activities.db import tables
from activities.db.session import Database
from activities.leases.orphaned_machines import listed_machines
from activities.leases.reconciliation import reconcile_machines
from activities.providers.vastai.driver import VastMachines
from tests.activities.leases.rows import Books
from tests.activities.providers.kinds import kind_with
from tests.activities.providers.vastai.conftest import (
    Sessions,
    make_vastai,
    own_settings,
    session_with,
    vastai,
)
from tests.activities.providers.vastai.test_driver_contract import OFFER
from tests.doubles.vastai.double import VastDouble
from workflows.contracts.machines import MachineSpec
from workflows.contracts.statuses import LeaseStatus, ProviderKind
from workflows.effects.reconciliation import MachinesReconciled, ReconcileMachines

__all__ = ["make_vastai", "own_settings", "session_with", "vastai"]

SPEC = MachineSpec(lifetime_s=3600, tags={"region": "reg-1"}, image="image:1", disk_size_gb=20)


class Rented(Books):
    """The leases of a marketplace's provider, and the driver of its machines."""

    def __init__(self, database: Database, driver: Callable[[str], VastMachines]) -> None:
        super().__init__(database)
        with database.write() as session:
            session.get_one(tables.Provider, self.provider_id).kind = ProviderKind.VASTAI
        self.driver = driver(self.provider_id)

    def rented(self, status: LeaseStatus) -> tables.Lease:
        """A lease whose machine is there."""
        lease = self.lease(status, OFFER.zone)
        self.driver.create(lease.name, OFFER, SPEC)
        return lease

    async def reconciled(self) -> MachinesReconciled:
        command = ReconcileMachines(
            provider_id=self.provider_id, provider_kind=ProviderKind.VASTAI, is_ready=True
        )
        found: MachinesReconciled = await ActivityEnvironment().run(reconcile_machines, command)
        return found


@pytest.fixture
def rented(migrated: Database, vastai: VastDouble, session_with: Sessions) -> Iterator[Rented]:
    session = session_with(vastai)

    def driver(provider_id: str) -> VastMachines:
        return VastMachines(session, provider_id)

    with kind_with(ProviderKind.VASTAI, driver=driver):
        yield Rented(migrated, driver)


@pytest.mark.parametrize("stated", [None, "Texas, US"])
@pytest.mark.parametrize("status", [LeaseStatus.CREATING, LeaseStatus.READY])
async def test_a_machine_whose_place_is_stated_otherwise_is_still_its_leases(
    rented: Rented, vastai: VastDouble, stated: str | None, status: LeaseStatus
) -> None:
    lease = rented.rented(status)
    (instance,) = vastai.instances.by_id.values()
    instance.offer.geolocation = stated
    found = await rented.reconciled()
    assert list(vastai.instances.by_id) == [instance.id]
    assert found.released == found.missing == ()
    (listed,) = listed_machines(rented.provider_id, ProviderKind.VASTAI)
    assert (listed.name, listed.is_held) == (lease.name, True)


async def test_the_late_machine_of_an_earlier_offer_takes_no_other_one_with_it(
    rented: Rented, vastai: VastDouble
) -> None:
    vastai.served.list_lag_s = 60.0
    lease = rented.lease(LeaseStatus.READY, OFFER.zone)
    kept = rented.driver.create(lease.name, OFFER, SPEC)
    late = OFFER.model_copy(update={"zone": "us", "provider_offer_id": "7000001"})
    rented.driver.create(lease.name, late, SPEC)
    vastai.clock.advance(60)
    await rented.reconciled()
    assert kept.provider_machine_id in [str(number) for number in vastai.instances.by_id]


async def test_whatever_its_place_the_machine_of_a_lease_that_has_ended_is_ended(
    rented: Rented, vastai: VastDouble
) -> None:
    lease = rented.rented(LeaseStatus.RELEASED)
    (instance,) = vastai.instances.by_id.values()
    instance.offer.geolocation = "Texas, US"
    found = await rented.reconciled()
    assert found.released == (lease.name,)
    assert vastai.instances.by_id == {}
