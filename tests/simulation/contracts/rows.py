"""Rows: the database, and the API before it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

from tests.simulation.contracts.effects import Handler
from workflows.contracts.job_submission import JobSubmission


class Verb(StrEnum):
    """What people ask of a resource that is there, as routes of the API."""

    CANCEL = "cancel"
    DISCARD = "discard"
    """Cancel, and the output is not wanted."""
    STOP = "stop"
    START = "start"
    RESUBMIT = "resubmit"
    REMOVE = "remove"
    FORCE_REMOVE = "force_remove"
    RESCHEDULE_REMOVE = "reschedule_remove"
    """Remove a node; its jobs begin again elsewhere."""
    ACTIVATE = "activate"
    MAINTAIN = "maintain"
    REFRESH = "refresh"
    """Look now: at a region's site, a node's machine."""
    REBOOT = "reboot"
    REPLACE = "replace"
    RECHECK = "recheck"
    RETRY = "retry"
    KILL = "kill"
    """End a lease's machine."""
    TOP_UP = "top_up"
    """Grant credits to an account."""


class Refused(Exception):  # noqa: N818 - an answer of the API
    """The API has refused what was asked; nothing has changed."""


@dataclass(frozen=True)
class JobView:
    job_id: str
    account_id: str
    type: str
    status: str
    status_reason: str | None
    attempt: int
    is_open: bool
    """Neither final nor archived: a workflow serves it."""
    run_ids: tuple[str, ...]
    """Of the workers of the present attempt, as far as they have any."""
    created_at: datetime
    auto_restarts: bool
    """Whether the job goes on after the loss of its machine (`max_restarts` > 0)."""
    refusal: str | None = None
    """Why a job that waits has no place: the first refusal of its demand."""
    restarts: int = 0
    """How often it has begun again after a loss, since a person has started it."""
    delivery_status: str | None = None
    """How the delivery of its output is; None: it has none, or not yet."""


@dataclass(frozen=True)
class NodeView:
    node_id: str
    region_id: str
    status: str
    status_reason: str | None
    wanted: str | None
    host: str | None
    minion_id: str | None
    lease_id: str | None
    ephemeral: bool
    was_forced: bool
    """Removed by force: what runs on it is left as it is."""


@dataclass(frozen=True)
class LeaseView:
    lease_id: str
    provider_id: str
    name: str
    """The machine's name at its provider."""
    status: str
    holder_id: str
    zone: str | None
    began_at: datetime | None
    ended_at: datetime | None


@dataclass(frozen=True)
class AllocationView:
    allocation_id: str
    job_id: str | None
    """None: it went over to its node, because nobody has seen its run end."""
    run_id: str | None
    node_id: str
    gpu_indices: tuple[int, ...]
    status: str


@dataclass(frozen=True)
class ResourceView:
    """A provider, a region, a dataset or a datastore."""

    resource_id: str
    status: str
    status_reason: str | None
    provider_id: str = ""
    """Of a region."""
    refused_removals: int = 0
    """How often an event has said that it stays, although it was to be removed."""


@dataclass(frozen=True)
class AccountView:
    account_id: str
    microcredits: int
    """Its balance; below zero, its debt."""
    burn_microcredits_per_hour: int
    """What its running usage meters cost."""


@dataclass(frozen=True)
class CapacityView:
    """What a node has for jobs, whatever is allocated there."""

    node_id: str
    name: str
    account_id: str
    region_id: str
    is_active: bool
    """Whether the node takes jobs; its region may not be healthy."""
    gpu_count: int
    cpu_count: int
    free_disk_bytes: int


@dataclass(frozen=True)
class Usage:
    """What the ledger has charged for one worker of one attempt."""

    run_id: str
    seconds: int
    billed_until: datetime | None = None
    """The instant from which on a guest is not billed; None: there is none."""


