"""The inspection of a node: its hardware, compared with the region's requirements."""

from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

from temporalio import workflow

from workflows.contracts.events import Event, NodeEvent
from workflows.contracts.lifecycles import NodeChanges
from workflows.contracts.nodes import Hardware, NodeRequest, Requirement
from workflows.effects.nodes import InspectNode, inspect_again, inspect_node
from workflows.nodes.location import NodeLocation
from workflows.rules.nodes.onboarding import missed_of, summary_of
from workflows.rules.nodes.requirements import STORAGE, evaluate, evaluate_storage

DRIVERS_LIMIT = timedelta(minutes=30)
DRIVERS_POLL_MIN = timedelta(seconds=10)
DRIVERS_POLL_MAX = timedelta(minutes=1)

ChangeWriter = Callable[[NodeChanges, tuple[Event, ...]], Coroutine[Any, Any, None]]


class Inspection:
    """The inspection of one node.

    record: writes changes and events that leave the node's status as it is.
    """

    def __init__(self, request: NodeRequest, location: NodeLocation, record: ChangeWriter) -> None:
        self._request = request
        self._location = location
        self._record = record
        self._last: Hardware | None = None

    @property
    def asks_for_a_restart(self) -> bool:
        return self._last is not None and self._last.reboot_required

    async def first(self, lacking: Callable[[Hardware], str]) -> str:
        """Inspect the node, and return the requirements that it misses; empty: none.

        lacking: what the machine was created with and does not have yet. The inspection waits for
        that, because the drivers of GPUs are installed during the first boot of a machine.
        """
        deadline, pause = workflow.now() + DRIVERS_LIMIT, DRIVERS_POLL_MIN
        hardware = await self._inspect()
        while (lacks := lacking(hardware)) and workflow.now() < deadline:
            if pause == DRIVERS_POLL_MIN:
                await self._record(
                    NodeChanges(), (Event(type=NodeEvent.INCOMPLETE, message=lacks),)
                )
            await workflow.sleep(pause, summary=lacks)
            pause = min(2 * pause, DRIVERS_POLL_MAX)
            hardware = await self._inspect()
        return await self._evaluate(hardware) or lacks

    async def _inspect(self) -> Hardware:
        return (await inspect_node(InspectNode(node=self._location.address()))).hardware

    async def again(self) -> str:
        """Inspect a node in use, with a shorter limit; record an event when its hardware changed.

        Returns the requirements that the node misses, empty when there are none.
        """
        command = InspectNode(node=self._location.address())
        return await self._evaluate((await inspect_again(command)).hardware)

    async def _evaluate(self, hardware: Hardware) -> str:
        requirements = self._requirements(hardware)
        before, self._last = self._last, hardware
        self._location.inspected_boot_id = self._location.boot_id
        is_new = before is None or summary_of(before) != summary_of(hardware)
        events = (Event(type=NodeEvent.INSPECTED, message=summary_of(hardware)),) if is_new else ()
        await self._record(NodeChanges(hardware=hardware, requirements=requirements), events)
        return missed_of(requirements)

    def _requirements(self, hardware: Hardware) -> tuple[Requirement, ...]:
        """Those of the node's services; a node that serves both must meet both."""
        request, relaxed = self._request, self._request.relaxed
        owned_at = self._location.host if request.machine is None else None
        found: dict[str, Requirement] = {}
        if request.services != (STORAGE,):
            compute = evaluate(
                hardware,
                public=request.public,
                central_storage=request.central_storage,
                relaxed=relaxed,
                owned_at=owned_at,
            )
            found |= {one.name: one for one in compute}
        if STORAGE in request.services:
            storage = evaluate_storage(
                hardware,
                central_storage=request.central_storage,
                relaxed=relaxed,
                owned_at=owned_at,
            )
            found |= {one.name: one for one in storage}
        return tuple(found.values())
