"""Machines at providers: offers, specs and claims, observations, orphans and shortages."""

import hashlib
import re
from datetime import datetime

from pydantic import Field

from workflows.contracts.base import Contract
from workflows.contracts.statuses import MachineState, ProviderKind

LABEL_LENGTH = 63


class MachineOffer(Contract):
    """A machine offer: one way to get one machine, with its zone, machine type and price."""

    zone: str = ""
    """A zone or a data centre; empty if the provider chooses it."""
    machine_type: str
    gpu_type: str | None = None
    gpu_count: int = 0
    spot: bool = False
    microcredits_per_hour: int
    price_is_estimate: bool = False
    """Whether the price is from a dated price list, because the provider states no exact one."""
    provider_offer_id: str = ""
    """The marketplace's own id of what it offers: one machine, or a GPU model as it names it. Empty
    for a cloud, which sells machine types."""
    host: str = ""
    """The marketplace's number of the machine behind the offer, at a host who is a stranger; empty
    where it names none before the rental."""
    memory_bytes: int = 0
    """The memory that the host says the machine has; 0: nobody says it."""
    disk_mb_per_s: int = 0
    """How fast the host says the disk is; 0: nobody says it."""

    @property
    def scopes(self) -> tuple[str, ...]:
        """The scopes of the shortages for which this offer is not tried: its own, and its host's,
        whose offers have other ids tomorrow."""
        return (self.scope, self.host_scope) if self.host else (self.scope,)

    @property
    def host_scope(self) -> str:
        """The scope to remember when the machine is not what was offered."""
        return f"host/{self.host}" if self.host else self.scope

    @property
    def scope(self) -> str:
        """The scope of the shortage to remember for all jobs, when this offer is exhausted."""
        own = f"/{self.provider_offer_id}" if self.provider_offer_id else ""
        return f"{self.zone}/{self._machine}/{self._kind}{own}"

    @property
    def label(self) -> str:
        """The offer label of machines created for this offer, in letters that any cloud takes.

        The label of a marketplace's offer has its id too, because the offers of two machines that
        are alike differ by it alone.
        """
        name = f"{self._machine}-{self._kind}"
        if not self.provider_offer_id:
            return re.sub(r"[^a-z0-9]+", "-", name.lower())[:LABEL_LENGTH]
        name = re.sub(r"[^a-z0-9]+", "-", f"{self.provider_offer_id}-{name}".lower())
        if len(name) <= LABEL_LENGTH:
            return name
        digest = hashlib.sha256(name.encode()).hexdigest()[:8]
        return f"{name[: LABEL_LENGTH - 9]}-{digest}"

    @property
    def _machine(self) -> str:
        """The machine type with its GPUs, because a cloud attaches GPUs to some machine types."""
        gpus = f"+{self.gpu_count}x{self.gpu_type}" if self.gpu_type and self.gpu_count else ""
        return f"{self.machine_type}{gpus}"

    @property
    def _kind(self) -> str:
        return "spot" if self.spot else "on-demand"


class RentalOffer(Contract):
    """A rental offer: what a marketplace sells by the hour, and what it says that the machine has.

    All of it is hearsay, which grows old. A machine is compared with it before it is used.
    """

    machine: MachineOffer
    cpu_count: int
    memory_bytes: int
    disk_microcredits_per_gb_month: int = 0
    most_disk_gb: int | None = None
    """The largest disk that the machine can have; None: the marketplace states none."""

    @property
    def offer_id(self) -> str:
        """What tells the offer from the others of its provider."""
        return self.machine.scope


class MachineSpec(Contract):
    """The machine spec: what a machine must be, whichever offer it comes from, without secrets."""

    disk_size_gb: int = 100
    lifetime_s: int
    """Maximum lifetime, enforced by the provider even if the control plane is down. If it exceeds
    the provider's own maximum, the machine runs until it is terminated."""
    tags: dict[str, str] = Field(default_factory=dict)
    containers: bool = False
    """Whether podman must be installed before the machine is used, with CDI names of its GPUs."""
    image: str = ""
    """The container image that a rented machine is, with the job's programs in it; empty: the
    image of the setting of its provider kind. A machine of a cloud boots a system instead."""
    env: dict[str, str] = Field(default_factory=dict)
    """Variables that a rented machine gets at its creation. Its host reads them, so none is a
    secret; the driver adds the host key of this one machine."""
    has_own_key: bool = False
    """Whether the machine lets in a key of its own, because its host is a stranger; else its
    region's key, as all machines did before."""


class MachineClaim(Contract):
    """The machine claim of a node: what the node asks to have leased."""

    provider_id: str
    provider_kind: ProviderKind
    offers: tuple[MachineOffer, ...]
    """The machine offers in the order in which they are tried."""
    spec: MachineSpec
    price_cap_microcredits_per_hour: int | None = None
    stays: bool = False
    """Whether the node is retained after its job, until a person or the lease deadline ends it."""


class MachineObservation(Contract):
    """The machine observation: what a provider says of one machine at one moment."""

    state: MachineState
    zone: str = ""
    provider_machine_id: str | None = None
    host: str | None = None
    """The address at which the machine is reached; None: it has none yet, or none for us."""
    internal_host: str | None = None
    """The machine's address in its own network, at which only a region reaches it that says so."""
    port: int = 22
    user: str = "root"
    minion_id: str | None = None
    """`SHA256:…` fingerprint of its SSH host key, from a source that cannot be forged."""
    microcredits_per_hour: int | None = None
    """The actual price of this machine; None if the provider does not say."""
    began_at: datetime | None = None
    """The start of the billed period; None while the machine costs nothing."""
    ended_at: datetime | None = None
    """The end of the billed period; None while it lasts."""
    offer_label: str = ""
    """The offer label of the machine, see `MachineOffer.label`; empty if unknown."""
    reason: str = ""

    @property
    def is_reachable(self) -> bool:
        """Whether the machine runs and has an address and a host key."""
        return (
            self.state is MachineState.RUNNING
            and self.host is not None
            and self.minion_id is not None
        )


class OrphanedMachine(Contract):
    """An orphaned machine: it carries our ownership label, and no lease names it."""

    name: str
    zone: str


class OrphanedMachinesFound(Contract):
    """Signal `orphaned_machines` to a provider: what a lease reconciliation found, for people."""

    machines: tuple[OrphanedMachine, ...]


class TerminateOrphan(Contract):
    """Signal `terminate_orphan` to a provider: a person wants an orphaned machine terminated."""

    machine: OrphanedMachine
    requested_by: str = ""


class MachineNotification(Contract):
    """Signal `notified` to a lease: a notification of its provider about its machine."""

    what: str
    """What happened, in words for people, such as `it was preempted`."""
    at: datetime
    """When it happened, by the provider's clock."""
    provider_machine_id: str = ""
    """The provider's id of the machine, because an earlier machine may have had the same name."""


class Shortage(Contract):
    """A shortage: something that a provider did not have, remembered until an instant."""

    scope: str
    reason: str
    until: datetime
