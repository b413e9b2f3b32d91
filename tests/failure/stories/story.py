"""What all stories share: a life that people and the rest of the world drive, to its end."""

import asyncio
from typing import Any, ClassVar

from temporalio.client import Client, WorkflowHandle
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.service import RPCError, RPCStatusCode

from tests.failure.cases import Mode
from tests.failure.fake_effects import FaultedWorld, end_of
from tests.failure.fault import CAUSE
from tests.failure.pairs import stubs
from workflows.contracts import queues
from workflows.contracts.base import Contract

HARMLESS = (
    Mode.AS_PLANNED,
    Mode.FAILS_TWICE,
    Mode.DONE_TWICE,
    Mode.REPLY_LOST,
    Mode.KILLED,
    Mode.KILLED_AFTER,
)
"""Nobody should notice more of these than that they take time."""
LIMIT_NAMED = "within its limit"


class Story:
    """One life in one world. `step` is asked again and again to do what comes next."""

    lifecycle: ClassVar[str]
    only: ClassVar[frozenset[str]] = frozenset()
    """The effects it is for; empty: all that no other story of the lifecycle is for."""
    variant: ClassVar[str] = ""
    """Its name, where another story is for the same effects; they are broken in each of both."""
    nth: ClassVar[dict[str, int]] = {}
    """The call of an effect that is broken, where only that one has the meaning of the story."""
    silent: ClassVar[dict[str, str]] = {}
    """Effects whose failure for good need not be told to a person, and why not."""

    def __init__(self, client: Client, name: str, world: FaultedWorld) -> None:
        self.client, self.name, self.world = client, name, world
        self.wrong: list[str] = []
        self.end: asyncio.Task[str] | None = None
        self.asked = False

    # ── for each story to say ───────────────────────────────────────────────────────────────

    @property
    def workflow_id(self) -> str:
        """Of the workflow whose effect is broken."""
        raise NotImplementedError

    async def begin(self) -> None:
        raise NotImplementedError

    async def step(self) -> bool:
        """Do what comes next, if anything. True: the story is over."""
        raise NotImplementedError

    async def cancel(self) -> None:
        """What a person does to end it."""

    def look(self) -> None:
        """At what is left in the world, once the story is over."""

    # ── what they do it with ────────────────────────────────────────────────────────────────

    @property
    def mode(self) -> Mode:
        return self.world.fault.case.mode if self.world.fault.case else Mode.AS_PLANNED

    @property
    def stub(self) -> str:
        return self.world.fault.case.pair.stub if self.world.fault.case else ""

    @property
    def is_struck(self) -> bool:
        return self.world.fault.case is None or self.world.fault.struck.is_set()

    def expect(self, holds: bool, what: str) -> None:
        if not holds:
            self.wrong.append(what)

    async def start(self, lifecycle: Any, request: Contract, workflow_id: str) -> None:
        handle: WorkflowHandle[Any, Any] = await self.client.start_workflow(
            lifecycle.run,
            request,
            id=workflow_id,
            task_queue=queues.MAIN,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        )
        self.end = asyncio.create_task(end_of(handle))
        self.end.add_done_callback(lambda _: self.world.stirred.set())

    async def signal(self, workflow_id: str, signal: str, *arguments: Contract) -> None:
        """Silent when it is gone."""
        try:
            await self.client.get_workflow_handle(workflow_id).signal(signal, args=arguments)
        except RPCError as cause:
            if cause.status is not RPCStatusCode.NOT_FOUND:
                raise

    async def cancel_in_temporal(self) -> None:
        try:
            await self.client.get_workflow_handle(self.workflow_id).cancel()
        except RPCError as cause:
            if cause.status is not RPCStatusCode.NOT_FOUND:
                raise

    def has_ended(self) -> bool:
        """Whether the workflow has closed; by a failure only where that was asked for.

        What follows, such as a sweep, comes long after: also after a call that is done late.
        """
        if self.end is None or not self.end.done() or self.world.fault.is_late:
            return False
        ended = self.end.result()
        allowed = self.mode is Mode.CANCELED_IN_TEMPORAL and "Cancel" in ended
        self.expect(ended == "completed" or allowed, f"its workflow has ended by {ended}")
        return True

    def look_at_the_cause(self) -> None:
        """Where it failed for good, somebody could read why."""
        if self.mode is Mode.FAILS_FOR_GOOD and self.world.fault.case is not None:
            if not self.world.fault.case.refuses or self.stub in self.silent:
                return
            told = any(CAUSE in line for line in self.world.said)
            self.expect(told, f"nobody is told that {CAUSE}")
        if self.mode is Mode.HANGS and not self.world.fault.is_over:
            named = any(LIMIT_NAMED in line and self.effect in line for line in self.world.said)
            self.expect(
                named or self.stub in self.silent, f"nobody is told that {self.effect} hung"
            )

    @property
    def effect(self) -> str:
        """The name of the activity that is broken."""
        return stubs()[self.stub].name if self.stub else ""
