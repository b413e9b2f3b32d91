"""What a machine is, against what its region asks: at first, and whenever it may have changed."""

from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

from temporalio import workflow

from workflows.contracts.events import Event, NodeEvent
from workflows.contracts.lifecycles import NodeChanges
from workflows.contracts.nodes import Hardware, NodeRequest
from workflows.effects.nodes import InspectNode, inspect_again, inspect_node
from workflows.nodes.location import NodeLocation
from workflows.rules.nodes.onboarding import missed_of, summary_of
from workflows.rules.nodes.requirements import evaluate

DRIVERS_LIMIT = timedelta(minutes=30)
DRIVERS_POLL_MIN = timedelta(seconds=10)
DRIVERS_POLL_MAX = timedelta(minutes=1)

Note = Callable[[NodeChanges, tuple[Event, ...]], Coroutine[Any, Any, None]]


class Inspection:
    """note: writes changes, with events that leave the node's status as it is."""

    def __init__(self, request: NodeRequest, at: NodeLocation, note: Note) -> None:
        self._request = request
        self._location = at
        self._note = note
        self._last: Hardware | None = None

    @property
    def asks_for_a_restart(self) -> bool:
        return self._last is not None and self._last.reboot_required

    async def first(self, lacking: Callable[[Hardware], str]) -> str:
        """The requirements that it misses; empty when there are none.

        lacking: what it was made with and does not show. It is waited for: the drivers of GPUs are
        installed while a machine starts for the first time.
        """
        deadline, pause = workflow.now() + DRIVERS_LIMIT, DRIVERS_POLL_MIN
        hardware = await self._seen()
        while (lacks := lacking(hardware)) and workflow.now() < deadline:
            if pause == DRIVERS_POLL_MIN:
                await self._note(NodeChanges(), (Event(type=NodeEvent.INCOMPLETE, message=lacks),))
            await workflow.sleep(pause, summary=lacks)
            pause = min(2 * pause, DRIVERS_POLL_MAX)
            hardware = await self._seen()
        return await self._judge(hardware) or lacks

    async def _seen(self) -> Hardware:
        return (await inspect_node(InspectNode(node=self._location.address()))).hardware

    async def again(self) -> str:
        """As `first`, with less patience: it is in use. Told when it is not what it was."""
        asked = InspectNode(node=self._location.address())
        return await self._judge((await inspect_again(asked)).hardware)

    async def _judge(self, hardware: Hardware) -> str:
        requirements = evaluate(
            hardware,
            public=self._request.public,
            central_storage=self._request.central_storage,
            relaxed=self._request.relaxed,
        )
        before, self._last = self._last, hardware
        self._location.inspected_boot_id = self._location.boot_id
        is_new = before is None or summary_of(before) != summary_of(hardware)
        told = (Event(type=NodeEvent.INSPECTED, message=summary_of(hardware)),) if is_new else ()
        await self._note(NodeChanges(hardware=hardware, requirements=requirements), told)
        return missed_of(requirements)
