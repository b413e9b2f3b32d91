"""The resources of a region in a cloud: its part of the network, and its storage node."""

from datetime import timedelta
from functools import partial

from temporalio import workflow
from temporalio.exceptions import ApplicationError, is_cancelled_exception

from workflows.contracts.errors import REFUSED
from workflows.contracts.events import Event, RegionEvent
from workflows.contracts.lifecycles import Refresh
from workflows.contracts.regions import RegionRequest, Replacement
from workflows.contracts.statuses import NodeStatus
from workflows.effects.regions import (
    AddStorageNode,
    FindStorage,
    FindStorageClaim,
    RegionResource,
    StorageNode,
    add_storage_node,
    ensure_region_resource,
    find_storage,
    find_storage_claim,
    remove_region_resource,
    request_node_removal,
)
from workflows.primitives.failures import EFFECT_FAILED, cause_of
from workflows.primitives.inbox import Inbox
from workflows.primitives.journal import EventWriter
from workflows.primitives.waiting import wait_until
from workflows.regions.storage_replacement import StorageFilling, removal_of, replaced_by
from workflows.rules.catalogue.providers import traits_of
from workflows.rules.ids import timed_id

STORAGE_LIMIT = timedelta(hours=8)
"""The longest wait for a storage node, which itself fails earlier where it cannot be active."""
POLL_INTERVAL_MIN = timedelta(seconds=30)
POLL_INTERVAL_MAX = timedelta(minutes=5)
"""Between two reads of a storage node's status, at first and later; a refresh comes before."""
FILL_LIMIT = timedelta(hours=6)
"""The longest fill of a new storage node; what is left then comes as jobs need it."""
FILLS = "a-new-storage-node-is-filled"
"""The patch since which a new storage node is filled before the older one goes."""
_REMOVED = (NodeStatus.REMOVING, NodeStatus.ARCHIVED)
_BROKEN = (NodeStatus.FAILED, *_REMOVED)


