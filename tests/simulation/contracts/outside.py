"""The world outside: machines, clouds and the object store."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

from tests.simulation.behaviour import Behaviour
from tests.simulation.contracts.effects import Handler
from tests.simulation.contracts.rows import Rows


@dataclass
class Process:
    """The processes of one run on a machine."""

    run_id: str
    machine: str
    gpu_indices: tuple[int, ...]
    state: Literal["staged", "running", "exited"]
    starts: int = 0
    """How often its command was started."""
    written_bytes: int = 0
    """The size of its output, packed."""
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

    def add_machine(
        self, *, gpus: int = 1, joins_at_once: bool = True, takes_guests: bool = False
    ) -> str:
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

    def discard_content(self, artifact_id: str) -> None:
        """Remove what is stored of a dataset; silent when there is nothing.

        Raises: ApplicationError, while the store is away.
        """

    def contents(self) -> Mapping[str, int]:
        """How many parts are stored of each dataset of which anything is."""

    faults: Sequence[str]
    """Those of `states.py`; `heal`: everything is well again."""

    def processes(self) -> Iterable[Process]:
        """Of all runs that were ever started, also on machines that have gone."""

    def folders(self) -> Iterable[tuple[str, str]]:
        """The minion ids and run ids of the folders of runs on machines that can be reached."""

    def stored(self) -> Mapping[str, Sequence[str]]:
        """What is stored of each job: `orders` (run specs), `states`, `outputs`, `logs`."""

    def stored_output_bytes(self, run_id: str) -> int | None:
        """The size of the stored output of a run; None: none is stored."""

    def delivered_attempt(self, job_id: str) -> int | None:
        """The attempt of a job whose output has arrived at its destination; None: none has."""

    def longest_store_absence_s(self) -> float:
        """How long the object store was away at most, without a break."""

    def cloud_machines(self) -> Iterable[CloudMachine]: ...
    def calm(self) -> None:
        """Everything is well again, and commands that still run end within an hour."""

    def violations(self) -> list[str]:
        """A command started twice, a GPU or a port with two holders on one machine."""
