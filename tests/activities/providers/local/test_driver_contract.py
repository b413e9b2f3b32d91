"""Local machines keep to what every driver keeps to."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from activities.providers.base import OwnedMachine, Unavailable
from activities.providers.local.driver import LocalMachines
from activities.providers.local.records import MachineFolder
from tests.activities.providers.driver_contract import SPEC, DriverContract, Market
from workflows.contracts.machines import MachineObservation, MachineOffer, MachineSpec

OFFER = MachineOffer(zone="here", machine_type="this-host", microcredits_per_hour=0)
PROVIDER, OTHER = "prv-01abc", "prv-02def"


@dataclass
class Host:
    """The driver in a worker process that may end after a change, before anybody learns of it."""

    folder: Path
    ends: bool = False
    trusted: bool = True
    node: str | None = None
    names: set[str] = field(default_factory=set)

    @property
    def machines(self) -> LocalMachines:
        return LocalMachines(
            PROVIDER, self.folder, is_trusted=lambda: self.trusted, node_here=lambda: self.node
        )

    def find(self, name: str, zone: str) -> MachineObservation | None:
        found = self.machines.find(name, zone)
        if found is not None and found.provider_machine_id is not None:
            self.names.add(found.provider_machine_id)
        return found

    def create(self, name: str, offer: MachineOffer, spec: MachineSpec) -> MachineObservation:
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


class TestLocalMachines(DriverContract):
    @pytest.fixture
    def market(self, folder: Path) -> Market:
        host = Host(folder)

        def sell_out() -> None:
            taken = MachineFolder(folder / "baseload-lea-2")
            LocalMachines(OTHER, folder, is_trusted=lambda: True, node_here=lambda: None).create(
                taken.path.name, OFFER, SPEC
            )

        return Market(
            driver=host,
            offer=OFFER,
            another=OFFER.model_copy(update={"gpu_type": "A100", "gpu_count": 2}),
            lose_a_reply=lambda: setattr(host, "ends", True),
            sell_out=sell_out,
            refuse=lambda: setattr(host, "node", "nod-1"),
            go_away=lambda: setattr(host, "trusted", False),
            made=lambda: len(host.names),
            looks_back=False,
        )
