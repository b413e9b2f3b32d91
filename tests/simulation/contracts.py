"""What the parts of the simulator agree on: Temporal as effects see it, effects, rows, the world.

`engine/` is Temporal with its worker processes, `rows_model/` and `rows_real/` the database behind
the queues `main` and `planning`, `outside/` what is behind the queues of sites and clouds.
All is in one thread, in virtual time and from one seed: a life played twice is the same life.
"""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from random import Random
from typing import Any, Literal, Protocol

from tests.simulation.behaviour import Behaviour
from tests.simulation.share_contracts import ShareRows
from workflows.contracts.base import Contract
from workflows.contracts.job_submission import JobSubmission

# ── Temporal ────────────────────────────────────────────────────────────────────────────────


class NotFound(Exception):  # noqa: N818 - an answer of the server
    """No workflow has this id, or it has ended."""


class AlreadyStarted(Exception):  # noqa: N818 - an answer of the server
    """A workflow with this id runs, or has run, and the policies of the start refuse another."""


class Unavailable(Exception):  # noqa: N818 - an answer of the server
    """The server has not answered: it may have done what it was asked for, or not."""


Ended = Literal["completed", "failed", "canceled", "terminated", "timed_out", "continued_as_new"]
ExecutionStatus = Literal["running"] | Ended


@dataclass(frozen=True)
class Execution:
    """What the server tells of one workflow run."""

    workflow_id: str
    run_id: str
    workflow: str
    """The type, such as `JobLifecycle`."""
    status: ExecutionStatus
    search_attributes: Mapping[str, Any]
    terminated_by: str = ""
    """The identity that terminated it: `history-service`, `person`, or a worker process."""
    task_attempt: int = 1
    """Tries of its present workflow task; 4 and more: it is stuck."""


class Temporal(Protocol):
    """The server, as clients inside of the world use it."""

    random: Random
    """The life's only source of chance for the world; the plan has one of its own."""

    def now(self) -> datetime:
        """The virtual time, in UTC."""

    def later(self, delay_s: float, act: Callable[[], object]) -> "Cancellable":
        """Act after so many virtual seconds, unless that is cancelled before."""

    def note(self, who: str, what: str) -> None:
        """Add a line to the life's log: who does what, in plain words."""

    def start(
        self,
        workflow: str,
        workflow_id: str,
        request: Contract,
        *,
        search_attributes: Mapping[str, Any] | None = None,
        reuse: Literal["allow_duplicate", "reject_duplicate"] = "allow_duplicate",
        conflict: Literal["fail", "use_existing"] = "fail",
        signal: tuple[str, Contract | None] | None = None,
    ) -> str:
        """Start a workflow, with a first signal if one is given (signal-with-start).

        Returns the run id. Raises: AlreadyStarted, Unavailable.
        """

    def signal(
        self,
        workflow_id: str,
        name: str,
        argument: Contract | None = None,
        *,
        request_id: str = "",
    ) -> None:
        """Signal the running workflow; a repetition with one `request_id` is dropped.

        Raises: NotFound, Unavailable.
        """

    def terminate(self, workflow_id: str, *, run_id: str = "", identity: str = "worker") -> None:
        """Raises: NotFound, Unavailable."""

    def cancel(self, workflow_id: str) -> None:
        """Raises: NotFound, Unavailable."""

    def describe(self, workflow_id: str) -> Execution:
        """The latest run. Raises: NotFound, when none is known at all; Unavailable."""

    def running(self) -> Sequence[Execution]:
        """All running workflows, as visibility lists them: up to seconds late.

        Raises: Unavailable.
        """


class Cancellable(Protocol):
    def cancel(self) -> None: ...


# ── effects ─────────────────────────────────────────────────────────────────────────────────


class CutOff(Exception):  # noqa: N818 - a condition, not an error
    """Thrown into a slow effect at its `yield`, when its workflow cancels it."""


@dataclass
class Attempt:
    """One attempt of one activity, as its code sees it."""

    effect: str
    workflow_id: str
    run_id: str
    activity_id: str
    number: int
    process: str
    """The worker process that runs it."""

    @property
    def request_id(self) -> str:
        """What all attempts of this activity share, for signals that are to arrive once."""
        return f"{self.run_id}/{self.activity_id}"


@dataclass(frozen=True)
class Sleep:
    """Yielded by a slow effect: go on after so many virtual seconds (heartbeats go on)."""

    seconds: float


@dataclass(frozen=True)
class Until:
    """Yielded by a slow effect: go on when the event is set, or after the limit.

    The `yield` gives back whether the event was set. Heartbeats go on meanwhile.
    """

    event: "Event"
    limit_s: float


@dataclass
class Event:
    """Something that slow effects wait for; `set` lets all of them go on at once."""

    is_set: bool = False
    waiting: list[Callable[[], None]] = field(default_factory=list)

    def set(self) -> None:
        waiting, self.waiting, self.is_set = self.waiting, [], True
        for go_on in waiting:
            go_on()

    def clear(self) -> None:
        self.is_set = False


Steps = Generator[Sleep | Until, Any, Contract]
"""A slow effect: what it does between two `yield` is done at one instant. When its process is
killed, or a timeout has passed, it is closed at its `yield` (GeneratorExit), and does nothing more;
what goes on in the world all the same, the world does by `Temporal.later`."""
Handler = Callable[[Attempt, Any], Contract | Steps]
"""An effect behind its name: answers at once, or by steps.

Raises: ApplicationError, with the types of the real activity, when it fails.
"""

