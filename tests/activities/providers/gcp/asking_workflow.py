"""A workflow that asks for effects alone, in a module that the workflows' sandbox can import."""

import asyncio

from temporalio import workflow

from workflows.contracts.base import Contract
from workflows.effects.jobs import FindPlacement, find_placement
from workflows.effects.machines import (
    DescribeMachine,
    TerminateMachine,
    describe_machine,
    terminate_machine,
)


class Ask(Contract):
    """The effects that are asked for at once."""

    looks: tuple[DescribeMachine, ...] = ()
    releases: tuple[TerminateMachine, ...] = ()
    placements: tuple[FindPlacement, ...] = ()


@workflow.defn
class Asking:
    @workflow.run
    async def run(self, ask: Ask) -> None:
        await asyncio.gather(
            *map(describe_machine, ask.looks),
            *map(terminate_machine, ask.releases),
            *map(find_placement, ask.placements),
        )
