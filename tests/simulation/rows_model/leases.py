"""The effects of leases, shortages and providers on rows.

As activities/leases/leasing.py, shortages.py and activities/providers/checks.py, notifications.py.
"""

from datetime import timedelta

from temporalio.exceptions import ApplicationError

from activities.leases.leasing import _LIVE, MACHINE_PREFIX, _message
from activities.leases.shortages import shortage_kept
from activities.providers.registry import unavailable
from tests.simulation.contracts import AlreadyStarted, Attempt, Handler, Unavailable
from tests.simulation.rows_model.allocations import Allocations
from tests.simulation.rows_model.connection import Connection, unanswered
from tests.simulation.rows_model.outbox import Outbox
from tests.simulation.rows_model.records import Lease, Node
from tests.simulation.rows_model.tables import Tables
from workflows.contracts.base import Done
from workflows.contracts.errors import NOT_FOUND, REFUSED
from workflows.contracts.leases import LeaseRelease, MachineReady
from workflows.contracts.lifecycles import NODE, workflow_id_of
from workflows.contracts.machines import MachineObservation
from workflows.contracts.providers import Check, NotificationsRequest
from workflows.contracts.statuses import LeaseStatus, MachineState, NodeStatus
from workflows.effects.leases import (
    AcquireLease,
    HolderNotified,
    LeaseAcquired,
    LeaseReleased,
    NotifyHolder,
    ReleaseLease,
)
from workflows.effects.machines import FindShortages, RememberShortage, ShortagesFound
from workflows.effects.providers import (
    CheckProvider,
    ForgetProviderKey,
    ProviderChecked,
    ReportFeedStatus,
    StartNotifications,
)
from workflows.rules.catalogue.providers import TRAITS, traits_of


