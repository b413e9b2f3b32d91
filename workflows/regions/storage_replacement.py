"""The replacement of a region's storage node: the new one is filled, then the old one removed."""

from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import is_cancelled_exception

from workflows.contracts.events import Event, RegionEvent
from workflows.contracts.regions import RegionRequest
from workflows.contracts.statuses import NodeStatus
from workflows.effects.regions import (
    CacheFilled,
    FillCache,
    FindStorageFill,
    RequestNodeRemoval,
    StorageFill,
    fill_cache,
    find_storage_fill,
    request_node_removal,
)
from workflows.primitives.failures import EFFECT_FAILED, cause_of
from workflows.primitives.journal import EventWriter

SOON = timedelta(seconds=1)
AGAIN = timedelta(minutes=1)
MOST_STEPS = 200
"""The most steps of a fill, of which an honest one takes some minutes."""
TRIES = 5
"""How often a fill is tried while both nodes answer; then the new one fills on demand."""


class StorageFilling:
    """The part of a region's lifecycle that fills a storage node from the one that it replaces.

    What has to be done is read from the rows each time, so that a broken-off replacement goes on
    wherever it was. A fill is never required: a cache that lacks something has it sent again.
    """

    def __init__(self, request: RegionRequest, record_event: EventWriter) -> None:
        self._region_id = request.region_id
        self._record_event = record_event
        self._failed: dict[str, int] = {}
        """How often the fill of a node has failed."""
        self._steps: dict[str, int] = {}

    async def step(self) -> tuple[StorageFill, timedelta | None]:
        """Fill the new storage node for some minutes, if there is one and both are active.

        Returns the replacement, and when there is more to do; None: the new node is as full as it
        gets, or nothing can be done now.
        """
        found = await find_storage_fill(FindStorageFill(region_id=self._region_id))
        if found.node is None or found.source is None or found.status is not NodeStatus.ACTIVE:
            return found, None
        try:
            filled = await fill_cache(FillCache(node=found.node, source=found.source))
        except EFFECT_FAILED as failure:
            if is_cancelled_exception(failure):
                raise
            filled = CacheFilled(left_files=1, reason=cause_of(failure)[1])
        steps = self._steps[found.node_id] = self._steps.get(found.node_id, 0) + 1
        if not filled.reason and filled.left_files and steps >= MOST_STEPS:
            self._failed[found.node_id] = TRIES
            filled = filled.model_copy(update={"reason": f"not full after {steps} steps"})
        if not filled.reason:
            return found, SOON if filled.left_files else None
        return found, await self._note_failure(found, filled.reason)

    async def _note_failure(self, found: StorageFill, reason: str) -> timedelta | None:
        tried = self._failed.get(found.node_id, 0) + 1
        self._failed[found.node_id] = tried
        if tried < TRIES:
            return AGAIN
        message = f"{found.node_id} fills as jobs need it, not from what was there: {reason}"
        await self._record_event(Event(type=RegionEvent.STORAGE_NOT_FILLED, message=message))
        return None


class OwnStorage:
    """The part of a region's lifecycle that replaces the storage node of own machines.

    more_in: when there is more to do; None: when a storage node or a person says so.
    """

    def __init__(self, request: RegionRequest, record_event: EventWriter) -> None:
        self._record_event = record_event
        self._name = request.name
        self._filling = StorageFilling(request, record_event)
        self._replaced: set[str] = set()
        may_be_broken_off = request.central_storage and request.resumed_status is not None
        self.more_in: timedelta | None = SOON if may_be_broken_off else None

    async def follow(self) -> None:
        """Go on with a replacement, if there is one: a part of the fill, or the removal."""
        found, self.more_in = await self._filling.step()
        if self.more_in is not None or found.status is not NodeStatus.ACTIVE or not found.older:
            return
        for node_id in found.older:
            await request_node_removal(removal_of(node_id, self._name))
        if found.node_id not in self._replaced:
            self._replaced.add(found.node_id)
            await self._record_event(replaced_by(found.node_id))


def removal_of(node_id: str, region_name: str) -> RequestNodeRemoval:
    """The request for the removal of a replaced storage node."""
    by = f"region {region_name}: another storage node is there"
    return RequestNodeRemoval(node_id=node_id, requested_by=by, at=workflow.now())


def replaced_by(node_id: str) -> Event:
    """The event of a storage node that has taken its place."""
    return Event(type=RegionEvent.STORAGE_REPLACED, message=f"{node_id} is its storage node")
