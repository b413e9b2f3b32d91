"""The input of the effect `record`: one step of a lifecycle, written in one transaction."""

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
    """The changes of a provider's row; None leaves a field as it is."""

    noun: Literal["provider"] = "provider"
    checks: tuple[Check, ...] | None = None
    resources: tuple[CloudResource, ...] | None = None


class RegionChanges(Contract):
    noun: Literal["region"] = "region"


class NodeChanges(Contract):
    """The changes of a node's row; None leaves a field as it is."""

    noun: Literal["node"] = "node"
    minion_id: str | None = None
    host: str | None = None
    port: int | None = None
    user: str | None = None
    hardware: Hardware | None = None
    requirements: tuple[Requirement, ...] | None = None
    preparation: Preparation | None = None


class JobChanges(Contract):
    """The changes of a job's row; None leaves a field as it is."""

    noun: Literal["job"] = "job"
    attempt: int | None = None
    workers: tuple[WorkerProgress, ...] | None = None
    output_bytes: int | None = None
    release: bool = False
    """Whether to release the job's allocations in the same transaction."""
    staying_nodes: tuple[str, ...] = ()
    """Retained nodes, which are not removed with the release."""


class LeaseChanges(Contract):
    """The changes of a lease's row; None leaves a field as it is."""

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
    """The cost of the terminated machines of earlier offers."""
    is_another: bool = False
    """Whether the offer has changed, so that the row forgets the earlier machine."""


Changes = ProviderChanges | RegionChanges | NodeChanges | JobChanges | LeaseChanges


class Record(Contract):
    """One step of a lifecycle, which is applied once.

    A step whose sequence is not higher than the row's changes nothing.
    """

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
    """False: this step or a later one is already recorded."""
