"""The tables of the model, with the indexes that its queries need, and transactions.

Every write goes through `put`, `drop` and `change`, which keep how to undo it; a transaction that
fails is undone as a whole.
"""

from collections.abc import Callable, Generator, Hashable, Iterable, MutableMapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any, TypeVar

from tests.simulation.rows_model.records import (
    Account,
    Allocation,
    Announced,
    Dataset,
    Datastore,
    EventRow,
    Job,
    Lease,
    LifecycleRow,
    MeterKey,
    Node,
    OutboxRow,
    Provider,
    Region,
    UsageMeter,
)
from workflows.contracts.lifecycles import LIFECYCLE_NOUNS, noun_of
from workflows.contracts.machines import Shortage
from workflows.contracts.placement import Refusal
from workflows.contracts.statuses import JobStatus, NodeStatus

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Tables:
    """All rows, each once, and indexes that hold the same objects."""

    def __init__(self) -> None:
        self.accounts: dict[str, Account] = {}
        self.providers: dict[str, Provider] = {}
        self.regions: dict[str, Region] = {}
        self.nodes: dict[str, Node] = {}
        self.leases: dict[str, Lease] = {}
        self.jobs: dict[str, Job] = {}
        self.datasets: dict[str, Dataset] = {}
        self.datastores: dict[str, Datastore] = {}
        self.of_noun: dict[str, MutableMapping[str, Any]] = {
            **{noun.name: {} for noun in LIFECYCLE_NOUNS},
            "provider": self.providers,
            "region": self.regions,
            "node": self.nodes,
            "lease": self.leases,
            "job": self.jobs,
            "dataset": self.datasets,
            "datastore": self.datastores,
        }
        self.allocations: dict[str, Allocation] = {}
        self.meters: dict[MeterKey, UsageMeter] = {}
        self.announced: dict[str, Announced] = {}
        self.shortages: dict[tuple[str, str], Shortage] = {}
        self.demand_refusals: dict[tuple[str, str], tuple[Refusal, ...]] = {}
        self.outbox: dict[str, OutboxRow] = {}
        self.events: dict[str, list[EventRow]] = {}
        self.account_events: dict[str, list[EventRow]] = {}
        """Of each resource, in the order of their positions."""
        self._indexes()
        self._undo: list[Callable[[], object]] | None = None
        self._numbers: dict[str, int] = {}
        self.placement_version = 0
        """Grows with everything that a planning round may see."""

    def _indexes(self) -> None:
        self.open: dict[str, dict[str, Any]] = {noun.name: {} for noun in LIFECYCLE_NOUNS}
        """Rows by noun whose status is not final."""
        self.waiting_jobs: dict[str, Job] = {}
        self.regions_of: dict[str, dict[str, Region]] = {}
        self.nodes_of: dict[str, dict[str, Node]] = {}
        self.nodes_by_minion: dict[str, dict[str, Node]] = {}
        self.leases_of: dict[str, dict[str, Lease]] = {}
        """By provider."""
        self.leases_held: dict[str, dict[str, Lease]] = {}
        """By holder."""
        self.leases_by_name: dict[str, Lease] = {}
        self.allocation_of: dict[MeterKey, Allocation] = {}
        """Unique, also of those that are gone."""
        self.live_on: dict[str, dict[str, Allocation]] = {}
        self.live_of: dict[str, dict[str, Allocation]] = {}
        self.not_notified: dict[str, Allocation] = {}
        self.gpu_holders: dict[tuple[str, int], str] = {}
        self.port_holders: dict[tuple[str, int], str] = {}
        self.volume_holders: dict[str, dict[str, Allocation]] = {}
        """By volume, the live allocations that hold it."""
        self.volume_places: dict[str, str] = {}
        """Where the content of each volume is stored that a job has written."""
        self.running_meters: dict[str, dict[MeterKey, UsageMeter]] = {}
        """By payer."""
        self.meters_of: dict[str, dict[MeterKey, UsageMeter]] = {}
        """By job."""
        self.unsettled_jobs: dict[str, Job] = {}
        self.waiting_requests: dict[str, dict[str, OutboxRow]] = {}
        """Outbox rows that are neither delivered nor parked, by resource, oldest first."""
        self.waiting_count = 0
        self.delivered: dict[str, dict[str, OutboxRow]] = {}
        """Delivered outbox rows but starts, by resource."""
        self.wakes: dict[str, OutboxRow] = {}

    # ── transactions ────────────────────────────────────────────────────────────────────────

    @contextmanager
    def write(self) -> Generator[None, None, None]:
        """One transaction: everything that is written in it, or nothing."""
        if self._undo is not None:
            raise RuntimeError("a transaction within a transaction")
        self._undo = []
        try:
            yield
        except BaseException:
            for undo in reversed(self._undo):
                undo()
            raise
        finally:
            self._undo = None

    def _note(self, undo: Callable[[], object]) -> None:
        if self._undo is None:
            raise RuntimeError("a write outside of a transaction")
        self._undo.append(undo)

    def put(self, table: MutableMapping[K, V], key: K, value: V) -> None:
        if key in table:
            before = table[key]
            self._note(lambda: table.__setitem__(key, before))
        else:
            self._note(lambda: table.pop(key, None))
        table[key] = value

    def drop(self, table: MutableMapping[K, V], key: K) -> None:
        """Silent when there is none."""
        if key in table:
            before = table.pop(key)
            self._note(lambda: table.__setitem__(key, before))

    def set(self, row: object, **values: Any) -> None:
        """Set columns that no index needs."""
        before = {name: getattr(row, name) for name in values}
        self._note(lambda: _write(row, before))
        _write(row, values)

    def new_id(self, prefix: str) -> str:
        """The next id of a prefix; ids sort by their age, as those of activities/db/ids.py."""
        number = self._numbers.get(prefix, 0) + 1
        self._numbers[prefix] = number
        return f"{prefix}-{number:06}"

    # ── rows of lifecycles ──────────────────────────────────────────────────────────────────

    def row(self, resource_id: str) -> Any:
        """The row of a resource; None where there is none. Raises: ValueError, for other ids."""
        return self.of_noun[noun_of(resource_id).name].get(resource_id)

    def add(self, row: LifecycleRow) -> None:
        """Raises: ValueError, when the id is there already."""
        table = self.of_noun[row.noun.name]
        if row.id in table:
            raise ValueError(f"{row.id}: is there already")
        self.put(table, row.id, row)
        self.put(self.open[row.noun.name], row.id, row)
        for index, key in self._found_by(row):
            self.put(index.setdefault(key, {}), row.id, row)
        if isinstance(row, Lease):
            if row.name in self.leases_by_name:
                raise ValueError(f"{row.name}: two leases have this name")
            self.put(self.leases_by_name, row.name, row)
        self.placement_changes()

    def _found_by(self, row: LifecycleRow) -> list[tuple[dict[str, dict[str, Any]], str]]:
        if isinstance(row, Region):
            return [(self.regions_of, row.provider_id)]
        if isinstance(row, Node):
            found: list[tuple[dict[str, dict[str, Any]], str]] = [(self.nodes_of, row.region_id)]
            return [*found, (self.nodes_by_minion, row.minion_id)] if row.minion_id else found
        if isinstance(row, Lease):
            return [(self.leases_of, row.provider_id), (self.leases_held, row.holder_id)]
        return []

    def change(self, row: LifecycleRow, **values: Any) -> None:
        """Write columns of a row, and what is found by them."""
        status = row.status
        if isinstance(row, Node):
            self._find_by_minion(row, values.get("minion_id"))
        self.set(row, **values)
        if row.status != status:
            self._change_status(row)
        if isinstance(row, Job):
            self._change_job(row, values)
        elif not isinstance(row, Lease):
            self.placement_changes()

    def _find_by_minion(self, row: Node, minion_id: str | None) -> None:
        if minion_id is not None and minion_id != row.minion_id:
            if row.minion_id:
                self.drop(self.nodes_by_minion.setdefault(row.minion_id, {}), row.id)
            self.put(self.nodes_by_minion.setdefault(minion_id, {}), row.id, row)

    def _change_status(self, row: LifecycleRow) -> None:
        rows = self.open[row.noun.name]
        if row.status in row.noun.final_statuses:
            self.drop(rows, row.id)
        elif row.id not in rows:
            self.put(rows, row.id, row)
        if isinstance(row, Job):
            if row.status == JobStatus.WAITING_FOR_RESOURCES:
                self.put(self.waiting_jobs, row.id, row)
            else:
                self.drop(self.waiting_jobs, row.id)
            self.placement_changes()

    def _change_job(self, row: Job, values: dict[str, Any]) -> None:
        if "unsettled" in values:
            if row.unsettled is None:
                self.drop(self.unsettled_jobs, row.id)
            else:
                self.put(self.unsettled_jobs, row.id, row)
        if row.id in self.waiting_jobs:
            self.placement_changes()

    def placement_changes(self) -> None:
        """Also what is undone afterwards has changed; one round more does no harm."""
        self.placement_version += 1

    # ── events ──────────────────────────────────────────────────────────────────────────────

    def append_event(self, row: LifecycleRow, kind: str, message: str, at: datetime) -> None:
        """Append an event to the last step of a resource."""
        events = self.events.setdefault(row.id, [])
        index = 0
        for event in reversed(events):
            if event.sequence == row.sequence:
                index = max(index, event.index + 1)
            else:
                break
        events.append(
            EventRow(
                resource_id=row.id,
                sequence=row.sequence,
                index=index,
                type=kind,
                message=message,
                at=at,
            )
        )
        self._note(events.pop)

    def append_account_event(self, account_id: str, row: EventRow) -> None:
        """Append an event of an account itself, which has no steps."""
        events = self.account_events.setdefault(account_id, [])
        row.index = sum(1 for event in events if event.sequence == row.sequence)
        events.append(row)
        self._note(events.pop)

    # ── what many ask ───────────────────────────────────────────────────────────────────────

    def live_regions(self, provider_id: str) -> list[Region]:
        rows = self.regions_of.get(provider_id, {}).values()
        return [row for row in rows if row.status != "archived"]

    def live_datastores(self, region_id: str) -> list[str]:
        """The ids of the datastores of a region that are not archived, sorted."""
        rows = self.open["datastore"].values()
        return sorted(row.id for row in rows if row.region_id == region_id)

    def live_nodes(self, region_id: str) -> list[Node]:
        """The nodes of a region that are not archived, by id."""
        rows = self.nodes_of.get(region_id, {}).values()
        found = [row for row in rows if row.status != NodeStatus.ARCHIVED]
        return sorted(found, key=lambda row: row.id)

    def open_leases(self, found: dict[str, Lease] | None) -> list[str]:
        """The ids of those that have not ended, sorted."""
        rows: Iterable[Lease] = (found or {}).values()
        return sorted(row.id for row in rows if row.status not in row.noun.final_statuses)

    def last_lease(self, node_id: str) -> Lease | None:
        """The newest lease of a node, as activities/nodes/starts.py:_last_lease."""
        held = self.leases_held.get(node_id)
        return held[max(held)] if held else None


def _write(row: object, values: dict[str, Any]) -> None:
    for name, value in values.items():
        setattr(row, name, value)
