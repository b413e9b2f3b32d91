"""Reservations: a hostname and a port of a region, and what nodes say of the hostname."""

from enum import StrEnum

from pydantic import Field

from workflows.contracts.base import Contract


class ReservationType(StrEnum):
    PORT = "port"


class HostnameState(StrEnum):
    """What a node says of the hostname that it publishes for a run."""

    PUBLISHED = "published"
    """The node answers for the hostname on the region's link."""
    CONFLICT = "conflict"
    """Another machine on the link answers for the hostname, so the node does not."""
    NOT_PUBLISHED = "not-published"
    """The node cannot publish hostnames: it has no address on a link, or may not listen there."""


class WorkerHostname(Contract):
    """Signal `worker_hostname`: what the node of a worker says of the job's hostname."""

    worker: int
    attempt: int
    hostname: str
    """With its domain, as `lab.local`."""
    state: HostnameState
    addresses: tuple[str, ...] = Field(default=(), max_length=16)
    """The published addresses; those of the other machine in a conflict."""
    message: str = ""
    node_id: str = ""
    """The node whose watch says so."""
