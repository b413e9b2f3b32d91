"""`RealRows`: the real activities and the real services of the API, behind the protocol `Rows`."""

import asyncio
import sqlite3
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy.exc import SQLAlchemyError
from sqlmodel import Session
from temporalio import activity
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError
from temporalio.service import RPCError
from temporalio.testing import ActivityEnvironment

from activities.db.session import database
from activities.leases.reconciliation import _keep_instant
from activities.outbox.relay import relay
from activities.registry import Activity
from activities.registry.main import MAIN
from activities.registry.planning import PLANNING
from tests.simulation.contracts import (
    AccountView,
    AllocationView,
    Attempt,
    CapacityView,
    Handler,
    JobView,
    LeaseView,
    NodeView,
    Outside,
    ResourceView,
    Temporal,
    Usage,
    Verb,
)
from tests.simulation.rows_real.boundary import Died
from tests.simulation.rows_real.house import Tenant
from tests.simulation.rows_real.requests import Asked, Requests
from tests.simulation.rows_real.store import Store
from tests.simulation.rows_real.views import Views
from tests.simulation.rows_real.violations import violations_of
from workflows.contracts.base import Contract
from workflows.contracts.job_submission import JobSubmission
from workflows.contracts.placement import PlanningRound
from workflows.effects.placement import PlacedJobsNotified

T = TypeVar("T")
FAILURES = (RPCError, WorkflowAlreadyStartedError, SQLAlchemyError, TimeoutError)
"""What an activity may raise besides `ApplicationError`, and Temporal retries; the rest is a
defect, and ends the life."""


@dataclass(frozen=True)
class IdleSince:
    """A planning round that has found nothing to place, and would find nothing again.

    until: when time alone may change that, by a shortage that ends or a job that starves.
    """

    written: int
    until: datetime

    @classmethod
    def now(cls, tenant: Tenant) -> "IdleSince":
        at = tenant.temporal.now()
        changes = (at for at in Views(tenant).placement_changes() if at > tenant.temporal.now())
        until = min(changes, default=datetime.max.replace(tzinfo=at.tzinfo))
        return cls(tenant.house.database.written, until)

    def lasts(self, tenant: Tenant) -> bool:
        """Whether nothing was written since, by whichever life of this process."""
        is_same = self.written == tenant.house.database.written
        return is_same and tenant.temporal.now() < self.until


