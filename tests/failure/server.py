"""Where the cases are played: one Temporal server, one worker process to be killed, many worlds."""

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from temporalio.client import Client

from tests.failure.cases import BY_KILLING, Case, Mode, id_part
from tests.failure.fake_effects import FaultedWorld
from tests.failure.fault import Fault
from tests.failure.pairs import Pair
from tests.failure.short_timeouts import case_of
from tests.failure.stories import STORIES, Story, story_of
from tests.failure.worker_channel import Exchange, Waiting
from tests.temporal_server import CHECKOUT
from tests.waiting import eventually

AT_ONCE = 24
LIMIT_S = 200.0
PAUSE_S = 0.3
OPEN_LIMIT_S = 6.0
MOST_CALLS = 2
"""Of these the seed chooses one; of all records, whose order is sure."""
ONCE_FOR_SURE = ("get_run_status", "tell_job_to_end", "store_volume")
"""What a story may ask for again when it is slow: only the first call comes each time."""


@dataclass
class Verdict:
    """What is wrong in one case's world; nothing, when all is well."""

    wrong: list[str] = field(default_factory=list)
    calls: Counter[Pair] = field(default_factory=Counter)


class Room:
    def __init__(self, client: Client, folder: Path, seed: int) -> None:
        self._client, self._folder, self._seed = client, folder, seed
        self._worlds: dict[str, FaultedWorld] = {}
        self._exchange = Exchange(self._answer)
        self._worker: subprocess.Popen[bytes] | None = None
        self._turns = asyncio.Semaphore(AT_ONCE)
        self.planned: dict[type[Story], Verdict] = {}

    async def __aenter__(self) -> Self:
        await self._exchange.open(self._folder / "line")
        self._start_worker()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._kill_worker()
        await self._exchange.close()

    async def play(self, cases: Sequence[Case]) -> dict[str, Verdict]:
        """Every story as planned, then the cases: those that are killed first, all together."""
        told = await asyncio.gather(*(self._as_planned(story) for story in STORIES))
        self.planned = dict(zip(STORIES, told, strict=True))
        killed = [case for case in cases if case.mode in BY_KILLING]
        others = [case for case in cases if case.mode not in BY_KILLING]
        lives = [asyncio.create_task(self._broken(case)) for case in killed]
        if killed:
            await self._kill_when_all_are_struck([case.name for case in killed], lives)
        lives += [asyncio.create_task(self._in_turn(case)) for case in others]
        verdicts = await asyncio.gather(*lives)
        found = dict(zip([case.name for case in (*killed, *others)], verdicts, strict=True))
        await self._look_for_open_workflows(found)
        return found

    # ── one case ────────────────────────────────────────────────────────────────────────────

    async def _as_planned(self, story: type[Story]) -> Verdict:
        return await self._tell(story, f"{story.__name__.lower()}-none-{Mode.AS_PLANNED}", Fault())

    async def _in_turn(self, case: Case) -> Verdict:
        async with self._turns:
            return await self._broken(case)

    async def _broken(self, case: Case) -> Verdict:
        story = story_of(case.pair, case.variant)
        if story is None:
            return Verdict([f"no story of {case.pair.lifecycle}"])
        nth = story.nth.get(case.pair.stub)
        fault = Fault(case, nth or self._nth(case, self.planned[story].calls[case.pair]))
        return await self._tell(story, case.name, fault)

    def _nth(self, case: Case, calls: int) -> int:
        stub = case.pair.stub
        most = calls if stub == "record" else min(calls, MOST_CALLS)
        if stub in ONCE_FOR_SURE:
            most = 1
        return random.Random(f"{self._seed}/{case.name}").randint(1, max(most, 1))

    async def _tell(self, kind: type[Story], name: str, fault: Fault) -> Verdict:
        world = FaultedWorld(client=self._client, fault=fault)
        self._worlds[name] = self._worlds[id_part(name)] = world
        story = kind(self._client, name, world)
        in_temporal = story.mode is Mode.CANCELED_IN_TEMPORAL
        fault.cancel = story.cancel_in_temporal if in_temporal else story.cancel
        await self._live(story, world)
        if fault.case is not None and not fault.struck.is_set():
            story.wrong.append(f"its call {fault.nth} was never asked for")
        seen = "; ".join(filter(None, world.said))
        wrong = [f"{what} (seed {self._seed}, call {fault.nth}; {seen})" for what in story.wrong]
        return Verdict(wrong, world.calls)

    async def _live(self, story: Story, world: FaultedWorld) -> None:
        deadline = time.monotonic() + LIMIT_S
        try:
            await story.begin()
            while not await story.step():
                if world.fault.is_held:
                    deadline = time.monotonic() + LIMIT_S
                if time.monotonic() > deadline:
                    rows = {name: row.status for name, row in world.rows.items()}
                    story.wrong.append(f"not over in {LIMIT_S:g} s: {rows}")
                    break
                world.stirred.clear()
                try:
                    await asyncio.wait_for(world.stirred.wait(), PAUSE_S)
                except TimeoutError:
                    continue
            story.look()
        except Exception as broken:  # noqa: BLE001 - one case must not take the others with it
            story.wrong.append(f"its story broke: {broken!r}")
        finally:
            if story.end is not None:
                story.end.cancel()

    async def _answer(self, waiting: Waiting) -> str:
        return await self._worlds[case_of(waiting.call.workflow_id)].answer(waiting)

    # ── the worker ──────────────────────────────────────────────────────────────────────────

    def _start_worker(self) -> None:
        address = self._client.service_client.config.target_host
        with (self._folder / "worker.log").open("ab") as log:
            self._worker = subprocess.Popen(
                [sys.executable, "-m", "tests.failure.worker", address, self._folder / "line"],
                cwd=CHECKOUT,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _kill_worker(self) -> None:
        if self._worker is not None:
            os.kill(self._worker.pid, signal.SIGKILL)
            self._worker.wait()

    async def _kill_when_all_are_struck(
        self, names: Sequence[str], lives: Sequence["asyncio.Task[Verdict]"]
    ) -> None:
        """Once, with every case at its point; one that has ended before says so itself."""

        def are_there() -> bool:
            return all(
                life.done() or (name in self._worlds and self._worlds[name].fault.struck.is_set())
                for name, life in zip(names, lives, strict=True)
            )

        with contextlib.suppress(AssertionError):  # what is not there says so in its verdict
            await eventually(are_there, "all are at their point", LIMIT_S)
        self._kill_worker()
        for name in names:
            self._worlds[name].fault.is_over = True
        self._start_worker()

    # ── what is left ────────────────────────────────────────────────────────────────────────

    async def _look_for_open_workflows(self, found: dict[str, Verdict]) -> None:
        """All lives are over: nothing may be running. Visibility may need its time."""
        left: dict[str, str] = {}

        async def none_is_left() -> bool:
            nonlocal left
            running = self._client.list_workflows("ExecutionStatus = 'Running'")
            left = {case_of(each.id): each.id async for each in running}
            return not left

        with contextlib.suppress(AssertionError):  # each that is left says so in its verdict
            await eventually(none_is_left, "all workflows are over", OPEN_LIMIT_S)
        for name, workflow_id in left.items():
            if name in found:
                found[name].wrong.append(f"workflow {workflow_id} is left open")
