"""What a machine says over SSH concerns itself alone, whatever it says."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.settings import settings
from activities.site import job_signals, signal_rates, watch
from activities.site.answers.frames import BeatFrame
from activities.site.nodes import end_orphaned_runs
from activities.site.run_names import RunNames
from activities.site.watch import watch_node
from activities.storage.logs import log_store
from tests.activities.hostile_sites import HostileSite
from tests.activities.sites import REGION, Jobs
from tests.activities.waiting import wait_until
from tests.failure.hostile_node import HostileNode, Words, answer, frame
from workflows.contracts import errors
from workflows.contracts.utilisation import NodeUtilisation
from workflows.effects.nodes import EndOrphanedRuns, WatchNode

OWN = "job-01jd0000000000000000000001"
VICTIM = "job-01jd0000000000000000000000"


@pytest.fixture
def node(hostile: HostileSite) -> HostileNode:
    return hostile.machine


@pytest.fixture
def jobs(hostile: HostileSite) -> Jobs:
    return hostile.jobs


@contextlib.asynccontextmanager
async def watched(
    node: HostileNode, on_heartbeat: Callable[..., None] = lambda *_: None
) -> AsyncIterator["asyncio.Task[object]"]:
    environment = ActivityEnvironment()
    environment.on_heartbeat = on_heartbeat
    command = WatchNode(node=node.address("nod-hostile", REGION))
    task: asyncio.Task[object] = asyncio.ensure_future(environment.run(watch_node, command))
    try:
        yield task
    finally:
        environment.cancel()
        with contextlib.suppress(asyncio.CancelledError, ApplicationError):
            await task


def files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


async def test_a_run_id_with_a_path_in_it_writes_no_file_outside_the_store(
    node: HostileNode, jobs: Jobs, tmp_path: Path
) -> None:
    paths = ("../../../outside-0-1", f"{tmp_path}/outside-0-1", f"{VICTIM}/../../../../outside-0-1")
    before = files(tmp_path)
    for path in paths:
        node.says["watch"] = Words(frame(b"owned", run_id=path, kind="log", offset=0, length=5))
        with pytest.raises(ApplicationError) as caught:
            await ActivityEnvironment().run(
                watch_node, WatchNode(node=node.address("nod-hostile", REGION))
            )
        assert caught.value.type == errors.PROTOCOL_VIOLATION
    assert files(tmp_path) == before
    assert jobs.signals == []


def said_of(name: str) -> bytes:
    """All that a watcher can say of a run."""
    ended = {"exit_code": 0, "elapsed_s": 3e8}
    return (
        frame(b"forged", run_id=name, kind="log", offset=0, length=6)
        + frame(run_id=name, kind="idle", idle_s=1e6)
        + frame(run_id=name, kind="lost", elapsed_s=1, log_bytes=0)
        + frame(run_id=name, kind="exit", exit=ended, log_bytes=6)
    )


async def test_a_node_says_nothing_of_runs_that_were_placed_on_another(
    node: HostileNode, jobs: Jobs
) -> None:
    own, victim = f"{OWN}-0-1", f"{VICTIM}-0-1"
    here = RunNames(node.address("nod-hostile", REGION))
    names = (
        victim,
        RunNames(node.address("nod-other", REGION)).of(victim),
        RunNames(node.address("nod-hostile", "reg-other")).of(victim),
        here.of(own).replace(own, victim),
        here.of(victim)[:-1],
        f"{victim}-",
        "x",
    )
    said = b"".join(map(said_of, names))
    node.says["watch"] = Words(said + said_of(here.of(own)), stays=True)
    state = {"state": "unknown", "elapsed_s": 0, "exit": None, "log_bytes": 0}
    node.says["status"] = answer(runs=dict.fromkeys(names, state), boot_id="1")
    async with watched(node):
        await wait_until(lambda: len(jobs.signals) == 3, "what it may say")
    assert {job for job, _, _ in jobs.signals} == {f"job/{OWN}"}
    assert {argument.node_id for _, _, argument in jobs.signals} == {"nod-hostile"}
    logs = log_store(settings().storage)
    assert (logs.read(own, 0), logs.length(victim)) == (b"forged", 0)
    assert node.asked[1][1]["known"] == {}


async def test_the_utilisation_of_a_node_is_in_the_heartbeat_of_its_watch(
    node: HostileNode,
) -> None:
    own = RunNames(node.address("nod-hostile", REGION)).of(f"{OWN}-0-1")
    runs = [{"run_id": own, "cpu_percent": 250.0, "memory_bytes": 7}]
    node.says["watch"] = Words(frame(kind="utilisation", gpus=[], runs=runs), stays=True)
    node.says["status"] = answer(runs={}, boot_id="1")
    beats: list[tuple[object, ...]] = []
    async with watched(node, lambda *details: beats.append(details)):
        await wait_until(lambda: any(f"{OWN}-0-1" in str(beat) for beat in beats), "it is told")
    (details,) = beats[-1]
    (run,) = NodeUtilisation.model_validate_json(str(details)).runs
    assert (run.run_id, run.cpu_percent, run.memory_bytes) == (f"{OWN}-0-1", 250.0, 7)


async def test_a_node_reports_no_orphan_that_was_placed_on_another(node: HostileNode) -> None:
    own, victim = f"{OWN}-0-1", f"{VICTIM}-0-1"
    address = node.address("nod-hostile", REGION)
    state = {
        "state": "exited",
        "elapsed_s": 60.0,
        "exit": None,
        "log_bytes": 0,
        "told_before_s": 0.0,
    }
    names = (victim, RunNames(node.address("nod-other", REGION)).of(victim))
    mine = RunNames(address).of(own)
    node.says["orphans"] = answer(ended=dict.fromkeys((*names, mine), state), alive={})
    node.says["status"] = answer(runs={mine: state}, boot_id="1")
    command = EndOrphanedRuns(node=address, among=(*names, mine), live=())
    found = await ActivityEnvironment().run(end_orphaned_runs, command)
    assert [run.run_id for run in found.runs] == [own]


def exits_of(name: str, count: int) -> Words:
    """A watcher that reports the same exit so many times, and stays."""
    return Words(
        frame(run_id=name, kind="exit", exit={"exit_code": 0}, log_bytes=0) * count, stays=True
    )


async def violated(node: HostileNode) -> str:
    """How the watch of the node says that the protocol was broken."""
    async with watched(node) as task:
        with pytest.raises(ApplicationError) as failed:
            await asyncio.wait_for(task, 30)
    assert failed.value.type == errors.PROTOCOL_VIOLATION
    return failed.value.message


async def test_a_node_that_reports_one_run_without_end_breaks_the_protocol(
    node: HostileNode, jobs: Jobs
) -> None:
    name = RunNames(node.address("nod-hostile", REGION)).of(f"{OWN}-0-1")
    node.says["watch"] = exits_of(name, signal_rates.MOST_OF_RUN_PER_MINUTE + 1)
    assert f"reports of {OWN}-0-1 in a minute" in await violated(node)
    assert len(jobs.signals) <= signal_rates.MOST_OF_RUN_PER_MINUTE


async def test_a_node_that_says_too_much_of_runs_that_are_not_there_breaks_the_protocol(
    node: HostileNode, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signal_rates, "MOST_UNKNOWN_PER_MINUTE", 20)
    node.says["watch"] = exits_of(f"{VICTIM}-0-1", 21)
    assert "frames of unknown runs" in await violated(node)
    assert jobs.signals == []


async def test_a_node_that_reports_more_runs_than_there_can_be_breaks_the_protocol(
    node: HostileNode, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signal_rates, "MOST_WAITING", 50)
    jobs.failures = 10**9
    names = RunNames(node.address("nod-hostile", REGION))
    said = (
        frame(run_id=names.of(f"{OWN}-{n}-1"), kind="exit", exit={}, log_bytes=0) for n in range(60)
    )
    node.says["watch"] = Words(b"".join(said), stays=True)
    assert "signals that are not delivered" in await violated(node)


async def test_exits_above_the_rate_of_a_node_are_delayed_and_none_is_lost(
    node: HostileNode, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_signals, "SIGNALS_AT_ONCE", 3)
    names = RunNames(node.address("nod-hostile", REGION))
    said = (
        frame(run_id=names.of(f"{OWN}-{n}-1"), kind="exit", exit={}, log_bytes=0) for n in range(40)
    )
    node.says["watch"] = Words(b"".join(said), stays=True)
    async with watched(node):
        await wait_until(lambda: len(jobs.signals) == 40, "every exit")
    assert {argument.worker for _, _, argument in jobs.signals} == set(range(40))


async def test_frames_above_the_rate_of_a_watch_wait_and_leave_time_to_others(
    node: HostileNode, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = 0

    async def small_frames(*_: object) -> AsyncIterator[BeatFrame]:
        nonlocal read
        while read < 50 * signal_rates.FRAMES_AT_ONCE:
            read += 1
            yield BeatFrame()

    monkeypatch.setattr(watch, "frames", small_frames)
    node.says["status"] = answer(boot_id="1", runs={})
    node.says["watch"] = Words(b"{}\n", stays=True)
    async with watched(node):
        await wait_until(lambda: read >= signal_rates.FRAMES_AT_ONCE, "the burst")
        began_s, more = asyncio.get_running_loop().time(), read + signal_rates.FRAMES_PER_S / 2
        await wait_until(lambda: read >= more, "half a second's frames")
        took_s = asyncio.get_running_loop().time() - began_s
        most = 2 * signal_rates.FRAMES_AT_ONCE + took_s * signal_rates.FRAMES_PER_S
        assert read < most