class RealRows:
    """The database and the API before it, as `Rows` describes them.

    One life is present in its process at a time; a call to another one that is open swaps them.
    """

    def __init__(self, temporal: Temporal, outside: Outside) -> None:
        self._temporal = temporal
        self._tenant = Tenant(temporal, outside)
        self._requests = Requests(self._tenant)
        self._views = Views(self._tenant)
        self._environment = ActivityEnvironment()
        self.effects: Mapping[str, Handler] = self.handlers(*MAIN, *PLANNING)
        self._idle: IdleSince | None = None

    @property
    def between(self) -> Callable[[], None]:
        """Called between a commit and a call to Temporal, in either order; it may raise, and then
        the process has died there, and its effect raises the same."""
        return self._tenant.boundary.between

    @between.setter
    def between(self, hook: Callable[[], None]) -> None:
        self._tenant.boundary.between = hook

    @property
    def lifetime_s(self) -> int | None:
        own = self._tenant.settings
        return None if own is None else own.ephemeral_lifetime_s

    @lifetime_s.setter
    def lifetime_s(self, seconds: int | None) -> None:
        house, tenant = self._tenant.house, self._tenant
        if house.present is tenant:
            house.leave()  # The next time it finds its new settings.
        changed = {"ephemeral_lifetime_s": seconds}
        tenant.settings = None if seconds is None else house.settings.model_copy(update=changed)

    # ── effects ─────────────────────────────────────────────────────────────────────────────

    def _handler(self, function: Activity) -> Handler:
        run = self._run_coroutine if asyncio.iscoroutinefunction(function) else self._run

        def handle(attempt: Attempt, request: Any) -> Contract:
            self._environment.info = replace(
                self._environment.info,
                activity_id=attempt.activity_id,
                activity_type=attempt.effect,
                attempt=attempt.number,
                workflow_id=attempt.workflow_id,
                workflow_run_id=attempt.run_id,
                scheduled_time=self._temporal.now(),
            )
            with self._tenant.at_work():
                try:
                    answer = run(function, request)
                except FAILURES as failure:
                    kind = type(failure).__name__
                    raise ApplicationError(f"{kind}: {failure}", type=kind) from failure
                self._see(answer)
            return answer

        return handle

    def _see(self, answer: Contract) -> None:
        """Note whether a planning round, or the notification of its jobs, has left nothing."""
        if isinstance(answer, PlanningRound):
            self._idle = None if answer.placed else IdleSince.now(self._tenant)
        elif isinstance(answer, PlacedJobsNotified) and answer.untold:
            self._idle = None

    def _run(self, function: Activity, request: Any) -> Contract:
        loop = self._tenant.loop
        try:
            found: Contract = self._environment.run(function, request)
        except Died:
            loop.die_if_killed()
            raise
        return found

    def _run_coroutine(self, function: Activity, request: Any) -> Contract:
        found: Contract = self._tenant.loop.run(self._environment.run(function, request))
        return found

    def handlers(self, *functions: Activity) -> Mapping[str, Handler]:
        """Activities of other queues that work on rows, by name."""
        return {
            found.name or "": self._handler(function)
            for function in functions
            if (found := activity._Definition.must_from_callable(function))
        }

    # ── requests ────────────────────────────────────────────────────────────────────────────

    def add_account(self, microcredits: int) -> str:
        return self._requests.add_account(microcredits)

    def add_provider(self, account_id: str, kind: str) -> str:
        return self._requests.add_provider(account_id, kind)

    def add_region(
        self, provider_id: str, *, zone: str = "", storage: bool = False, own_worker: bool = False
    ) -> str:
        return self._requests.add_region(provider_id, zone, storage=storage, own_worker=own_worker)

    def let_guests_in(self, region_id: str, preemption_notice_s: int | None) -> None:
        self._requests.let_guests_in(region_id, preemption_notice_s)

    def add_node(self, region_id: str, minion_id: str) -> str:
        return self._requests.add_node(region_id, minion_id)

    def add_dataset(self, account_id: str) -> str:
        return self._requests.add_dataset(account_id)

    def add_datastore(self, region_id: str) -> str:
        return self._requests.add_datastore(region_id)

    def announce(self, minion_id: str, host: str) -> None:
        self._requests.announce(minion_id, host)

    def submit(self, account_id: str, submission: JobSubmission) -> str:
        return self._requests.submit(account_id, submission)

    def ask(self, resource_id: str, verb: Verb, **details: Any) -> str | None:
        return self._requests.ask(resource_id, verb, details)

    def change(self, account_id: str | None, asked: Asked[T]) -> T:
        """What somebody asks of a service of the API beside what `Rows` has.

        account_id: whose key it is; None: the administrator's. Raises: Refused.
        """
        return self._requests.change(account_id, asked)

    def user_of(self, account_id: str) -> str:
        """The user who asks for an account."""
        return self._requests.user_of(account_id)

    def relay(self, most: int = 64) -> int:
        taken = self._requests.take(most)
        if not taken:
            return 0
        with self._tenant.at_work():
            return self._tenant.loop.run(relay(self._tenant.client, taken))  # type: ignore[arg-type]

    # ── views ───────────────────────────────────────────────────────────────────────────────

    def is_placement_idle(self) -> bool:
        """Whether nothing was written since a round that has placed and left nobody."""
        return self._idle is not None and self._idle.lasts(self._tenant)

    def waiting_requests(self) -> int:
        return self._views.number(
            "SELECT count(*) FROM outbox WHERE delivered_at IS NULL AND parked_at IS NULL"
        )

    def jobs(self) -> Iterable[JobView]:
        return self._views.jobs()

    def nodes(self) -> Iterable[NodeView]:
        return self._views.nodes()

    def leases(self) -> Iterable[LeaseView]:
        return self._views.leases()

    def allocations(self) -> Iterable[AllocationView]:
        return self._views.allocations()

    def providers(self) -> Iterable[ResourceView]:
        return self._views.resources("providers")

    def datastores(self) -> Iterable[ResourceView]:
        return self._views.resources("datastores")

    def has_password(self, datastore_id: str) -> bool:
        query = "SELECT count(*) FROM datastores WHERE id = ? AND sealed_password IS NOT NULL"
        return self._views.number(query, datastore_id) > 0

    def regions(self) -> Iterable[ResourceView]:
        return self._views.resources("regions")

    def accounts(self) -> Iterable[AccountView]:
        return self._views.accounts()

    def capacities(self) -> Iterable[CapacityView]:
        return self._views.capacities()

    def datasets(self) -> Iterable[ResourceView]:
        return self._views.resources("datasets")

    def dataset_status(self, dataset_id: str) -> str:
        return self._views.dataset_status(dataset_id)

    def delivery_status(self, job_id: str) -> str | None:
        return self._views.delivery_status(job_id)

    def usage(self) -> Iterable[Usage]:
        return self._views.usage()

    def usage_of(self, job_id: str) -> Iterable[Usage]:
        return self._views.usage(job_id)

    def unsettled_of(self, job_id: str) -> int:
        return self._views.unsettled_of(job_id)

    # ── what cloud activities ask ───────────────────────────────────────────────────────────

    def leases_of(self, provider_id: str) -> Iterable[LeaseView]:
        return self._views.leases(provider_id)

    def sequence_of(self, resource_id: str) -> int:
        return self._views.sequence_of(resource_id)

    def provider_status(self, provider_id: str) -> str | None:
        return self._views.provider_status(provider_id)

    def ready_providers(self, kind: str) -> Sequence[str]:
        return self._views.ready_providers(kind)

    def has_key(self, provider_id: str) -> bool:
        return self._views.has_key(provider_id)

    def keep_reconciled(self, provider_id: str, at: datetime) -> None:
        with self._tenant.at_work():
            _keep_instant(provider_id, at)

    # ── what must hold ──────────────────────────────────────────────────────────────────────

    def imbalance(self) -> int:
        return self._views.number("SELECT sum(amount_microcredits) FROM ledger_postings")

    def violations(self) -> list[str]:
        return [*violations_of(self._views), *self._tenant.loop.failures]

    @property
    def store(self) -> Store:
        """The object store as the activities use it."""
        return self._tenant.store

    def select(self, query: str, *values: object) -> list[sqlite3.Row]:
        """Rows by plain SQL."""
        return self._views.all(query, *values)

    @contextmanager
    def reading(self) -> Generator[Session, None, None]:
        """The present life's database, for code that reads with a session."""
        with self._tenant.at_work(), database().read() as session:
            yield session

    def rows(self) -> str:
        """All rows of the life, as SQL, to be compared with those of another life."""
        return self._views.dump()

    def close(self) -> None:
        """Give back to the process what it had before: settings, database, client, clock."""
        self._tenant.leave()
