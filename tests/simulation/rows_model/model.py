"""`ModelRows`: the rows of an installation in dictionaries, behind the protocol `Rows`."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from tests.simulation.contracts import (
    AccountView,
    AllocationView,
    CapacityView,
    Handler,
    JobView,
    LeaseView,
    NodeView,
    Outside,
    Refused,
    ResourceView,
    Temporal,
    Usage,
    Verb,
)
from tests.simulation.rows_model.adoption import Adoption
from tests.simulation.rows_model.allocations import Allocations
from tests.simulation.rows_model.artifacts import Artifacts
from tests.simulation.rows_model.billing import Billing
from tests.simulation.rows_model.connection import Connection
from tests.simulation.rows_model.datastores import Datastores
from tests.simulation.rows_model.inventory import PlacementInventory
from tests.simulation.rows_model.job_requests import JobRequests
from tests.simulation.rows_model.leases import Leases
from tests.simulation.rows_model.ledger import Ledger
from tests.simulation.rows_model.nodes import Nodes
from tests.simulation.rows_model.outbox import Outbox
from tests.simulation.rows_model.planning import Planning
from tests.simulation.rows_model.records import (
    Account,
    Dataset,
    Job,
    Lease,
    LifecycleRow,
    Node,
    Provider,
)
from tests.simulation.rows_model.regions import Regions
from tests.simulation.rows_model.resource_requests import ResourceRequests
from tests.simulation.rows_model.run_specs import RunSpecs
from tests.simulation.rows_model.steps import Steps
from tests.simulation.rows_model.tables import Tables
from tests.simulation.rows_model.views import (
    account_view,
    allocation_view,
    capacity_views,
    job_view,
    lease_view,
    node_view,
    resource_view,
    usage_view,
)
from tests.simulation.rows_model.violations import violations_of
from workflows.contracts.job_submission import JobSubmission
from workflows.contracts.nodes import NODE_ACTIONS
from workflows.contracts.statuses import ProviderStatus

_ACTIONS = {action.name: action for action in NODE_ACTIONS}


class ModelRows:
    """The database and the API before it, as `Rows` describes them."""

    def __init__(self, temporal: Temporal, outside: Outside) -> None:
        self.tables = tables = Tables()
        self.connection = connection = Connection(temporal)
        self.ledger = Ledger(tables, connection.now)
        self._outbox = outbox = Outbox(tables, connection)
        allocations = Allocations(tables, connection, outbox)
        inventory = PlacementInventory(tables, self.ledger)
        billing = Billing(tables, connection, outbox, self.ledger, allocations)
        nodes, regions = Nodes(tables, connection), Regions(tables, connection, outbox)
        self._of_jobs = JobRequests(tables, connection, outbox, self.ledger)
        self._of_resources = ResourceRequests(tables, connection, outbox, nodes, regions)
        self._of_artifacts = Artifacts(tables, connection, outbox, outside)
        self._planning = Planning(tables, connection, outbox, allocations, inventory)
        self._dispatch: list[str] = []
        """Outbox rows of requests that the API's dispatcher has not relayed yet."""
        self.effects: Mapping[str, Handler] = {
            **Steps(tables, connection, outbox, allocations).effects(),
            **outbox.effects(),
            **Adoption(tables, connection, outbox, allocations, billing).effects(),
            **self._planning.effects(),
            **allocations.effects(),
            **billing.effects(),
            **nodes.effects(),
            **regions.effects(),
            **Datastores(tables).effects(),
            **Leases(tables, connection, outbox, allocations).effects(),
            **RunSpecs(tables, connection, allocations, outside).effects(),
            **self._of_artifacts.effects(),
        }

    @property
    def between(self) -> Callable[[], None]:
        """Called where a process may die, see `Connection.between`."""
        return self.connection.between

    @between.setter
    def between(self, hook: Callable[[], None]) -> None:
        self.connection.between = hook

    @property
    def lifetime_s(self) -> int | None:
        return self._planning.bursts.lifetime_s

    @lifetime_s.setter
    def lifetime_s(self, seconds: int | None) -> None:
        self._planning.bursts.lifetime_s = seconds

    # ── requests ────────────────────────────────────────────────────────────────────────────

    def add_account(self, microcredits: int) -> str:
        tables = self.tables
        with tables.write():
            row = Account(id=tables.new_id("acc"), name="", project_id=tables.new_id("prj"))
            tables.put(tables.accounts, row.id, row)
            if microcredits:
                self._add_credits(row.id, microcredits)
        return row.id

    def add_provider(self, account_id: str, kind: str) -> str:
        return self._made(lambda: self._of_resources.add_provider(account_id, kind))

    def add_region(
        self, provider_id: str, *, zone: str = "", storage: bool = False, own_worker: bool = False
    ) -> str:
        return self._made(
            lambda: self._of_resources.add_region(
                provider_id, zone, storage=storage, own_worker=own_worker
            )
        )

    def let_guests_in(self, region_id: str, preemption_notice_s: int | None) -> None:
        if preemption_notice_s is not None:
            raise Refused(f"{region_id}: asked to pre-empt guests, and none of the model is")
        with self.tables.write():
            self.tables.change(self.tables.regions[region_id], public=True)

    def add_node(self, region_id: str, minion_id: str) -> str:
        return self._made(lambda: self._of_resources.add_node(region_id, minion_id))

    def add_dataset(self, account_id: str) -> str:
        return self._made(lambda: self._of_artifacts.add(account_id))

    def add_datastore(self, region_id: str) -> str:
        return self._made(lambda: self._of_resources.add_datastore(region_id))

    def submit(self, account_id: str, submission: JobSubmission) -> str:
        return self._made(lambda: self._of_jobs.submit(account_id, submission))

    def announce(self, minion_id: str, host: str) -> None:
        with self.tables.write():
            requests = self._of_resources.announce(minion_id, host)
        self._dispatch += requests

    def ask(self, resource_id: str, verb: Verb, **details: Any) -> str | None:
        made: str | None = None
        with self.tables.write():
            if verb is Verb.TOP_UP:
                self._top_up(resource_id, int(details.get("microcredits", 10_000_000)))
                requests: list[str] = []
            elif verb is Verb.RESUBMIT:
                job = self._job(resource_id)
                made, requests = self._of_jobs.submit(job.account_id, job.spec)
            elif isinstance(row := self._row(resource_id), Dataset):
                requests = self._asked_of_dataset(row, verb)
            else:
                requests = self._asked(resource_id, verb, details)
        self._dispatch += requests
        return made

    def _made(self, make: Callable[[], tuple[str, list[str]]]) -> str:
        with self.tables.write():
            made, requests = make()
        self._dispatch += requests
        return made

    def _asked(self, resource_id: str, verb: Verb, details: dict[str, Any]) -> list[str]:
        row = self._row(resource_id)
        if isinstance(row, Job):
            return self._asked_of_job(row, verb)
        force = bool(details.get("force", False))
        match verb:
            case Verb.REMOVE | Verb.FORCE_REMOVE | Verb.RESCHEDULE_REMOVE:
                return self._of_resources.remove(
                    row,
                    force=force or verb is not Verb.REMOVE,
                    reschedules=verb is Verb.RESCHEDULE_REMOVE,
                )
            case Verb.REFRESH:
                return self._of_resources.refresh(row)
            case Verb.RECHECK if isinstance(row, Provider):
                return self._of_resources.recheck(row)
            case Verb.KILL if isinstance(row, Lease):
                return self._of_resources.kill(row)
        return self._asked_of_node(row, verb, force=force)

    def _asked_of_job(self, row: Job, verb: Verb) -> list[str]:
        match verb:
            case Verb.CANCEL | Verb.DISCARD:
                return self._of_jobs.cancel(row, discards=verb is Verb.DISCARD)
            case Verb.STOP:
                return self._of_jobs.stop(row)
            case Verb.START:
                return self._of_jobs.start(row)
            case Verb.REMOVE | Verb.FORCE_REMOVE:
                return self._of_jobs.remove(row)
        raise Refused(f"{row.id}: there is no route {verb}")

    def _asked_of_dataset(self, row: Dataset, verb: Verb) -> list[str]:
        match verb:
            case Verb.REMOVE:
                return self._of_artifacts.remove(row)
            case Verb.RETRY:
                return self._of_artifacts.retry(row)
        raise Refused(f"{row.id}: there is no route {verb}")

    def _asked_of_node(self, row: LifecycleRow, verb: Verb, *, force: bool) -> list[str]:
        if not isinstance(row, Node):
            raise Refused(f"{row.id}: there is no route {verb}")
        match verb:
            case Verb.ACTIVATE:
                return self._of_resources.act(row, _ACTIONS["activate"], force=force)
            case Verb.MAINTAIN:
                return self._of_resources.act(row, _ACTIONS["maintenance"], force=force)
            case Verb.REBOOT:
                return self._of_resources.act(row, _ACTIONS["reboot"], force=force)
            case Verb.REPLACE:
                return self._of_resources.replace(row)
        raise Refused(f"{row.id}: there is no route {verb}")

    def _row(self, resource_id: str) -> LifecycleRow:
        try:
            row: LifecycleRow | None = self.tables.row(resource_id)
        except ValueError as cause:
            raise Refused(str(cause)) from cause
        if row is None:
            raise Refused(f"{resource_id}: there is no such resource")
        return row

    def _job(self, resource_id: str) -> Job:
        row = self._row(resource_id)
        if not isinstance(row, Job):
            raise Refused(f"{resource_id}: is no job")
        return row

    def _top_up(self, account_id: str, microcredits: int) -> None:
        if account_id not in self.tables.accounts:
            raise Refused(f"{account_id}: there is no such account")
        if microcredits <= 0:
            raise Refused(f"{account_id}: asked {microcredits} microcredits, must be above 0")
        self._add_credits(account_id, microcredits)

    def _add_credits(self, account_id: str, microcredits: int) -> None:
        key = self.tables.new_id("grant")
        self.ledger.add_credits(account_id, microcredits, key, self.connection.now())

    def relay(self, most: int = 64) -> int:
        taken, self._dispatch = self._dispatch[:most], self._dispatch[most:]
        return self._outbox.relay(taken)

    def waiting_requests(self) -> int:
        return sum(map(len, self.tables.waiting_requests.values()))

    def is_placement_idle(self) -> bool:
        return self._planning.unchanged(self.connection.now()) is not None

    # ── views ───────────────────────────────────────────────────────────────────────────────

    def jobs(self) -> Iterable[JobView]:
        return [job_view(self.tables, row) for row in self.tables.jobs.values()]

    def nodes(self) -> Iterable[NodeView]:
        return [node_view(self.tables, row) for row in self.tables.nodes.values()]

    def leases(self) -> Iterable[LeaseView]:
        return [lease_view(row) for row in self.tables.leases.values()]

    def allocations(self) -> Iterable[AllocationView]:
        live = self.tables.live_on.values()
        return [allocation_view(row) for rows in live for row in rows.values()]

    def providers(self) -> Iterable[ResourceView]:
        return [resource_view(self.tables, row) for row in self.tables.providers.values()]

    def datastores(self) -> Iterable[ResourceView]:
        return [resource_view(self.tables, row) for row in self.tables.datastores.values()]

    def has_password(self, datastore_id: str) -> bool:
        return self.tables.datastores[datastore_id].has_password

    def regions(self) -> Iterable[ResourceView]:
        return [resource_view(self.tables, row) for row in self.tables.regions.values()]

    def accounts(self) -> Iterable[AccountView]:
        return [account_view(self.tables, self.ledger, each) for each in self.tables.accounts]

    def capacities(self) -> Iterable[CapacityView]:
        return capacity_views(self.tables)

    def datasets(self) -> Iterable[ResourceView]:
        return [resource_view(self.tables, row) for row in self.tables.datasets.values()]

    def dataset_status(self, dataset_id: str) -> str:
        row = self.tables.datasets.get(dataset_id)
        return "" if row is None else row.status

    def delivery_status(self, job_id: str) -> str | None:
        row = self.tables.jobs.get(job_id)
        return None if row is None else row.delivery_status

    def usage(self) -> Iterable[Usage]:
        return [usage_view(row) for row in self.tables.meters.values()]

    def usage_of(self, job_id: str) -> Iterable[Usage]:
        return [usage_view(row) for row in self.tables.meters_of.get(job_id, {}).values()]

    def unsettled_of(self, job_id: str) -> int:
        missing = 0
        for each in self.tables.jobs[job_id].unsettled or ():
            meter = self.tables.meters.get((each.job_id, each.worker, each.attempt))
            missing += max(0, each.through_s - (0 if meter is None else meter.posted_s))
        return missing

    # ── what cloud activities ask ───────────────────────────────────────────────────────────

    def leases_of(self, provider_id: str) -> Iterable[LeaseView]:
        return [lease_view(row) for row in self.tables.leases_of.get(provider_id, {}).values()]

    def sequence_of(self, resource_id: str) -> int:
        row = self.tables.row(resource_id)
        return 0 if row is None else int(row.sequence)

    def provider_status(self, provider_id: str) -> str | None:
        row = self.tables.providers.get(provider_id)
        return None if row is None else row.status

    def ready_providers(self, kind: str) -> Sequence[str]:
        rows = self.tables.providers.values()
        ready = (row for row in rows if row.status == ProviderStatus.READY)
        return sorted(row.id for row in ready if row.kind == kind)

    def has_key(self, provider_id: str) -> bool:
        row = self.tables.providers.get(provider_id)
        return row is not None and row.has_key

    def keep_reconciled(self, provider_id: str, at: datetime) -> None:
        row = self.tables.providers.get(provider_id)
        if row is not None and (row.reconciled_at is None or row.reconciled_at < at):
            with self.tables.write():
                self.tables.set(row, reconciled_at=at)

    # ── what must hold ──────────────────────────────────────────────────────────────────────

    def imbalance(self) -> int:
        return self.ledger.imbalance()

    def violations(self) -> list[str]:
        return list(violations_of(self.tables, self.ledger))

    def close(self) -> None:
        """Nothing is open."""