class Rows(Protocol):
    """The database and the API before it."""

    effects: Mapping[str, Handler]
    """The activities of the queues `main` and `planning`, by name."""
    lifetime_s: int | None
    """How long a machine that is rented for a job lives at most; None: as the settings say."""

    def add_account(self, microcredits: int) -> str: ...
    def add_provider(self, account_id: str, kind: str) -> str:
        """`physical` or `gcp`. Writes the row and its start. Raises: Refused."""

    def add_region(
        self, provider_id: str, *, zone: str = "", storage: bool = False, own_worker: bool = False
    ) -> str:
        """own_worker: a worker process in its own network serves its site. Raises: Refused."""

    def let_guests_in(self, region_id: str, preemption_notice_s: int | None) -> None:
        """The region is public from now on; it has no nodes yet.

        preemption_notice_s: None: no guest is pre-empted. Raises: Refused.
        """

    def add_node(self, region_id: str, minion_id: str) -> str:
        """A node of the person's own machine, which has announced itself. Raises: Refused."""

    def announce(self, minion_id: str, host: str) -> None:
        """A machine says where it is."""

    def submit(self, account_id: str, submission: JobSubmission) -> str:
        """Raises: Refused."""

    def ask(self, resource_id: str, verb: Verb, **details: Any) -> str | None:
        """A change by the API, in one transaction, with its outbox row.

        Returns the id of a job that `RESUBMIT` has made.
        details: `force` of `REBOOT` and `REMOVE`; `microcredits` of `TOP_UP`.
        Raises: Refused, as the API refuses it in this state.
        """

    def relay(self, most: int = 64) -> int:
        """What the API's dispatcher does right after a commit: deliver waiting outbox rows.

        Returns how many it has delivered. Raises nothing: what fails waits for the relay loop.
        """

    def is_placement_idle(self) -> bool:
        """Whether a planning round now would find and write nothing new."""

    def waiting_requests(self) -> int:
        """Outbox rows that are neither delivered nor parked."""

    def jobs(self) -> Iterable[JobView]: ...
    def nodes(self) -> Iterable[NodeView]: ...
    def leases(self) -> Iterable[LeaseView]: ...
    def allocations(self) -> Iterable[AllocationView]:
        """Those that hold anything: not the released ones."""

    def providers(self) -> Iterable[ResourceView]: ...
    def regions(self) -> Iterable[ResourceView]: ...
    def add_dataset(self, account_id: str) -> str:
        """A dataset from the web. Raises: Refused."""

    def datasets(self) -> Iterable[ResourceView]: ...
    def dataset_status(self, dataset_id: str) -> str:
        """As artifacts/transfers.py:_tell reads it; empty: no such row."""

    def delivery_status(self, job_id: str) -> str | None:
        """As artifacts/deliveries.py reads it; None: no delivery has begun."""

    def add_datastore(self, region_id: str) -> str:
        """A share of the region, for an account with the plan team. Raises: Refused."""

    def datastores(self) -> Iterable[ResourceView]: ...
    def has_password(self, datastore_id: str) -> bool:
        """Whether a datastore's password is kept with its row."""

    def accounts(self) -> Iterable[AccountView]: ...
    def capacities(self) -> Iterable[CapacityView]:
        """Of the nodes that any job may use: neither archived nor rented for one job."""

    def usage(self) -> Iterable[Usage]: ...
    def usage_of(self, job_id: str) -> Iterable[Usage]: ...
    def unsettled_of(self, job_id: str) -> int:
        """Seconds of usage that could not be posted yet, which the row keeps."""

    # What the activities of the cloud queues read and write of rows; one provider at a time.

    def leases_of(self, provider_id: str) -> Iterable[LeaseView]:
        """All leases of one provider, also those that have ended; as leases/reconciliation.py."""

    def sequence_of(self, resource_id: str) -> int:
        """Of the last recorded step; 0: no such row. As providers/machines.py:_raise_if_stale."""

    def provider_status(self, provider_id: str) -> str | None:
        """None: no such row. As providers/notifications.py:_is_over."""

    def ready_providers(self, kind: str) -> Sequence[str]:
        """The ids of ready providers of a kind, sorted; as providers/price_refresh.py:_ready."""

    def has_key(self, provider_id: str) -> bool:
        """Whether the provider's key is stored, and not forgotten."""

    def keep_reconciled(self, provider_id: str, at: datetime) -> None:
        """As leases/reconciliation.py:_keep_instant, after a complete comparison."""

    def imbalance(self) -> int:
        """The sum of all postings in microcredits, which is 0."""

    def violations(self) -> list[str]:
        """What the rows themselves must never hold: an id twice, a step backwards, a posting
        twice under one business key, a GPU of a node allocated twice."""

    def close(self) -> None: ...
