"""Instances of Compute Engine and their operations, as Google keeps them."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol

from activities.providers.base import RequestRefused
from activities.providers.gcp.catalogue import gcp_catalogue
from activities.providers.gcp.instance_bodies import LONGEST_RUN_S, SHORTEST_RUN_S, USER
from tests.simulation.contracts import Cancellable, Event
from workflows.contracts.machines import MachineObservation, MachineOffer, MachineSpec
from workflows.contracts.statuses import MachineState
from workflows.rules.catalogue.clouds import MachineType

Status = Literal["PROVISIONING", "RUNNING", "STOPPING", "TERMINATED"]
STATES: dict[Status, MachineState] = {
    "PROVISIONING": MachineState.MAKING,
    "RUNNING": MachineState.RUNNING,
    "STOPPING": MachineState.ENDING,
    "TERMINATED": MachineState.STOPPED,
}
"""As gcp/instance_bodies.py:_STATES, of the statuses that the model has."""
PLAIN_CPUS = 4
PLAIN_MEMORY_GIB = 16.0
"""Of a machine type without GPUs that the catalogue lacks, which Google creates all the same."""


class Host(Protocol):
    """A machine as `outside/machines.py` keeps it."""

    @property
    def host(self) -> str: ...


class Hosts(Protocol):
    """What the clouds ask of `outside/machines.py`."""

    def boot(
        self,
        name: str,
        *,
        gpus: int,
        minion_id: str,
        cpu_count: int,
        memory_bytes: int,
        is_leased: bool = True,
    ) -> Host: ...

    def end(self, machine: Any) -> None:
        """End a machine that `boot` has returned, with all its processes."""


@dataclass(frozen=True)
class OperationError:
    code: str
    message: str


@dataclass(frozen=True)
class Errors:
    errors: tuple[OperationError, ...] = ()


@dataclass
class Operation:
    """An operation, as gcp/operations.py:lasted reads it."""

    operation_type: str
    target_id: int
    end_time: str = ""
    """When it has ended; empty while it runs."""
    error: Errors = field(default_factory=Errors)
    http_error_status_code: int = 0
    done: Event = field(default_factory=Event)

    def end(self, at: datetime, error: OperationError | None = None, code: int = 0) -> None:
        """Note the end; only the first counts."""
        if self.end_time:
            return
        if error is not None:
            self.error, self.http_error_status_code = Errors((error,)), code
        self.end_time = at.isoformat()
        self.done.set()


@dataclass(frozen=True)
class Body:
    """The body of an insert, as gcp/instance_bodies.py:instance_body."""

    provider_id: str
    """Its ownership label."""
    name: str
    offer: MachineOffer
    spec: MachineSpec

    @property
    def zone(self) -> str:
        return self.offer.zone

    @property
    def run_limit_s(self) -> int | None:
        """After how many seconds Google deletes it, as gcp/instance_bodies.py:_scheduling."""
        if self.spec.lifetime_s > LONGEST_RUN_S:
            return None
        return max(SHORTEST_RUN_S, self.spec.lifetime_s)

    @property
    def returns(self) -> bool:
        """Whether Google moves or restarts it when its host fails."""
        return not self.offer.spot and not self.offer.gpu_count


@dataclass
class Instance:
    """One instance, from the acceptance of its insert until Google has deleted it."""

    body: Body
    number: int
    made_at: datetime
    came_late: bool = False
    """Whether it was made after Google had said that it is not, or had not answered."""
    status: Status = "PROVISIONING"
    started_at: datetime | None = None
    stopped_at: datetime | None = None
    ending_at: datetime | None = None
    gone_at: datetime | None = None
    host: str | None = None
    """The address that it got when it booted."""
    inserted: Operation | None = None
    machine: Host | None = None
    """None: it has not booted, or its programs have ended."""
    shows_key_at: datetime | None = None
    until_deadline: Cancellable | None = None
    _seen: tuple[tuple[Status, str | None, bool], MachineObservation] | None = None

    @property
    def provider_id(self) -> str:
        return self.body.provider_id

    @property
    def name(self) -> str:
        return self.body.name

    @property
    def zone(self) -> str:
        return self.body.zone

    @property
    def minion_id(self) -> str:
        return f"SHA256:google-{self.number}"

    def seen(self, now: datetime) -> MachineObservation:
        """As gcp/driver.py:find: `shown`, with the host key of a machine that has given it."""
        shows_key = (
            self.status == "RUNNING" and self.shows_key_at is not None and self.shows_key_at <= now
        )
        host = self.host if self.machine is None else self.machine.host
        shown = self.status, host, shows_key
        if self._seen is None or self._seen[0] != shown:
            observation = MachineObservation(
                state=STATES[self.status],
                zone=self.zone,
                provider_machine_id=str(self.number),
                host=host,
                user=USER,
                minion_id=self.minion_id if shows_key else None,
                microcredits_per_hour=self.body.offer.microcredits_per_hour,
                began_at=self.started_at,
                ended_at=self.stopped_at if self.status == "TERMINATED" else None,
                offer_label=self.body.offer.label,
            )
            self._seen = shown, observation
        return self._seen[1]

    def cancel_deadline(self) -> None:
        if self.until_deadline is not None:
            self.until_deadline.cancel()
            self.until_deadline = None


TYPES: dict[tuple[str, str | None, int], MachineType] = {
    (machine.name, machine.gpu_type, machine.gpu_count): machine
    for machine in gcp_catalogue().machines
}


def check_type(name: str, offer: MachineOffer) -> None:
    """Raises: RequestRefused, as gcp/instance_bodies.py:instance_body."""
    if offer.gpu_count and _type_of(offer) is None:
        gpus = f"{offer.gpu_count}×{offer.gpu_type}"
        raise RequestRefused(f"{name}: no {offer.machine_type} with {gpus} is in the catalogue")


def boot(instance: Instance, hosts: Hosts) -> Host:
    """Boot the machine of an instance, with what its machine type has."""
    offer = instance.body.offer
    machine = _type_of(offer)
    memory_gib = PLAIN_MEMORY_GIB if machine is None else machine.memory_gib
    return hosts.boot(
        instance.name,
        gpus=offer.gpu_count,
        minion_id=instance.minion_id,
        cpu_count=PLAIN_CPUS if machine is None else machine.cpu_count,
        memory_bytes=int(memory_gib * 2**30),
        is_leased=True,
    )


def _type_of(offer: MachineOffer) -> MachineType | None:
    """As gcp/instance_bodies.py:machine_of, which looks through the whole catalogue."""
    return TYPES.get((offer.machine_type, offer.gpu_type, offer.gpu_count))
