"""The files of runs in a broken world: what a command has found and written, and what is stored."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field

from tests.workflows.fake_world import World
from workflows.contracts.jobs import parse_run_id
from workflows.effects import jobs as job
from workflows.effects.jobs import RunFolder

Files = dict[RunFolder, str]


@dataclass
class RunFiles(World):
    """The folders of each run, and the snapshots and outputs that were made of them."""

    found: dict[str, Files] = field(default_factory=dict)
    """What each run has found in its folders when it was staged."""
    staged_on: dict[str, str] = field(default_factory=dict)
    """The node of each run."""
    files: dict[str, Files] = field(default_factory=dict)
    """What each run has left in them."""
    copies: dict[tuple[str, int], Files] = field(default_factory=dict)
    """What the newest snapshot of each worker holds."""
    asked_outputs: Counter[str] = field(default_factory=Counter)
    may_store: asyncio.Event = field(default_factory=asyncio.Event)
    """An output is stored no earlier."""

    def __post_init__(self) -> None:
        self.may_store.set()

    def write(self, run_id: str, text: str) -> None:
        """A command writes into each of its folders."""
        for folder in RunFolder:
            self.files[run_id][folder] = self.files[run_id].get(folder, "") + text

    def stage_worker(self, asked: job.StageWorker) -> job.WorkerStaged:
        staged = super().stage_worker(asked)
        self.staged_on[asked.run_id] = asked.node.node_id
        if asked.run_id not in self.found:
            restores = staged.state_saved_at is not None
            copy = self.copies.get(parse_run_id(asked.run_id)[:2], {}) if restores else {}
            self.found[asked.run_id], self.files[asked.run_id] = dict(copy), dict(copy)
        return staged

    def save_snapshot(self, asked: job.SaveSnapshot) -> job.SnapshotSaved:
        saved = super().save_snapshot(asked)
        if saved.outcome is job.SnapshotOutcome.SAVED:
            own = self.files[asked.run_id]
            key = parse_run_id(asked.run_id)[:2]
            self.copies[key] = {each: own[each] for each in asked.folders if each in own}
        return saved

    async def store_output(self, asked: job.StoreOutput) -> job.OutputStored:  # type: ignore[override]
        self.asked_outputs[asked.run_id] += 1
        await self.may_store.wait()
        if asked.run_id not in self.machine(asked.node).runs:
            raise AssertionError(f"the output of {asked.run_id} is read when it is cleaned")
        return super().store_output(asked)
