"""Leases in the rows of tests, and how they come to be in a state."""

from datetime import timedelta

from temporalio.testing import ActivityEnvironment

from activities.db import tables
from activities.db.ids import new_id
from activities.db.session import Database
from activities.lifecycles.record import record
from tests.activities.rows import NOW, add_payer, add_region
from workflows.contracts.lifecycles import LeaseChanges, Record
from workflows.contracts.machines import MachineOffer, MachineSpec
from workflows.contracts.statuses import LeaseStatus

OFFER = MachineOffer(zone="zone-a", machine_type="large", microcredits_per_hour=1_000_000)


class Books:
    """The leases of one provider."""

    def __init__(self, database: Database) -> None:
        self.database = database
        with database.write() as session:
            account = add_payer(session)
            region = add_region(session, account)
            provider = session.get_one(tables.Provider, region.provider_id)
            provider.kind = region.provider_kind = "gcp"
            self.account_id, self.region_id = account.id, region.id
            self.provider_id = provider.id

    def lease(self, status: LeaseStatus, zone: str | None = "zone-a") -> tables.Lease:
        """Recorded by the step that brings it there."""
        offer = None if zone is None else OFFER.model_copy(update={"zone": zone})
        lease_id = new_id("lea")
        with self.database.write() as session:
            session.add(lease_row(self, lease_id, LeaseStatus.RESERVED))
        changes = LeaseChanges(offer=offer, host="10.0.0.9", minion_id="SHA256:k", began_at=NOW)
        step = Record(
            resource_id=lease_id,
            account_id=self.account_id,
            sequence=4,
            at=NOW,
            status=status,
            changes=changes,
        )
        ActivityEnvironment().run(record, step)
        with self.database.read() as session:
            return session.get_one(tables.Lease, lease_id)


def lease_row(books: Books, lease_id: str, status: LeaseStatus) -> tables.Lease:
    """As it is committed before anything is made."""
    offer = OFFER.model_dump(mode="json")
    return tables.Lease(
        id=lease_id,
        account_id=books.account_id,
        name=f"baseload-{lease_id}",
        status=status,
        region_id=books.region_id,
        provider_id=books.provider_id,
        provider_kind="gcp",
        holder_id="nod-1",
        offers=[offer],
        offer=None if status is LeaseStatus.RESERVED else offer,
        spec=MachineSpec(lifetime_s=3600, tags={"region": "reg-1"}).model_dump(mode="json"),
        deadline=NOW + timedelta(hours=1),
        created_at=NOW,
        updated_at=NOW,
    )
