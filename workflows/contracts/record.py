"""What the one writing effect, `record`, takes: a step of a lifecycle in one transaction."""

from datetime import datetime
from typing import Literal

from pydantic import Field

from workflows.contracts.base import Contract
from workflows.contracts.events import Event
from workflows.contracts.jobs import WorkerProgress
from workflows.contracts.machines import MachineOffer
from workflows.contracts.nodes import Hardware, Preparation, Requirement
from workflows.contracts.providers import Check, CloudResource

Noun = Literal["provider", "region", "node", "job", "lease"]


class ProviderChanges(Contract):
    noun: Literal["provider"] = "provider"
    checks: tuple[Check, ...] | None = None
    resources: tuple[CloudResource, ...] | None = None


class RegionChanges(Contract):
    noun: Literal["region"] = "region"


class NodeChanges(Contract):
    """Fields that are None stay as they are."""

    noun: Literal["node"] = "node"
    minion_id: str | None = None
    host: str | None = None
    port: int | None = None
    user: str | None = None
    hardware: Hardware | None = None
    requirements: tuple[Requirement, ...] | None = None
    preparation: Preparation | None = None


class JobChanges(Contract):
    """Fields that are None stay as they are."""

    noun: Literal["job"] = "job"
    attempt: int | None = None
    workers: tuple[WorkerProgress, ...] | None = None
    output_bytes: int | None = None
    release: bool = False
    """End the job's live allocations in the same transaction."""
    staying_nodes: tuple[str, ...] = ()
    """Of those that were made for it: they are not asked to leave with that."""


class LeaseChanges(Contract):
    """Fields that are None stay as they are."""

    noun: Literal["lease"] = "lease"
    offer: MachineOffer | None = None
    provider_machine_id: str | None = None
    host: str | None = None
    port: int | None = None
    user: str | None = None
    minion_id: str | None = None
    microcredits_per_hour: int | None = None
    began_at: datetime | None = None
    ended_at: datetime | None = None
    earlier_microcredits: int | None = None
    """What the machines of earlier offers have cost that were not kept."""
    is_another: bool = False
    """What is known of the machine of an earlier offer is not about this one."""


Changes = ProviderChanges | RegionChanges | NodeChanges | JobChanges | LeaseChanges


class Record(Contract):
    """One step: applied once, in order; an older or repeated one changes nothing."""

    resource_id: str
    account_id: str
    sequence: int
    at: datetime
    status: str
    status_reason: str | None = None
    events: tuple[Event, ...] = ()
    changes: Changes = Field(discriminator="noun")


class Recorded(Contract):
    applied: bool
    """False: this step, or a later one, had been written before."""
