"""A driver of machines that keeps what it has made, and loses answers when it is told to."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from activities.providers.base import CapacityExhausted, RequestRefused, Unavailable
from workflows.contracts.machines import MachineObservation, MachineOffer, MachineSpec
from workflows.contracts.statuses import MachineState


@dataclass(frozen=True)
class Owned:
    machine_name: str
    zone: str
    seen: MachineObservation = field(
        default=MachineObservation(state=MachineState.RUNNING), compare=False, repr=False
    )


@dataclass
class RentedDriver:
    """lost_replies: how many of the next calls are done and then go unanswered.
    ending: how often a machine is still seen after its release was asked for."""

    machines: dict[Owned, MachineObservation] = field(default_factory=dict)
    made: Counter[Owned] = field(default_factory=Counter)
    gone: dict[str, MachineObservation] = field(default_factory=dict)
    """What was ended, by its provider's number, and the last of each name."""
    lost_replies: int = 0
    ending: int = 0
    is_away: bool = False
    is_sold_out: bool = False
    refuses: str = ""
    """Why nothing is made any more."""

    def find(self, name: str, zone: str) -> MachineObservation | None:
        self._must_be_there()
        return self.machines.get(Owned(name, zone))

    def create(self, name: str, offer: MachineOffer, spec: MachineSpec) -> MachineObservation:
        self._must_be_there()
        key = Owned(name, offer.zone)
        if self.refuses:
            raise RequestRefused(self.refuses)
        if key not in self.machines and self.is_sold_out:
            raise CapacityExhausted(f"{offer.zone} has none left")
        if key not in self.machines:
            self.made[key] += 1
            self.machines[key] = MachineObservation(
                state=MachineState.RUNNING,
                zone=offer.zone,
                provider_machine_id=str(self.made.total()),
                host="10.0.0.9",
                minion_id="SHA256:k",
                began_at=datetime.now(UTC),
                offer_label=offer.label,
            )
        self._may_be_lost()
        return self.machines[key]

    def terminate(self, name: str, zone: str) -> str:
        self._must_be_there()
        if self.ending:
            self.ending -= 1
        elif (ended := self.machines.pop(Owned(name, zone), None)) is not None:
            update = {"state": MachineState.GONE, "ended_at": datetime.now(UTC)}
            past = ended.model_copy(update=update)
            self.gone[ended.provider_machine_id or ""] = self.gone[name] = past
        self._may_be_lost()
        return ""

    def billed_period(self, name: str, zone: str, machine_id: str | None) -> MachineObservation:
        self._must_be_there()
        return self.gone.get(machine_id or name, MachineObservation(state=MachineState.GONE))

    def list_owned(self) -> Sequence[Owned]:
        self._must_be_there()
        return [replace(key, seen=seen) for key, seen in self.machines.items()]

    def _must_be_there(self) -> None:
        if self.is_away:
            raise Unavailable("no route to the provider")

    def _may_be_lost(self) -> None:
        if self.lost_replies:
            self.lost_replies -= 1
            raise Unavailable("the connection was cut before the answer")
