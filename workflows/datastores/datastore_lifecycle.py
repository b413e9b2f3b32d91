"""The lifecycle of a datastore."""

from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import is_cancelled_exception

from workflows.contracts.datastores import (
    DatastoreEvent,
    DatastoreReport,
    DatastoreRequest,
    DatastoreStatus,
    DatastoreWay,
)
from workflows.contracts.events import Event
from workflows.contracts.lifecycles import DatastoreChanges, Refresh
from workflows.contracts.nodes import NodeAddress
from workflows.contracts.removals import Removal, RemovalProgress
from workflows.effects.datastores import (
    CheckDatastore,
    DatastoreChecked,
    DatastoreChecker,
    FindDatastoreChecker,
    ForgetDatastore,
    check_datastore,
    find_datastore_checker,
    forget_datastore,
)
from workflows.effects.lifecycles import FindDependents, find_dependents
from workflows.primitives.failures import EFFECT_FAILED, cause_of
from workflows.primitives.inbox import Inbox
from workflows.primitives.journal import Journal
from workflows.rules.counts import some_of

READY_INTERVAL = timedelta(hours=1)
OFFLINE_INTERVAL = timedelta(minutes=1)
LONGEST_OFFLINE_INTERVAL = timedelta(minutes=15)
IDLE_INTERVAL = timedelta(days=30)
FORGET_INTERVAL = timedelta(minutes=10)
"""Between two tries to forget the password."""
REMOVES_FIRST = "datastore-is-removing-before-its-users-are-read"
MOST_NODES = 3
"""How many nodes a check asks, where the first ones cannot be asked."""


