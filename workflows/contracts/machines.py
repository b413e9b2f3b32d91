"""Machines that cost money: what is asked for, what a provider says, what their holder is told."""

import re
from datetime import datetime

from pydantic import Field

from workflows.contracts.base import Contract
from workflows.contracts.statuses import MachineState, ProviderKind


class MachineOffer(Contract):
    """One way to get a machine: where, of which type, at which price."""

    zone: str = ""
    """A zone or a data centre; empty where the provider chooses it."""
    machine_type: str
    gpu_type: str | None = None
    gpu_count: int = 0
    spot: bool = False
    microcredits_per_hour: int
    price_is_estimate: bool = False
    """From a dated list, where the provider does not say what this very machine costs."""

    @property
    def scope(self) -> str:
        """What is short when this is not to be had: remembered for all jobs."""
        return f"{self.zone}/{self._machine}/{self._kind}"

    @property
    def label(self) -> str:
        """What a machine carries that was made for this offer: of letters that any cloud takes."""
        return re.sub(r"[^a-z0-9]+", "-", f"{self._machine}-{self._kind}".lower())[:63]

    @property
    def _machine(self) -> str:
        """With its GPUs: some types have them by themselves, to others they are attached."""
        gpus = f"+{self.gpu_count}x{self.gpu_type}" if self.gpu_type and self.gpu_count else ""
        return f"{self.machine_type}{gpus}"

    @property
    def _kind(self) -> str:
        return "spot" if self.spot else "on-demand"


class MachineSpec(Contract):
    """What the machine is to be, whichever offer it comes from. No secret is in it."""

    disk_size_gb: int = 100
    lifetime_s: int
    """Its provider ends it after so long, though all of us were dead; one that is to run for longer
    than its provider counts, it ends only when it is asked to."""
    tags: dict[str, str] = Field(default_factory=dict)
    containers: bool = False
    """It is to have podman, ready before it is used; where it has GPUs, with their CDI names."""


class MachineClaim(Contract):
    """The machine that a resource is to have leased for it."""

    provider_id: str
    provider_kind: ProviderKind
    offers: tuple[MachineOffer, ...]
    """In the order in which they are tried."""
    spec: MachineSpec
    price_cap_microcredits_per_hour: int | None = None
    stays: bool = False
    """The job that it was made for has ended: it is there until people, or its deadline, end it."""


class MachineObservation(Contract):
    """What the provider says of a machine."""

    state: MachineState
    zone: str = ""
    provider_machine_id: str | None = None
    host: str | None = None
    port: int = 22
    user: str = "root"
    minion_id: str | None = None
    """`SHA256:…` fingerprint of its SSH host key, from a source that cannot be imitated."""
    microcredits_per_hour: int | None = None
    """What this machine really costs; None where the provider does not say."""
    began_at: datetime | None = None
    """Since when it costs money; None while it does not."""
    ended_at: datetime | None = None
    """Until when it did."""
    offer_label: str = ""
    """For which offer it was made, see `MachineOffer.label`; empty where that is not known."""
    reason: str = ""

    @property
    def is_reachable(self) -> bool:
        """There is an address to go to, and a key to prove it by."""
        return (
            self.state is MachineState.RUNNING
            and self.host is not None
            and self.minion_id is not None
        )


class OrphanedMachine(Contract):
    """A machine that carries a provider's ownership label, and that no lease names."""

    name: str
    zone: str


class OrphanedMachinesFound(Contract):
    """Signal `orphaned_machines` to a provider: what the sweep has found, for people to look at."""

    machines: tuple[OrphanedMachine, ...]


class TerminateOrphan(Contract):
    """Signal `terminate_orphan` to a provider: a person wants an orphaned machine gone."""

    machine: OrphanedMachine
    requested_by: str = ""


class MachineNews(Contract):
    """Signal `news`: what its provider has told of a machine by itself."""

    what: str
    """In words for people, such as `it was preempted`."""
    at: datetime
    """By the provider's clock."""
    provider_machine_id: str = ""
    """Of the machine that it happened to; one of the same name may have been there before."""


class Shortage(Contract):
    """What was not to be had, remembered for a while for whoever asks next."""

    scope: str
    reason: str
    until: datetime
