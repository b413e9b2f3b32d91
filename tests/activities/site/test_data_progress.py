"""The progress of data on their way: in the heartbeat, and now and then as a signal to the job."""

import ast
import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from activities.site import data_progress
from activities.site.data_progress import ProgressNotes, noting, words_of
from tests.activities.site.test_contents import (
    Wire,
    dataset,
    machines,
    region,
    stage,
    store,
    wire,
)
from tests.activities.site.test_region_cache import Region
from tests.activities.sites import Site
from tests.activities.waiting import wait_until
from workflows.contracts.jobs import DataProgress, WorkerAssignment
from workflows.effects.jobs import WorkerStaged

__all__ = ["machines", "region", "wire"]


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Notes and signals that no test has to wait for."""
    monkeypatch.setattr(data_progress, "SAY_S", 0.02)
    monkeypatch.setattr(data_progress, "FIRST_SIGNAL_S", 0.05)
    monkeypatch.setattr(data_progress, "LONGEST_PAUSE_S", 0.2)


def figures(site: Site) -> list[DataProgress]:
    """What heartbeats have said so far in figures."""
    details = [ast.literal_eval(each) for each in site.told if each.startswith("('")]
    return [DataProgress.model_validate_json(each[1]) for each in details if len(each) == 2]


async def test_a_transfer_says_how_much_has_come_and_signals_it_to_its_job(
    site: Site, wire: Wire
) -> None:
    content = dataset(store(site))

    async def slow(chunk: bytes) -> bytes:
        await asyncio.sleep(0.005)
        return chunk

    wire.changes = [slow]
    await stage(site, "job-dp1", content)
    said = figures(site)
    assert {each.total_bytes for each in said} == {content.content.size_bytes}
    sent = [each.bytes_transferred for each in said]
    assert sent == sorted(sent)
    assert 0 < sent[-1] <= content.content.size_bytes
    assert any(each.bytes_per_s for each in said)
    signalled = site.jobs.of("job/job-dp1")
    assert [name for name, _ in signalled] == ["data_progress"] * len(signalled)
    assert 1 <= len(signalled) < len(said)


def signalled(site: Site, job: str) -> list[int]:
    """How many bytes each signal to a job has said, in their order."""
    return [argument.bytes_transferred for _, argument in site.jobs.of(f"job/{job}")]


@dataclass
class Gates:
    """Chunks of one transfer that wait on the wire until what is given for them holds."""

    gates: dict[int, Callable[[], bool]]
    """By how many chunks have passed."""
    damaged: int | None = None
    """The chunk that arrives damaged."""
    passed: int = 0

    async def change(self, chunk: bytes) -> bytes:
        if (opens := self.gates.get(self.passed)) is not None:
            await wait_until(opens, f"the wire opens for chunk {self.passed}")
        self.passed += 1
        return bytes(len(chunk)) if self.passed - 1 == self.damaged else chunk


async def test_a_job_that_waits_for_anothers_transfer_says_how_far_that_is(
    site: Site, wire: Wire
) -> None:
    content = dataset(store(site))
    gates = Gates(
        {
            20: lambda: bool(signalled(site, "job-dp2")),
            60: lambda: all(signalled(site, job)[-1] > 0 for job in ("job-dp1", "job-dp2")),
        }
    )
    wire.changes = [gates.change]
    first = asyncio.create_task(stage(site, "job-dp1", content))
    await wait_until(lambda: gates.passed == 20, "the first job's transfer is on its way")
    second = await stage(site, "job-dp2", content)
    assert (await first).fetched_bytes == content.content.size_bytes
    assert second.fetched_bytes == 0
    assert len(wire.positions) == 1, "one transfer serves both"
    for job in ("job-dp1", "job-dp2"):
        said = signalled(site, job)
        assert said == sorted(said)
        assert 0 < said[-1] <= content.content.size_bytes
    totals = {argument.total_bytes for _, argument in site.jobs.of("job/job-dp2")}
    (left,) = totals
    assert 0 < left < content.content.size_bytes, "what was there before is not counted"


async def test_a_transfer_that_goes_back_says_no_less_than_nothing(site: Site, wire: Wire) -> None:
    content = dataset(store(site))
    first = Gates({48: lambda: bool(signalled(site, "job-dp2"))}, damaged=41)
    before: list[int] = []

    def has_said_more() -> bool:
        before.append(len(signalled(site, "job-dp2")))
        return before[-1] > before[0]

    wire.changes = [first.change, Gates({1: has_said_more}).change]
    transfer = asyncio.create_task(stage(site, "job-dp1", content))
    await wait_until(lambda: first.passed == 48, "the damaged part is on the wire")
    await asyncio.gather(transfer, stage(site, "job-dp2", content))
    assert wire.positions[0] == 0 < wire.positions[1] < 480_000, "it went back"
    assert min(signalled(site, "job-dp2")) == 0


async def test_what_comes_from_the_cache_counts_as_its_node_says_it(
    region: Region, wire: Wire
) -> None:
    content = dataset(store(region.site))
    notes = []

    async def slow(chunk: bytes) -> bytes:
        await asyncio.sleep(0.005)
        notes.append(chunk)
        return chunk

    wire.changes = [slow]
    await stage(region.site, "job-dp1", content, cache=region.cache)
    assert notes, "the cache was filled"
    assert {each.total_bytes for each in figures(region.site)} == {content.content.size_bytes}


def test_words_say_amount_rate_and_what_is_left() -> None:
    found = DataProgress(
        worker=0, attempt=1, node_id="nod-1", at=datetime.now(UTC),
        bytes_transferred=1 << 30, total_bytes=3 << 30, bytes_per_s=100_000_000,
    )  # fmt: skip
    assert words_of(found) == "sending data: 1024 of 3072 MiB, 100.0 MB/s, 21 s left"
    output = found.model_copy(update={"is_output": True, "total_bytes": None})
    assert words_of(output) == "storing the output: 1024 MiB, 100.0 MB/s"


async def test_an_output_is_noted_and_not_signalled(site: Site) -> None:
    notes = ProgressNotes(site.node, "job-dp1-0-1", lambda: 7, None, is_output=True)

    async def noted(_: WorkerAssignment) -> WorkerStaged:
        async with noting(notes):
            await wait_until(lambda: len(figures(site)) > 5, "it is noted several times")
        return WorkerStaged()

    await site.do(noted, WorkerAssignment(worker=0, node=site.node))
    assert all(each.is_output and each.total_bytes is None for each in figures(site))
    assert site.jobs.of("job/job-dp1") == []
