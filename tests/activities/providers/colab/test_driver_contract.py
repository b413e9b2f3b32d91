"""Notebooks keep to what every driver keeps to."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from activities.db.session import Database
from activities.providers.base import OwnedMachine, Unavailable
from activities.providers.colab.driver import ColabMachines, colab_offers
from tests.activities.providers.colab.rows import add_colab, announce
from tests.activities.providers.driver_contract import SPEC, DriverContract, Market
from tests.activities.rows import add_payer
from workflows.contracts.machines import MachineObservation, MachineOffer, MachineSpec

NOWHERE = Database("sqlite:////nowhere/at/all.db")


@pytest.fixture
def dialect() -> str:
    return "sqlite"


@dataclass
class Worker:
    """The driver in a worker process that may end after a change, before anybody learns of it."""

    provider_id: str
    database: Database
    ends: bool = False
    containers: bool = False
    ids: set[str] = field(default_factory=set)

    @property
    def machines(self) -> ColabMachines:
        return ColabMachines(self.provider_id, database=lambda: self.database)

    def find(self, name: str, zone: str) -> MachineObservation | None:
        found = self.machines.find(name, zone)
        if found is not None and found.provider_machine_id is not None:
            self.ids.add(found.provider_machine_id)
        return found

    def create(self, name: str, offer: MachineOffer, spec: MachineSpec) -> MachineObservation:
        spec = spec.model_copy(update={"containers": self.containers})
        made = self.machines.create(name, offer, spec)
        self._may_end()
        return made

    def terminate(self, name: str, zone: str) -> str:
        remark = self.machines.terminate(name, zone)
        self._may_end()
        return remark

    def billed_period(self, name: str, zone: str, machine_id: str | None) -> MachineObservation:
        return self.machines.billed_period(name, zone, machine_id)

    def list_owned(self) -> Sequence[OwnedMachine]:
        return self.machines.list_owned()

    def _may_end(self) -> None:
        if self.ends:
            self.ends = False
            raise Unavailable("the worker process has ended")


class TestColabMachines(DriverContract):
    @pytest.fixture
    def market(self, migrated: Database) -> Market:
        with migrated.write() as session:
            provider_id = add_colab(session, add_payer(session)).provider_id
        announce(migrated, provider_id)
        (sold,) = colab_offers(provider_id)
        worker = Worker(provider_id, migrated)

        def sell_out() -> None:
            worker.machines.create("baseload-lea-2", sold.machine, SPEC)

        return Market(
            driver=worker,
            offer=sold.machine,
            another=sold.machine.model_copy(update={"gpu_count": 2}),
            lose_a_reply=lambda: setattr(worker, "ends", True),
            sell_out=sell_out,
            refuse=lambda: setattr(worker, "containers", True),
            go_away=lambda: setattr(worker, "database", NOWHERE),
            made=lambda: len(worker.ids),
            looks_back=False,
            lists=False,
        )
