"""The urgent messages of a node, which interrupt what it does with its machine."""

from collections.abc import Coroutine
from functools import partial
from typing import Any

from workflows.contracts.base import Contract
from workflows.contracts.leases import LeaseEnding, MachineLost
from workflows.contracts.nodes import ProtocolViolation
from workflows.contracts.removals import Removal
from workflows.hosts.connection import ProtocolViolatedError, raise_if_violated
from workflows.hosts.location import HostLocation
from workflows.nodes.leased_machine import LeasedMachine
from workflows.nodes.removal import NodeRemoval
from workflows.primitives.failures import EFFECT_FAILED
from workflows.primitives.inbox import Inbox
from workflows.primitives.waiting import Interrupted, interruptible

_URGENT = (Removal, LeaseEnding, MachineLost, ProtocolViolation)


class UrgentMessages:
    """The messages to one node that end what it is doing, and how they are handled."""

    def __init__(
        self, inbox: Inbox, removal: NodeRemoval, machine: LeasedMachine, location: HostLocation
    ) -> None:
        self._inbox = inbox
        self._removal = removal
        self._machine = machine
        self._location = location

    def wait_beside(self, *kinds: type[Contract]) -> bool:
        """Whether an urgent message waits, or one of these kinds."""
        return self._inbox.holds(*_URGENT, *kinds)

    def end_onboarding(self) -> bool:
        """Whether the node is removed or its machine lost; takes these messages ahead of others."""
        return self._removal.is_asked() or self._machine.is_lost(self._inbox)

    async def interrupt(self, work: Coroutine[Any, Any, None]) -> bool:
        """Await `work` on the node. False: an urgent message has cancelled it and was handled.

        Raises: as `handle`; ProtocolViolatedError, when the work has met one; the failure of the
        work.
        """
        try:
            await interruptible(work, when=partial(self._inbox.holds, *_URGENT))
        except EFFECT_FAILED as failure:
            raise_if_violated(failure)
            raise
        except Interrupted:
            message = self._inbox.pick(*_URGENT)
            if message is not None:
                await self.handle(message)
            return False
        return True

    async def handle(self, message: Contract) -> None:
        """Handle an urgent message; any other one, or one about another machine, changes nothing.

        Raises: MachineGoneError, LeaseEndingError, ProtocolViolatedError, when the node cannot go
        on with its machine.
        """
        if isinstance(message, Removal):
            await self._removal.consider(message)
        elif isinstance(message, LeaseEnding) and self._machine.is_to_end(message):
            await self._machine.leave_before(message)
        elif isinstance(message, MachineLost) and self._machine.concerns(message):
            raise self._machine.loss()
        elif isinstance(message, ProtocolViolation) and self._location.is_at(message.minion_id):
            raise ProtocolViolatedError(message.reason)
