"""A resume state from its node into the store and out of it to another run, over real SSH."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from activities.jobs.run_specs import discard_snapshots
from activities.settings import settings
from activities.site.collection import Packed
from activities.site.runs import start_worker
from activities.site.staging import stage_worker
from activities.site.state_snapshots import save_snapshot
from activities.storage.run_specs import RunSpec, seal_run_spec
from activities.storage.state_snapshots import StateSnapshot, copies_of
from activities.transport.stream import NodeStream
from tests.activities.archives import file, packed, symlink
from tests.activities.sites import REGION, Site, isolated
from tests.activities.waiting import wait_until
from workflows.contracts import errors
from workflows.contracts.jobs import WorkerAssignment, run_id
from workflows.effects.jobs import (
    DiscardSnapshots,
    RunFolder,
    SaveSnapshot,
    SnapshotOutcome,
    SnapshotSaved,
    StageWorker,
    StartWorker,
    WorkerStaged,
)

JOB = "job-states"
BEGAN = datetime(2026, 11, 22, 12, tzinfo=UTC)
GOES_ON = 'cat "$BASELOAD_STATE/line" 2>&1; echo ready; sleep 600'


class Life:
    """Attempts of the only worker of a job, one after the other."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.attempt = 0
        self.at = BEGAN

    @property
    def run(self) -> str:
        return run_id(JOB, 0, self.attempt)

    @property
    def state(self) -> Path:
        return self.site.agent.path(self.run, "state")

    async def begins(self) -> WorkerStaged:
        """The next attempt is staged."""
        self.attempt += 1
        return await self.is_staged()

    async def runs(self) -> None:
        """What its command has found is in its log."""
        await self.site.do(start_worker, StartWorker(node=self.site.node, run_id=self.run))
        await wait_until(lambda: "ready" in self.log, "its command has begun")

    async def is_staged(self) -> WorkerStaged:
        order = RunSpec(
            run_id=self.run, command=GOES_ON, disk_size_gb=0, isolation=isolated(self.site.node)
        )
        command = StageWorker(
            node=self.site.node,
            run_id=self.run,
            run_spec=seal_run_spec(JOB, self.attempt, 0, REGION, order),
            assignment=WorkerAssignment(worker=0, node=self.site.node),
            restores_state=self.attempt > 1,
        )
        return await self.site.do(stage_worker, command)

    @property
    def log(self) -> str:
        path = self.site.agent.path(self.run, "log")
        return path.read_text() if path.exists() else ""

    async def saves(self, *folders: RunFolder) -> SnapshotSaved:
        self.at += timedelta(minutes=5)
        command = SaveSnapshot(
            node=self.site.node,
            run_id=self.run,
            at=self.at,
            folders=folders or (RunFolder.STATE,),
        )
        return await self.site.do(save_snapshot, command)

    @property
    def copies(self) -> list[StateSnapshot]:
        return copies_of(self.site.blobs, JOB, 0)


@pytest.fixture
def life(site: Site) -> Life:
    return Life(site)


async def test_the_next_attempt_finds_what_the_one_before_had_saved_last(life: Life) -> None:
    await life.begins()
    (life.state / "line").write_text("epoch 3\n")
    first = await life.saves()
    assert first.outcome is SnapshotOutcome.SAVED
    unchanged = await life.saves()
    assert unchanged.outcome is SnapshotOutcome.UNCHANGED
    assert unchanged.stored_bytes == first.stored_bytes
    assert first.stored_bytes
    saved_at = life.copies[0].saved_at
    assert saved_at == BEGAN + timedelta(minutes=5)
    (life.state / "line").write_text("epoch 4\n")
    saved = await life.saves()
    assert (saved.outcome, saved.state_bytes) == (SnapshotOutcome.SAVED, len("epoch 4\n"))
    (life.state / "line").write_text("never saved\n")

    staged = await life.begins()
    assert staged == WorkerStaged(state_saved_at=life.at)
    await life.runs()
    assert life.log == "epoch 4\nready\n"
    (life.state / "line").write_text("epoch 5\n")
    assert await life.is_staged() == staged
    assert (life.state / "line").read_text() == "epoch 5\n"
    await life.saves()
    assert [copy.attempt for copy in life.copies] == [2]
    discard_snapshots(DiscardSnapshots(job_id=JOB))
    assert life.site.blobs.names("states") == []