class Leases:
    def __init__(
        self,
        tables: Tables,
        connection: Connection,
        outbox: Outbox,
        allocations: Allocations,
    ) -> None:
        self._tables = tables
        self._connection = connection
        self._outbox = outbox
        self._allocations = allocations

    def effects(self) -> dict[str, Handler]:
        return {
            "acquire_lease": self._acquire_lease,
            "release_lease": self._release_lease,
            "notify_holder": self._notify_holder,
            "find_shortages": self._find_shortages,
            "remember_shortage": self._remember_shortage,
            "check_provider": self._check_provider,
            "forget_provider_key": self._forget_provider_key,
            "start_notifications": self._start_notifications,
            "report_feed_status": self._report_feed_status,
        }

    # ── leases ──────────────────────────────────────────────────────────────────────────────

    def _acquire_lease(self, attempt: Attempt, command: AcquireLease) -> LeaseAcquired:
        """As leasing.py:acquire_lease. Raises: Refused, NotFound."""
        tables = self._tables
        node = tables.nodes.get(command.node_id)
        if node is None:
            raise ApplicationError(f"{command.node_id}: there is no such node", type=NOT_FOUND)
        row = tables.leases.get(command.lease_id) or self._live_lease(node.id)
        if row is not None:
            return _acquired(row)
        if node.status in (NodeStatus.REMOVING, NodeStatus.ARCHIVED):
            raise ApplicationError(
                f"node {node.name}: is being removed and gets no machine", type=REFUSED
            )
        row = _lease_of(node, command)
        with tables.write():
            request_id = self._outbox.create(row)
        self._connection.between()
        self._outbox.relay_soon([request_id])
        return _acquired(row)

    def _live_lease(self, node_id: str) -> Lease | None:
        held = self._tables.leases_held.get(node_id, {})
        live = [lease_id for lease_id, row in held.items() if row.status in _LIVE]
        return held[max(live)] if live else None

    def _release_lease(self, attempt: Attempt, command: ReleaseLease) -> LeaseReleased:
        """As leasing.py:release_lease. Raises: ApplicationError, to be retried."""
        tables = self._tables
        left = tuple(tables.open_leases(tables.leases_held.get(command.node_id)))
        node = tables.nodes.get(command.node_id)
        if node is not None and node.sequence > command.sequence:
            return LeaseReleased(left=left, sequence=node.sequence)
        release = LeaseRelease(reason=command.reason, by_holder=True)
        for lease_id in left:
            if tables.leases[lease_id].status == LeaseStatus.RELEASING:
                continue
            if not self._connection.tell(workflow_id_of(lease_id), "release", release):
                request_id = self._outbox.waits(lease_id, "release")
                if request_id is None:
                    with tables.write():
                        request_id = self._outbox.enqueue(lease_id, "release", release, command.at)
                    self._connection.between()
                self._outbox.relay_soon([request_id])
        return LeaseReleased(left=left)

    def _notify_holder(self, attempt: Attempt, command: NotifyHolder) -> HolderNotified:
        """As leasing.py:notify_holder. Raises: ApplicationError, to be retried."""
        signal, message = _message(command)
        workflow_id = workflow_id_of(command.holder_id)
        if self._connection.tell(workflow_id, signal, message, attempt.request_id):
            return HolderNotified(is_there=True)
        holder = self._tables.nodes.get(command.holder_id)
        is_open = holder is not None and holder.status not in NODE.final_statuses
        return HolderNotified(is_there=is_open, is_notified=not is_open)

    # ── shortages ───────────────────────────────────────────────────────────────────────────

    def _find_shortages(self, attempt: Attempt, command: FindShortages) -> ShortagesFound:
        now = self._connection.now()
        return ShortagesFound(
            shortages=tuple(
                shortage
                for (provider_id, _), shortage in self._tables.shortages.items()
                if provider_id == command.provider_id and shortage.until > now
            )
        )

    def _remember_shortage(self, attempt: Attempt, command: RememberShortage) -> Done:
        kind = self._tables.providers[command.provider_id].kind
        until = self._connection.now() + shortage_kept(kind)
        with self._tables.write():
            self._allocations.remember_shortage(
                command.provider_id, command.scope, command.reason, until
            )
        return Done()

    # ── providers ───────────────────────────────────────────────────────────────────────────

    def _check_provider(self, attempt: Attempt, command: CheckProvider) -> ProviderChecked:
        """As checks.py:check_provider. Raises: Refused, for a cloud."""
        if command.provider_kind not in TRAITS:
            detail = unavailable(command.provider_kind)
            failed = Check(name="kind", status="failed", detail=detail)
            return ProviderChecked(checks=(failed,))
        if traits_of(command.provider_kind).is_cloud:
            message = f"{command.provider_id}: asked its checks, {command.provider_kind} is a cloud"
            raise ApplicationError(message, type=REFUSED)
        return ProviderChecked(checks=(Check(name="platform-key", status="passed"),))

    def _forget_provider_key(self, attempt: Attempt, command: ForgetProviderKey) -> Done:
        row = self._tables.providers.get(command.provider_id)
        if row is not None:
            with self._tables.write():
                self._tables.set(row, has_key=False)
        return Done()

    def _start_notifications(self, attempt: Attempt, command: StartNotifications) -> Done:
        """As notifications.py:start_notifications; the kinds that are clouds have a feed."""
        if not traits_of(command.kind).is_cloud:
            return Done()
        workflow_id = f"provider/{command.provider_id}/notifications"
        try:
            self._connection.temporal.start(
                "ProviderNotifications",
                workflow_id,
                NotificationsRequest(provider_id=command.provider_id, kind=command.kind),
                conflict="use_existing",
            )
        except (Unavailable, AlreadyStarted) as cause:
            raise unanswered(f"{workflow_id}: start", cause) from cause
        return Done()

    def _report_feed_status(self, attempt: Attempt, command: ReportFeedStatus) -> Done:
        workflow_id = workflow_id_of(command.provider_id)
        self._connection.tell(workflow_id, "feed_status", command.state, attempt.request_id)
        return Done()


def _lease_of(node: Node, command: AcquireLease) -> Lease:
    """As leasing.py:_lease_of."""
    claim = command.machine
    return Lease(
        id=command.lease_id,
        account_id=node.account_id,
        name=f"{MACHINE_PREFIX}{command.lease_id}",
        region_id=command.region_id,
        provider_id=claim.provider_id,
        provider_kind=claim.provider_kind,
        holder_id=node.id,
        offers=claim.offers,
        spec=claim.spec,
        price_cap_microcredits_per_hour=claim.price_cap_microcredits_per_hour,
        deadline=command.at + timedelta(seconds=claim.spec.lifetime_s),
        status=LeaseStatus.RESERVED,
        created_at=command.at,
        updated_at=command.at,
    )


def _acquired(row: Lease) -> LeaseAcquired:
    """As leasing.py:_acquired."""
    status = LeaseStatus(row.status)
    ready = None
    if status is LeaseStatus.READY and row.offer is not None:
        seen = MachineObservation(
            state=MachineState.RUNNING,
            zone=row.offer.zone,
            provider_machine_id=row.provider_machine_id,
            host=row.host,
            port=row.port,
            user=row.user,
            minion_id=row.minion_id,
            microcredits_per_hour=row.microcredits_per_hour,
            began_at=row.began_at,
        )
        ready = MachineReady(lease_id=row.id, seen=seen, offer=row.offer)
    return LeaseAcquired(lease_id=row.id, status=status, reason=row.status_reason, ready=ready)
