"""The machine change of a permanent node: from one leased machine to the next."""

from contextlib import suppress
from datetime import timedelta

from workflows.contracts.events import Event, NodeEvent
from workflows.contracts.statuses import NodeStatus
from workflows.nodes.drain import Drain
from workflows.nodes.leased_machine import LeasedMachine
from workflows.nodes.removal import NodeRemoval
from workflows.nodes.steps import NodeSteps
from workflows.nodes.wanted import WantedStatus
from workflows.primitives.waiting import Interrupted, interruptible


class MachineChange:
    """The machine changes of one node; a removal ends each of them."""

    def __init__(
        self,
        steps: NodeSteps,
        machine: LeasedMachine,
        drain: Drain,
        removal: NodeRemoval,
        wanted: WantedStatus,
    ) -> None:
        self._steps = steps
        self._machine = machine
        self._drain = drain
        self._removal = removal
        self._wanted = wanted

    async def make(self, reason: str) -> None:
        """Let the leased machine go, and wait for the next one: after the loss of the machine or a
        failure, or before the end of its lease.

        A node that was never in use fails, and one that was in use gets another machine, after a
        loss with a pause.
        """
        pause = self._machine.pause()
        if self._machine.lost is None and self._machine.ending is not None:
            self._steps.status, kind = NodeStatus.MAINTENANCE, NodeEvent.MACHINE_ENDING
        elif pause is None:
            self._steps.status, kind = NodeStatus.FAILED, NodeEvent.FAILED
        else:
            self._steps.status, kind = NodeStatus.OFFLINE, NodeEvent.MACHINE_LOST
        await self._steps.write(Event(type=kind, message=reason), reason=reason)
        await self._drain.withdraw(reason)
        await self._carry_out(reason, pause)

    async def make_when_wanted(self) -> None:
        """Let the machine of a failed node go, and wait until a person activates the node."""
        await self._carry_out(self._steps.reason or "", None)

    async def resume(self, reason: str) -> None:
        """Go on with the change that an earlier workflow run began, for this reason."""
        is_planned = self._steps.status is NodeStatus.MAINTENANCE
        pause = timedelta(0) if is_planned else self._machine.present_pause()
        await self._carry_out(reason, pause)

    async def _carry_out(self, reason: str, pause: timedelta | None) -> None:
        """pause: before the next machine; None: a person activates the node."""
        with suppress(Interrupted):
            await interruptible(self._next_machine(reason, pause), when=self._removal.is_asked)

    async def _next_machine(self, reason: str, pause: timedelta | None) -> None:
        """See the jobs off the machine, release it, and wait until another one may be claimed."""
        await self._drain.before_release(reason)
        await self._drain.give_machine_back(reason)
        await self._machine.wait_for_next(pause, self._wanted.activation)
