"""What a machine is, against what its region asks: at first, and whenever it may have changed."""

from collections.abc import Callable, Coroutine
from typing import Any

from workflows.contracts.events import Event
from workflows.contracts.node import Hardware, NodeRequest
from workflows.contracts.record import NodeChanges
from workflows.effects.node import InspectNode, inspect_again, inspect_node
from workflows.rules.hardware import evaluate
from workflows.rules.onboarding import missed_of, summary_of
from workflows.whereabouts import Whereabouts

Note = Callable[[NodeChanges, tuple[Event, ...]], Coroutine[Any, Any, None]]


class Inspection:
    """note: writes changes, with events that leave the node's status as it is."""

    def __init__(self, request: NodeRequest, at: Whereabouts, note: Note) -> None:
        self._request = request
        self._at = at
        self._note = note
        self._last: Hardware | None = None

    @property
    def asks_for_a_restart(self) -> bool:
        return self._last is not None and self._last.reboot_required

    async def first(self) -> str:
        """The requirements that it misses; empty when there are none."""
        return await self._judge(
            (await inspect_node(InspectNode(node=self._at.address()))).hardware
        )

    async def again(self) -> str:
        """As `first`, with less patience: it is in use. Told when it is not what it was."""
        asked = InspectNode(node=self._at.address())
        return await self._judge((await inspect_again(asked)).hardware)

    async def _judge(self, hardware: Hardware) -> str:
        requirements = evaluate(
            hardware,
            public=self._request.public,
            central_storage=self._request.central_storage,
            relaxed=self._request.relaxed,
        )
        before, self._last = self._last, hardware
        self._at.inspected_boot = self._at.boot_mark
        is_new = before is None or summary_of(before) != summary_of(hardware)
        told = (Event(type="node.inspected", message=summary_of(hardware)),) if is_new else ()
        await self._note(NodeChanges(hardware=hardware, requirements=requirements), told)
        return missed_of(requirements)