class CloudResources:
    """The part of a region's lifecycle that creates, replaces and removes what it has in a cloud.

    A region of own machines has nothing there: `remove` and `storage_problem` then ask nothing.
    """

    def __init__(self, request: RegionRequest, record_event: EventWriter) -> None:
        self._request = request
        self._record_event = record_event
        self._filling = StorageFilling(request, record_event)
        self._is_unsettled = request.resumed_status is not None
        """Whether a replacement of the storage node may have been broken off."""

    # ── created and removed ────────────────────────────────────────────────────────────────────

    async def create(self, inbox: Inbox) -> None:
        """Create what is not there yet, one after another, until the storage node is active.

        inbox: where the region's messages arrive; a refresh ends a pause between two polls.
        Raises: ActivityError, ApplicationError, of the first resource that cannot be created.
        """
        for resource in self._resources():
            created = await ensure_region_resource(resource, summary=resource.resource)
            await self._record_event(
                Event(type=RegionEvent.RESOURCE_MADE, message=created.resource.path)
            )
        storage = await self._add_storage(())
        await self._record_event(
            Event(type=RegionEvent.STORAGE_ADDED, message=f"{storage.node_id} is its storage node")
        )
        await self._wait_until_active(storage.node_id, inbox)

    async def remove(self) -> str:
        """Remove all but the storage node. Which are left, and why; empty when all are gone."""
        left = []
        for resource in reversed(self._resources()):
            try:
                await remove_region_resource(resource, summary=resource.resource)
            except EFFECT_FAILED as failure:
                if is_cancelled_exception(failure):
                    raise
                left.append(f"{resource.resource}: {cause_of(failure)[1]}")
        return "; ".join(left)

    def _resources(self) -> tuple[RegionResource, ...]:
        request = self._request
        return tuple(
            RegionResource(
                region_id=request.region_id,
                provider_id=request.provider_id,
                provider_kind=request.provider_kind,
                cloud_region=request.cloud_region,
                resource=name,
            )
            for name in traits_of(request.provider_kind).region_resources
        )

    # ── storage node ─────────────────────────────────────────────────────────────────────────

    async def storage_problem(self) -> str:
        """Why the region's storage cannot be used; empty when it can."""
        if not self._request.is_in_cloud:
            return ""
        nodes = await self._storage()
        if self._is_unsettled:
            await self._settle(nodes)
        if any(node.status is NodeStatus.ACTIVE for node in nodes):
            return ""
        return "; ".join(map(_describe, nodes)) or "it has no storage node"

    async def _settle(self, nodes: tuple[StorageNode, ...]) -> set[str]:
        """End a replacement that was broken off as `replace` does, once its outcome is known.

        Returns the storage nodes that it has removed, which may not show that yet.
        """
        there = [node for node in nodes if node.status not in _REMOVED]
        is_active = bool(there) and there[-1].status is NodeStatus.ACTIVE
        if len(there) > 1 and not is_active and there[-1].status not in _BROKEN:
            return set()  # The newer one is still being created.
        self._is_unsettled = False
        surplus = [node.node_id for node in (there[:-1] if is_active else there[1:])]
        if is_active and surplus:
            await self._fill()
        for node_id in surplus:
            await self._request_removal(node_id)
        return set(surplus)

    async def replace(self, node_id: str, inbox: Inbox) -> None:
        """Add a storage node; when it is active, have the older ones removed, else keep them.

        A replacement that was broken off goes on instead, unless its new node is the one that asks.
        What was asked of the older nodes meanwhile is answered by this one.

        node_id: the node that asks for its replacement, which is ignored when it is being removed;
        empty: a person asks.
        """
        nodes = await self._storage()
        removed = await self._settle(nodes) if self._is_unsettled else set()
        there = {node.node_id: node.status for node in nodes}
        if node_id in removed or (node_id and there.get(node_id, NodeStatus.ARCHIVED) in _REMOVED):
            return
        left = [node.node_id for node in nodes if node.status not in _REMOVED]
        begun = left[-1] if self._is_unsettled and left[-1] != node_id else ""
        older = tuple(each for each in there if each != begun)
        try:
            new = await self._add_storage(older)
        except EFFECT_FAILED as failure:
            await self._keep_storage(failure)
            return
        self._is_unsettled = True
        message = f"{new.node_id} takes the place of {', '.join(older) or 'none'}"
        await self._record_event(Event(type=RegionEvent.STORAGE_ADDED, message=message))
        try:
            await self._wait_until_active(new.node_id, inbox)
        except EFFECT_FAILED as failure:
            if is_cancelled_exception(failure):
                raise
            await self._request_removal(new.node_id)
            answer_requests(inbox, new.node_id)
            self._is_unsettled = False
            await self._keep_storage(failure)
            return
        await self._fill()
        for replaced in older:
            await self._request_removal(replaced)
        answer_requests(inbox, "", *older)
        self._is_unsettled = False
        await self._record_event(replaced_by(new.node_id))

    async def _keep_storage(self, failure: BaseException) -> None:
        """Record why there is no other storage node. Raises: `failure`, if it is a cancellation."""
        if is_cancelled_exception(failure):
            raise failure
        await self._record_event(
            Event(type=RegionEvent.STORAGE_NOT_REPLACED, message=cause_of(failure)[1])
        )

    async def _storage(self) -> tuple[StorageNode, ...]:
        command = FindStorage(region_id=self._request.region_id)
        return (await find_storage(command)).nodes

    async def _add_storage(self, older: tuple[str, ...]) -> StorageNode:
        claim = await find_storage_claim(FindStorageClaim(region_id=self._request.region_id))
        command = AddStorageNode(
            region_id=self._request.region_id,
            node_id=timed_id("nod", workflow.now(), workflow.uuid4()),
            machine=claim,
            replaces=older,
            at=workflow.now(),
        )
        return await add_storage_node(command)

    async def _request_removal(self, node_id: str) -> None:
        await request_node_removal(removal_of(node_id, self._request.name))

    async def _fill(self) -> None:
        """Fill the newest storage node from the one that it replaces, while both are there."""
        if not workflow.patched(FILLS):
            return
        deadline = workflow.now() + FILL_LIMIT
        _, more_in = await self._filling.step()
        while more_in is not None and workflow.now() < deadline:
            await workflow.sleep(more_in, summary="the new storage node is filled")
            _, more_in = await self._filling.step()

    async def _wait_until_active(self, node_id: str, inbox: Inbox) -> None:
        """Raises: ApplicationError with the node's reason, when it cannot be active."""
        deadline, pause = workflow.now() + STORAGE_LIMIT, POLL_INTERVAL_MIN
        while True:
            there = {node.node_id: node for node in await self._storage()}
            node = there.get(node_id)
            if node is not None and node.status is NodeStatus.ACTIVE:
                return
            if node is None or node.status in _BROKEN or workflow.now() >= deadline:
                why = "its storage node is gone" if node is None else _describe(node)
                raise ApplicationError(why, type=REFUSED)
            await wait_until(partial(inbox.holds, Refresh), pause, f"{node.name} is {node.status}")
            pause = POLL_INTERVAL_MIN if inbox.pick(Refresh) else min(2 * pause, POLL_INTERVAL_MAX)


def answer_requests(inbox: Inbox, *node_ids: str) -> None:
    """Drop the requests to replace these storage nodes; empty: whichever there is."""
    inbox.drop(lambda one: isinstance(one, Replacement) and one.node_id in node_ids)


def _describe(node: StorageNode) -> str:
    reason = f": {node.reason}" if node.reason else ""
    return f"storage node {node.name} is {node.status}{reason}"
