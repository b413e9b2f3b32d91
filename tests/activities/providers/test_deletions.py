"""A lease of a marketplace ends when the deletion of its machine was accepted."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.db import tables
from activities.db.session import Database
from activities.providers.base import Unavailable
from activities.providers.deletions import Delete, unkept
from activities.providers.machines import create_machine, terminate_machine
from tests.activities.leases.rows import OFFER, Books
from tests.activities.providers.fake_driver import Owned, RentedDriver
from tests.activities.providers.kinds import kind_with
from workflows.contracts import errors
from workflows.contracts.machines import MachineObservation, MachineSpec
from workflows.contracts.statuses import LeaseStatus, MachineState, ProviderKind
from workflows.effects.machines import CreateMachine, TerminateMachine


class Marketplace(RentedDriver):
    """`ending` machines are still listed; `is_missing`: they are so without being there."""

    carry_out: Callable[[Delete], None] = staticmethod(unkept)
    is_missing = False

    def terminate(self, name: str, zone: str) -> str:
        if Owned(name, zone) in self.machines:
            self.carry_out(lambda: self._deleted(name, zone))
        return ""

    def _deleted(self, name: str, zone: str) -> bool:
        super().terminate(name, zone)
        return not self.is_missing


class Lease:
    """A lease that is being released, with its machine at the marketplace."""

    def __init__(self, database: Database, driver: Marketplace) -> None:
        self.driver, self._database = driver, database
        self._id = Books(database).lease(LeaseStatus.RELEASING).id
        driver.machines[Owned(f"baseload-{self._id}", "zone-a")] = MachineObservation(
            state=MachineState.RUNNING, zone="zone-a"
        )
        self._name = {
            "lease_id": self._id,
            "provider_id": "prv-1",
            "provider_kind": ProviderKind.RUNPOD,
            "machine_name": f"baseload-{self._id}",
            "zone": "zone-a",
        }

    @property
    def ended_at(self) -> datetime | None:
        """As the row has it, whichever worker reads it."""
        with self._database.read() as session:
            return session.get_one(tables.Lease, self._id).ended_at

    async def terminate(self) -> datetime | None:
        command = TerminateMachine(**self._name, provider_machine_id="1")
        return (await ActivityEnvironment().run(terminate_machine, command)).ended_at

    async def refusal(self) -> str | None:
        """The kind of the error of an attempt after which the machine is not known to be gone."""
        with pytest.raises(ApplicationError) as caught:
            await self.terminate()
        return caught.value.type

    async def create(self) -> None:
        command = CreateMachine(**self._name, offer=OFFER, spec=MachineSpec(lifetime_s=3600))
        await ActivityEnvironment().run(create_machine, command)


@pytest.fixture
def lease(migrated: Database) -> Iterator[Lease]:
    driver = Marketplace()
    with kind_with(ProviderKind.RUNPOD, driver=lambda _: driver, offer=None):
        yield Lease(migrated, driver)


async def test_a_lease_ends_at_the_answer_however_long_the_machine_is_listed(lease: Lease) -> None:
    lease.driver.ending = 1
    before = datetime.now(UTC)
    assert await lease.refusal() == errors.NOT_YET
    accepted_at = lease.ended_at
    assert accepted_at is not None
    assert before <= accepted_at <= datetime.now(UTC)
    lease.driver.ending, lease.driver.is_missing = 1, True
    assert await lease.refusal() == errors.NOT_YET
    lease.driver.machines.clear()
    assert await lease.terminate() == lease.ended_at == accepted_at


async def test_the_last_of_several_accepted_deletions_counts(lease: Lease) -> None:
    lease.driver.ending = 1
    await lease.refusal()
    first = lease.ended_at
    last = await lease.terminate()
    assert first is not None
    assert last is not None
    assert first < last == lease.ended_at


async def test_a_deletion_without_an_answer_leaves_the_end_unknown(lease: Lease) -> None:
    lease.driver.lost_replies = 1
    assert await lease.refusal() == errors.UNAVAILABLE
    assert await lease.terminate() is None


async def test_a_later_one_without_an_answer_does_so_too(lease: Lease) -> None:
    lease.driver.ending = 1
    await lease.refusal()
    lease.driver.lost_replies = 1
    assert await lease.refusal() == errors.UNAVAILABLE
    assert (await lease.terminate(), lease.ended_at) == (None, None)


async def test_a_provider_that_does_not_answer_before_leaves_the_end_as_it_was(
    lease: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease.driver.ending = 1
    await lease.refusal()
    accepted_at = lease.ended_at

    def away(*_: str) -> str:
        raise Unavailable("no route to the provider")

    with monkeypatch.context() as patch:
        patch.setattr(lease.driver, "terminate", away)
        assert await lease.refusal() == errors.UNAVAILABLE
    lease.driver.machines.clear()
    assert await lease.terminate() == accepted_at


async def test_the_end_of_an_earlier_machine_is_not_that_of_the_next(lease: Lease) -> None:
    assert await lease.terminate() is not None
    await lease.create()
    assert lease.ended_at is None


async def test_no_lease_ends_before_it_began(lease: Lease, migrated: Database) -> None:
    began_at = datetime.now(UTC) + timedelta(seconds=2)
    with migrated.write() as session:
        session.get_one(tables.Lease, lease._id).began_at = began_at
    assert await lease.terminate() == began_at