@workflow.defn(name="DatastoreLifecycle")
class DatastoreLifecycle:
    """A shared folder of a region, from its registration to its removal.

    new → checking → ready ⇄ offline → removing → archived · failed, when its server refuses it
    """

    @workflow.init
    def __init__(self, request: DatastoreRequest) -> None:
        self._request = request
        self._journal = Journal(
            request.datastore_id, request.account_id, request.sequence, request.resumed_reason
        )
        self._journal.next_run = self._next_run
        self._removal = request.removal
        self._status = request.resumed_status or DatastoreStatus.NEW
        self._offline_interval = OFFLINE_INTERVAL
        self._inbox = Inbox()
        self._removed = False

    @workflow.run
    async def run(self, request: DatastoreRequest) -> DatastoreReport:
        if request.removal is not None:
            await self._carry_out(request.removal.removal)
        elif self._status in (DatastoreStatus.NEW, DatastoreStatus.CHECKING):
            await self._check_first()
        while not self._removed:
            await self._serve()
        return self._report()

    async def _check_first(self) -> None:
        """Ready when a node reaches it; failed when its server refuses what was registered."""
        self._status = DatastoreStatus.CHECKING
        await self._write(Event(type=DatastoreEvent.CHECKING, message="a node of the region looks"))
        await self._check()

    async def _serve(self) -> None:
        message = await self._inbox.wait(self._check_interval())
        if isinstance(message, Removal):
            await self._remove(message)
        elif self._status is not DatastoreStatus.FAILED:  # That waits for its removal.
            await self._check()
        await self._journal.continue_when_long()

    async def _check(self) -> None:
        """ready ⇄ offline: what does a node of the region see?"""
        tried: list[str] = []
        words = "the region has no active node to look from"
        for _ in range(MOST_NODES):
            try:
                checker = await find_datastore_checker(
                    FindDatastoreChecker(
                        datastore_id=self._request.datastore_id, tried=tuple(tried)
                    )
                )
                if checker.node is None:
                    break
                tried.append(checker.node.node_id)
                found = await self._look_from(checker.node, checker)
            except EFFECT_FAILED as failure:
                if is_cancelled_exception(failure):
                    raise
                words = f"no node could look: {cause_of(failure)[1]}"
                continue
            await self._take(found, checker.node_name)
            return
        await self._set_status(DatastoreStatus.OFFLINE, words, reason=words)

    async def _look_from(self, node: NodeAddress, checker: DatastoreChecker) -> DatastoreChecked:
        command = CheckDatastore(
            node=node, datastore_id=self._request.datastore_id, access=checker.access
        )
        return await check_datastore(command, summary=f"from {checker.node_name}")

    async def _take(self, found: DatastoreChecked, node: str) -> None:
        by = f"node {node} ({found.way})"
        if not found.is_reachable:
            is_first = self._status is DatastoreStatus.CHECKING
            failed = found.is_refused and is_first
            status = DatastoreStatus.FAILED if failed else DatastoreStatus.OFFLINE
            reason = f"{by}: {found.reason}"
            await self._set_status(status, reason, reason=reason, way=found.way)
        elif not found.is_writable:
            reason = f"can only be read: {by}: {found.reason}"
            await self._set_status(DatastoreStatus.READY, reason, reason=reason, way=found.way)
        else:
            message = f"{by} reads and writes it"
            await self._set_status(DatastoreStatus.READY, message, way=found.way)

    async def _set_status(
        self,
        status: DatastoreStatus,
        message: str,
        *,
        reason: str | None = None,
        way: DatastoreWay | None = None,
    ) -> None:
        """Record a status or a reason that is new."""
        if status is DatastoreStatus.OFFLINE and self._status is DatastoreStatus.OFFLINE:
            self._offline_interval = min(2 * self._offline_interval, LONGEST_OFFLINE_INTERVAL)
        else:
            self._offline_interval = OFFLINE_INTERVAL
        if status is self._status and reason == self._journal.reason:
            return
        event = DatastoreEvent(f"datastore.{status}")
        if status is self._status:
            event = DatastoreEvent.CHECKED
        self._status = status
        changes = DatastoreChanges(way=way)
        await self._write(Event(type=event, message=message), changes=changes, reason=reason)

    async def _remove(self, removal: Removal) -> None:
        """Remove the datastore; where jobs use it only when forced, as its region's removal is.

        Whoever names it from now on is refused, so that no job comes between the look for jobs and
        the removal.
        """
        before = self._status, self._journal.reason
        if not workflow.patched(REMOVES_FIRST):
            users = await self._users()
            if users and not removal.force:
                await self._stay(users, *before)
                return
        self._status = DatastoreStatus.REMOVING
        removing = Event(type=DatastoreEvent.REMOVING, message="its password is being forgotten")
        await self._write(removing, changes=DatastoreChanges(removal=removal))
        await self._carry_out(removal, before)

    async def _stay(
        self, users: tuple[str, ...], status: DatastoreStatus, reason: str | None
    ) -> None:
        """Go back to what it was before its removal was asked for."""
        self._removal, self._status = None, status
        message = f"asked to be removed, is used by {some_of(users)}: stays"
        refused = Event(type=DatastoreEvent.REMOVAL_REFUSED, message=message)
        await self._write(refused, reason=reason)

    async def _users(self) -> tuple[str, ...]:
        """The open jobs that use the datastore. A stale workflow run stops here."""
        found = await find_dependents(FindDependents(resource_id=self._request.datastore_id))
        await self._journal.stop_if_behind(found.sequence)
        return found.ids

    async def _carry_out(
        self, removal: Removal, before: tuple[DatastoreStatus, str | None] | None = None
    ) -> None:
        """Carry a removal out; the files of the share stay where they are.

        before: the status and its reason; None: an earlier workflow run knew them, and a node
        checks the datastore again where it stays.
        """
        self._removal = RemovalProgress(removal=removal)
        if workflow.patched(REMOVES_FIRST):
            users = await self._users()
            if users and not removal.force:
                await self._stay(
                    users, *(before or (DatastoreStatus.OFFLINE, "not checked since then"))
                )
                if before is None:
                    await self._check()
                return
        while reason := await self._password_left():
            await self._write(Event(type=DatastoreEvent.REMOVING, message=reason), reason=reason)
            await workflow.sleep(FORGET_INTERVAL, summary="its password is there")
            await self._journal.continue_when_long()
        self._status, self._removed = DatastoreStatus.ARCHIVED, True
        await self._write(Event(type=DatastoreEvent.ARCHIVED, message="removed"))

    async def _password_left(self) -> str:
        """Forget the password; why it could not be forgotten."""
        try:
            await forget_datastore(ForgetDatastore(datastore_id=self._request.datastore_id))
        except EFFECT_FAILED as failure:
            if is_cancelled_exception(failure):
                raise
            return f"its password could not be forgotten yet: {cause_of(failure)[1]}"
        return ""

    def _check_interval(self) -> timedelta:
        if self._status is DatastoreStatus.FAILED:
            return IDLE_INTERVAL
        ready = self._status is DatastoreStatus.READY
        return READY_INTERVAL if ready else self._offline_interval

    @workflow.signal(description="Remove the datastore; the files on its server stay.")
    def remove(self, removal: Removal) -> None:
        self._inbox.put(removal)

    @workflow.signal(description="Check the datastore now.")
    def refresh(self) -> None:
        if not self._inbox.holds(Refresh):
            self._inbox.put(Refresh())

    @workflow.query(description="Status and reason.")
    def status(self) -> DatastoreReport:
        return self._report()

    def _next_run(self) -> DatastoreRequest | None:
        """The request of the next workflow run; None while messages wait."""
        if len(self._inbox):
            return None
        update = {
            "sequence": self._journal.sequence,
            "resumed_status": self._status,
            "resumed_reason": self._journal.reason,
            "removal": self._removal,
        }
        return self._request.model_copy(update=update)

    async def _write(
        self, event: Event, *, changes: DatastoreChanges | None = None, reason: str | None = None
    ) -> None:
        changes = changes or DatastoreChanges()
        await self._journal.write(self._status, changes, event, reason=reason)

    def _report(self) -> DatastoreReport:
        return DatastoreReport(
            datastore_id=self._request.datastore_id,
            status=self._status,
            status_reason=self._journal.reason,
        )