async def test_a_notebook_that_starts_again_finds_all_its_files(life: Life) -> None:
    await life.begins()
    (life.state / "line").write_text("epoch 3\n")
    (life.state.parent / "work" / "mine.ipynb").write_text("{}")
    (life.state.parent / "output" / "plot").write_text("axes")
    assert (await life.saves(*RunFolder)).file_count == 3
    assert life.copies[0].folders == tuple(RunFolder)

    assert await life.begins() == WorkerStaged(state_saved_at=life.at)
    await life.runs()
    assert life.log == "epoch 3\nready\n"
    assert (life.state.parent / "work" / "mine.ipynb").read_text() == "{}"
    assert (life.state.parent / "output" / "plot").read_text() == "axes"


async def test_a_copy_that_is_cut_off_does_not_replace_the_last_whole_one(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    await life.begins()
    (life.state / "line").write_text("epoch 3\n")
    await life.saves()
    before = life.site.blobs.names("states")
    (life.state / "line").write_text("epoch 4\n")
    (life.state / "weights").write_bytes(bytes(range(256)) * 20_000)
    following = NodeStream._next

    async def cut(stream: NodeStream) -> bytes:
        chunk = await following(stream)
        life.site.sshd.cut()
        return chunk

    monkeypatch.setattr(NodeStream, "_next", cut)
    with pytest.raises(ApplicationError) as caught:
        await life.saves()
    assert caught.value.type in errors.LOSSES
    monkeypatch.setattr(NodeStream, "_next", following)
    assert life.site.blobs.names("states") == before
    assert not list((settings().home / "storage").rglob(".part-*"))
    assert (await life.begins()).state_saved_at == BEGAN + timedelta(minutes=5)
    assert (life.state / "line").read_text() == "epoch 3\n"


async def test_what_is_written_while_it_is_copied_is_copied_again(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    await life.begins()
    (life.state / "line").write_text("epoch 3\n")
    tries = []

    bring = Packed.bring

    async def unsettled_once(*arguments: Any) -> int:
        tries.append(arguments)
        if len(tries) == 1:
            refused = {"code": "unsettled"}
            raise ApplicationError("line: changed", refused, type=errors.OUTCOME_UNKNOWN)
        return await bring(*arguments)

    monkeypatch.setattr(Packed, "bring", unsettled_once)
    assert (await life.saves()).outcome is SnapshotOutcome.SAVED
    assert (len(tries), len(life.copies)) == (2, 1)


async def test_nothing_is_copied_where_there_is_nothing_or_too_much(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BASELOAD_STATE_MAX_BYTES", "1000")
    settings.cache_clear()
    await life.begins()
    assert (await life.saves()).outcome is SnapshotOutcome.NOTHING
    (life.state / "weights").write_bytes(bytes(1001))
    saved = await life.saves()
    assert (saved.outcome, saved.state_bytes) == (SnapshotOutcome.TOO_LARGE, 1001)
    assert "0.0 GB" in saved.limit
    assert life.copies == []


async def test_a_copy_that_cannot_be_unpacked_is_told_and_the_command_begins_all_the_same(
    life: Life,
) -> None:
    life.attempt = 1
    life.site.blobs.put(
        StateSnapshot(1, BEGAN, "ab" * 16).name(JOB, 0),
        packed(file("line"), symlink("out", "/etc")),
    )
    staged = await life.begins()
    assert staged.state_saved_at is None
    assert "out" in str(staged.state_refused)
    assert list(life.state.iterdir()) == []


async def test_a_straggler_of_an_earlier_attempt_replaces_nothing(life: Life) -> None:
    await life.begins()
    (life.state / "line").write_text("epoch 3\n")
    later = StateSnapshot(2, BEGAN, "cd" * 16)
    life.site.blobs.put(later.name(JOB, 0), packed(file("line", b"epoch 9\n")))
    assert (await life.saves()).outcome is SnapshotOutcome.UNCHANGED
    assert life.copies == [later]