# ── rows ────────────────────────────────────────────────────────────────────────────────────


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
    """A provider, a region or a datastore."""

    resource_id: str
    status: str
    status_reason: str | None


@dataclass(frozen=True)
class Usage:
    """What the ledger has charged for one worker of one attempt."""

    run_id: str
    seconds: int


class Rows(ShareRows[ResourceView], Protocol):
    """The database and the API before it."""

    effects: Mapping[str, Handler]
    """The activities of the queues `main` and `planning`, by name."""
    lifetime_s: int | None
    """How long a machine that is rented for a job lives at most; None: as the settings say."""

    def add_account(self, microcredits: int) -> str: ...
    def add_provider(self, account_id: str, kind: str) -> str:
        """`physical` or `gcp`. Writes the row and its start. Raises: Refused."""

    def add_region(self, provider_id: str, *, zone: str = "", storage: bool = False) -> str:
        """Raises: Refused."""

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
        """The sorted ids of ready providers of a kind; as providers/price_refresh.py:_ready."""

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


# ── the world outside ───────────────────────────────────────────────────────────────────────


@dataclass
class Process:
    """The processes of one run on a machine."""

    run_id: str
    machine: str
    gpu_indices: tuple[int, ...]
    state: Literal["staged", "running", "exited"]
    starts: int = 0
    """How often its command was started."""
    measured_s: float = 0.0
    """What its supervisor has measured, by the clock of the machine, without suspended time."""
    was_cut: bool = False
    """Its machine ended or was wiped while it ran, so nobody has its last measurement."""
    succeeded: bool = False
    """Its supervisor has written that the command ended by itself, with exit code 0."""
    has_resisted: bool = False
    """It was alive after somebody had made sure that it ends, and had told so."""
    began_at: datetime | None = None
    ended_at: datetime | None = None
    """When the last of its processes had ended; None: some are alive, or it has never begun."""


@dataclass(frozen=True)
class CloudMachine:
    """A machine that costs."""

    name: str
    provider_id: str
    zone: str
    is_running: bool
    """Also while it is ending; not when it is stopped, and only its disk costs."""
    made_at: datetime
    """When it began to run, and so to cost."""
    ended_at: datetime | None
    """When its provider had no such machine any more."""
    stopped_at: datetime | None = None
    """When it was preempted, or its host had failed; it is gone only later."""
    ending_at: datetime | None = None  # When its provider began to end it, and told so.
    came_late: bool = False
    """Its provider has made it after it had said that it does not, or had not answered, so that
    nobody knows of it before the next reconciliation; or nobody has asked for it."""


class Outside(Protocol):
    """Machines, clouds and the object store."""

    def behave(self, job_id: str, behaviour: Behaviour) -> None:
        """What the commands of this job will do; without it, they take 60 s and succeed."""

    effects: Mapping[str, Handler]
    """The activities of all queues of sites, clouds and notifications, by name."""

    def connect(self, rows: Rows) -> None:
        """The rows that cloud activities read (leases, keys). Called once, before anything."""

    def add_machine(self, *, gpus: int = 1, joins_at_once: bool = True) -> str:
        """An own machine; returns its minion id. It announces itself by `Rows.announce`."""

    # The object store, as the activities of `main` use it (activities/jobs/run_specs.py).

    def keep_run_specs(
        self,
        job_id: str,
        attempt: int,
        ports: Mapping[int, int] | None = None,
        idle_timeout_s: float | None = None,
    ) -> None:
        """The run specs of an attempt are stored; a second call replaces them.

        ports: those that workers hold on their nodes, by worker; idle_timeout_s: of the job.
        Raises: ApplicationError, while the store is away; so do the next two.
        """

    def discard(
        self,
        job_id: str,
        what: Literal["run_specs", "snapshots", "outputs", "everything"],
        attempt: int | None = None,
    ) -> None:
        """Remove what is stored of a job; silent when there is nothing. `everything`: also logs;
        attempt: of the run specs alone."""

    def jobs_with_snapshots(self) -> Iterable[str]:
        """The jobs of which the object store has state snapshots."""

    def join(self, minion_id: str) -> str | None:
        """The owner of a machine runs join.sh, again if its node was removed meanwhile; returns
        its minion id, another one if it was installed anew; None: it has gone for good."""

    def strike(self, what: str, target: str = "", *, seconds: float = 0.0) -> None:
        """A fault of the world itself; `faults` lists them. Unknown targets change nothing.

        seconds: how long it lasts; 0: as the part draws it.
        """

    faults: Sequence[str]
    """Such as `machine_unreachable`, `machine_reboots`, `machine_moves`, `machine_lost`,
    `process_crashes`, `process_hangs`, `clock_jumps`, `store_away`, `site_away`, `cloud_hangs`,
    `cloud_refuses`, `cloud_forgets`, `lists_lag`, `makes_late`, `makes_twice`, `no_capacity`,
    `preempted`, `deadline`, `feed_silent`, `heal` (everything is well again)."""

    def processes(self) -> Iterable[Process]:
        """Of all runs that were ever started, also on machines that have gone."""

    def folders(self) -> Iterable[tuple[str, str]]:
        """The minion ids and run ids of the folders of runs on machines that can be reached."""

    def stored(self) -> Mapping[str, Sequence[str]]:
        """What is stored of each job: `orders` (run specs), `states`, `outputs`, `logs`."""

    def cloud_machines(self) -> Iterable[CloudMachine]: ...
    def calm(self) -> None:
        """Everything is well again, and commands that still run end within an hour."""

    def violations(self) -> list[str]:
        """A command started twice, a GPU or a port with two holders on one machine."""
