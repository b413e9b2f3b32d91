"""Federated jobs: the model of one account on the machines and the data of another one.

The model's owner creates the federated job in a project of the consumer. Neither the model nor the
key that it is sealed with ever passes through a workflow.
"""

from enum import StrEnum

from pydantic import Field

from workflows.contracts.artifacts import Content
from workflows.contracts.base import Contract


class FederatedStatus(StrEnum):
    NEW = "new"
    VERIFYING = "verifying"
    """The rules of both parties are checked."""
    ISOLATING = "isolating"
    """The model is sealed with a key of its own, and the job is created with its confinement."""
    RUNNING = "running"
    """Its job is on its way, from waiting for a machine to its last state."""
    WITHDRAWING = "withdrawing"
    """The job has ended, or is to end; the sealed model and its key are removed."""
    SETTLED = "settled"
    REFUSED = "refused"
    """A rule of a party does not allow it; no job was created."""

    @property
    def is_final(self) -> bool:
        return self in (FederatedStatus.SETTLED, FederatedStatus.REFUSED)


class FederatedEvent(StrEnum):
    """The types of a federated job's events."""

    CONSENT_WITHDRAWN = "federated.consent-withdrawn"
    ISOLATING = "federated.isolating"
    REFUSED = "federated.refused"
    REQUEST_PARKED = "federated.request-parked"
    REQUESTED = "federated.requested"
    RUNNING = "federated.running"
    SETTLED = "federated.settled"
    VERIFYING = "federated.verifying"
    WITHDRAWING = "federated.withdrawing"


class LogPolicy(StrEnum):
    """What of the logs of its federated jobs a project shows."""

    NONE = "none"
    """Neither lines nor exit codes; why a run ended is said in words that the platform has."""
    EXIT_ONLY = "exit_only"
    """The exit codes as well; no lines."""
    ALL = "all"


class PartyWords(Contract):
    """Why a federated job is refused or has ended: for both parties, and for each one alone.

    What only one party may know, such as why its own model cannot be read, is in its words alone.
    """

    both: str
    creator: str | None = None
    """None: as for both."""
    consumer: str | None = None


class SealedModel(Contract):
    """A model as a federated run gets it: sealed, and readable with the key of the job alone."""

    artifact_id: str
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")
    """The name of the folder in which the run finds the model."""
    reference: str
    """Where the sealed model is in the object store; it is removed when the job has ended."""
    sealed_bytes: int = Field(ge=0)
    content: Content
    """Of the model itself: the node compares what it has opened with that."""


class FederatedRun(Contract):
    """How a node confines a run of a federated job; a part of the sealed run spec.

    A run spec that has it requires it: a worker that does not know it refuses the run.
    """

    federated_id: str
    egress: tuple[str, ...] = ()
    """All that the run may reach, each `host:port` or `CIDR:port`, IPv6 in brackets; empty: no
    network at all."""
    logs: LogPolicy = LogPolicy.NONE
    """Unless it is `all`, no line of the log leaves the node, in no message and in no error."""
    model: SealedModel | None = None
    """None: the model comes as other content does, which the owner of the node could read."""
    needs_attestation: bool = False
    """Whether the key is released against an attestation of the node alone, and is not in the run
    spec."""


class FederatedRequest(Contract):
    """Input of `federated/{id}`."""

    federated_id: str
    account_id: str
    """Of the creator, which owns the model and pays the federated fee."""
    consumer_account_id: str
    """Of the project's owner, on whose machines and data the job runs."""
    project_id: str
    job_id: str
    """The job's id, which the federated job has given it before it is created."""
    name: str
    sequence: int = 0
    resumed_status: FederatedStatus | None = None
    resumed_reason: str | None = None


class FederatedReport(Contract):
    federated_id: str
    job_id: str
    status: FederatedStatus
    status_reason: str | None = None
