"""The end of a lease's machine: it is terminated until its provider says that it is gone."""

from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, Protocol

from temporalio import workflow

from workflows.contracts.errors import STALE
from workflows.contracts.events import Event, LeaseEvent
from workflows.contracts.machines import MachineObservation
from workflows.contracts.statuses import MachineState
from workflows.effects.machines import (
    DescribeMachine,
    TerminateMachine,
    describe_machine_briefly,
    terminate_machine,
)
from workflows.leases.machine import Machine
from workflows.primitives.failures import EFFECT_FAILED, cause_of
from workflows.primitives.journal import Journal

TERMINATION_INTERVAL = timedelta(minutes=1)
"""Between two tries to terminate a machine."""


class StepWriter(Protocol):
    """Records a step of a lease with an event and, unless it is None, a reason."""

    async def __call__(self, event: Event, *, reason: str | None = None) -> None: ...


class MachineEnd:
    """The end of the machine of one offer; people are told of a machine that may still cost money.

    write: records a step with an event; observe: records an observation of the machine.
    """

    def __init__(
        self,
        machine: Machine,
        journal: Journal,
        write: StepWriter,
        observe: Callable[[MachineObservation], Coroutine[Any, Any, None]],
    ) -> None:
        self._machine = machine
        self._journal = journal
        self._write = write
        self._observe = observe

    async def terminate(self) -> MachineObservation:
        """Terminate the machine, and try again after a failure, which an event shows."""
        was_unseen = self._machine.seen is None and not await self._describe_unseen()
        recorded = ""
        while True:
            command = TerminateMachine(
                **self._machine.name,
                provider_machine_id=self._machine.known_id,
                was_unseen=was_unseen,
                sequence=self._journal.sequence,
            )
            try:
                gone = await terminate_machine(command)
            except EFFECT_FAILED as failure:
                kind, message = cause_of(failure)
                if kind == STALE:
                    # Unless the lease has taken a step meanwhile, the row has a step of another.
                    await self._journal.stop_if_behind(command.sequence + 1)
                    continue
                reason = f"the machine could not be terminated and may still cost money: {message}"
            else:
                if gone.reason:
                    event = Event(type=LeaseEvent.TERMINATED_OTHERWISE, message=gone.reason)
                    await self._record_event(event)
                return self._machine.ended(gone)
            if reason != recorded:
                await self._write(
                    Event(type=LeaseEvent.NOT_RELEASED, message=reason), reason=reason
                )
                recorded = reason
            await workflow.sleep(TERMINATION_INTERVAL, summary="before the next try to terminate")
            await self._journal.continue_when_long()

    async def _describe_unseen(self) -> bool:
        """Observe a machine whose creation was not answered, to know its start and price.

        False: the provider cannot be reached.
        """
        try:
            seen = await describe_machine_briefly(DescribeMachine(**self._machine.name))
        except EFFECT_FAILED as failure:
            message = f"the cost of the machine is unknown: {cause_of(failure)[1]}"
            await self._record_event(Event(type=LeaseEvent.COST_UNKNOWN, message=message))
            return False
        if seen.state is not MachineState.GONE:
            await self._observe(seen)
        return True

    async def _record_event(self, event: Event) -> None:
        await self._write(event, reason=self._journal.reason)
