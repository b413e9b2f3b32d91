"""The watch of a node: each byte stored once, each exit told, nothing held up or filled up."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncGenerator, Iterator
from functools import partial
from pathlib import Path

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.secrets.platform_key import platform_key_fingerprint
from activities.settings import settings
from activities.site import job_signals, watch
from activities.site.answers.frames import LogFrame, RunFrame
from activities.site.collection import collect_log
from activities.site.job_signals import JobSignals
from activities.site.nodes import reach_node
from activities.site.watch import watch_node
from activities.storage.logs import LogStore, log_store
from activities.temporal.next_watch import NEXT_WATCH_AFTER
from tests.activities.sites import Site
from tests.activities.sshd import Sshd
from tests.activities.waiting import wait_for, wait_until
from workflows.contracts.errors import (
    HOST_KEY_MISMATCH,
    NODE_UNREACHABLE,
    OUTCOME_UNKNOWN,
    WORKER_STOPS,
)
from workflows.contracts.jobs import NodeReachable, WorkerExit
from workflows.contracts.nodes import WatchEnded
from workflows.effects.jobs import CollectLog
from workflows.effects.nodes import ReachNode, WatchNode

JOB = f"job-w{os.getpid()}"
"""Its runs are told by their ids, and another module's of the same name may run beside it."""
RUN = f"{JOB}-0-1"
NUMBERS = "i=0; while [ $i -lt 3000 ]; do echo line $i; i=$((i+1)); done"
HALVES = (
    "i=0; while [ $i -lt 60 ]; do echo line $i; i=$((i+1)); "
    "while [ $i -eq 30 ] && [ ! -e more ]; do sleep 0.05; done; done"
)
ECHO = 'mkfifo in; exec 3<>in; while read line <&3; do echo "$line"; done'


def lines(count: int) -> bytes:
    return b"".join(b"line %d\n" % number for number in range(count))


def stored(site: Site, run_id: str = RUN) -> bytes:
    return b"".join(site.logs.stream(run_id))


def longer(site: Site, than: int) -> bool:
    return site.logs.length(RUN) > than


def told(site: Site, count: int) -> bool:
    return len(site.jobs.signals) == count


@contextlib.asynccontextmanager
async def watched(site: Site) -> AsyncGenerator[ActivityEnvironment]:
    """A watch of the node for as long as the block runs."""
    environment, task = site.begin(watch_node, WatchNode(node=site.node))
    try:
        yield environment
        assert not task.done() or task.exception() is None, task.exception()
    finally:
        environment.cancel()
        with contextlib.suppress(asyncio.CancelledError, ApplicationError):
            await task


async def failure(site: Site) -> ApplicationError:
    """How a watch that is begun now fails."""
    with pytest.raises(ApplicationError) as caught:
        async with asyncio.timeout(30):
            await site.do(watch_node, WatchNode(node=site.node))
    return caught.value


def watchers(site: Site) -> list[int]:
    """The watchers on the node, without what one of them is just about to execute."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if b"watch" in words and str(site.agent.archive).encode() in words:
                parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
                found[int(folder.name)] = int(parent)
    return [pid for pid, parent in found.items() if parent not in found]


async def test_a_line_that_is_printed_on_the_node_is_stored_as_it_appears(site: Site) -> None:
    site.agent.run(RUN, ECHO)
    pipe = site.agent.path(RUN, "work/in")
    wait_for(pipe.exists, "the pipe")
    async with watched(site):
        for number in range(7):
            length = site.logs.length(RUN)
            pipe.write_text(f"line {number}\n")
            await wait_until(partial(longer, site, length), "the line")
            assert stored(site) == lines(number + 1)


async def test_the_exit_of_a_run_is_told_to_its_job_when_its_log_is_stored(site: Site) -> None:
    site.agent.run(RUN, f"{NUMBERS}; exit 7")
    async with watched(site):
        await wait_until(lambda: site.jobs.signals, "a signal")
        assert stored(site) == lines(3000)
    [(name, argument)] = site.jobs.of(f"job/{JOB}")
    assert name == "worker_exited"
    assert isinstance(argument, WorkerExit)
    assert (argument.worker, argument.attempt, argument.exit.exit_code) == (0, 1, 7)
    assert argument.exit.log_bytes == len(lines(3000))
    assert argument.exit.elapsed_s > 0


async def test_a_run_that_begins_while_the_node_is_watched_is_found(site: Site) -> None:
    async with watched(site):
        await wait_until(lambda: watchers(site), "the watcher")
        site.agent.run(RUN, "echo found")
        await wait_until(lambda: site.jobs.signals, "a signal")
    assert stored(site) == b"found\n"


async def test_binary_bytes_are_stored_exactly(site: Site) -> None:
    site.agent.run(RUN, "head -c 700000 /dev/urandom; printf '\\0\\377\\n{}'")
    async with watched(site):
        await wait_until(lambda: site.jobs.signals, "a signal")
    assert stored(site) == site.agent.path(RUN, "log").read_bytes()
    assert len(stored(site)) == 700005


async def test_a_watch_whose_connection_is_cut_says_so_and_the_next_resumes_at_the_byte(
    site: Site,
) -> None:
    site.agent.run(RUN, HALVES)
    _, task = site.begin(watch_node, WatchNode(node=site.node))
    await wait_until(lambda: site.logs.length(RUN) == len(lines(30)), "half of the lines")
    site.sshd.cut()
    with pytest.raises(ApplicationError) as caught:
        await task
    assert caught.value.type == NODE_UNREACHABLE
    assert "nod-1" in str(caught.value)
    site.agent.path(RUN, "work/more").touch()
    async with watched(site):
        await wait_until(lambda: site.jobs.signals, "a signal")
    assert stored(site) == lines(60)


async def test_an_exit_is_told_again_by_the_next_watch_and_no_byte_is_stored_twice(
    site: Site,
) -> None:
    site.agent.run(RUN, NUMBERS)
    for expected in (1, 2):
        async with watched(site):
            await wait_until(partial(told, site, expected), "a signal")
    assert stored(site) == lines(3000)


async def test_another_host_key_is_refused_and_only_the_expected_one_is_told(
    site: Site, tmp_path: Path
) -> None:
    other = Sshd(tmp_path / "other").fingerprint()
    site.node = site.node.model_copy(update={"minion_id": other})
    found = await failure(site)
    assert found.type == HOST_KEY_MISMATCH
    assert other in str(found)
    assert site.sshd.fingerprint() not in str(found)


async def test_a_node_where_nothing_listens_is_unreachable(site: Site) -> None:
    site.sshd.stop()
    assert (await failure(site)).type == NODE_UNREACHABLE


async def test_a_watcher_that_falls_silent_is_a_loss(site: Site) -> None:
    _, task = site.begin(watch_node, WatchNode(node=site.node))
    [pid] = await wait_until(lambda: watchers(site), "the watcher")
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(ApplicationError) as caught:
            await task
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert caught.value.type == NODE_UNREACHABLE
    assert "silent" in str(caught.value)


async def test_a_watch_that_is_cancelled_leaves_no_watcher_on_the_node(site: Site) -> None:
    site.agent.run(RUN, "sleep 60")
    environment, task = site.begin(watch_node, WatchNode(node=site.node))
    await wait_until(lambda: watchers(site), "the watcher")
    environment.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await wait_until(lambda: not watchers(site), "the watcher's end")
    assert site.agent.look(RUN)["state"] == "running"


async def test_a_machine_that_has_restarted_unseen_is_not_watched_but_looked_at(
    site: Site,
) -> None:
    known = (await site.do(reach_node, ReachNode(node=site.node))).boot_id
    environment, task = site.begin(watch_node, WatchNode(node=site.node, boot_id=known))
    await wait_until(lambda: watchers(site), "the watcher")
    environment.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ApplicationError, match="has restarted") as caught:
        await site.do(watch_node, WatchNode(node=site.node, boot_id=f"not {known}"))
    assert caught.value.type == OUTCOME_UNKNOWN


async def test_a_watch_ends_when_its_worker_stops_and_when_it_is_time(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment, task = site.begin(watch_node, WatchNode(node=site.node))
    await wait_until(lambda: watchers(site), "the watcher")
    environment.worker_shutdown()
    with pytest.raises(ApplicationError) as stopped:
        await task
    assert stopped.value.type == WORKER_STOPS
    assert stopped.value.next_retry_delay == NEXT_WATCH_AFTER
    monkeypatch.setattr(watch, "RENEW_S", 0.5)
    assert await site.do(watch_node, WatchNode(node=site.node)) == WatchEnded(reason="renewed")


async def test_a_signal_that_is_lost_is_sent_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_signals, "PAUSES_S", (0.05,))
    site.jobs.failures = 3
    site.agent.run(RUN, "true")
    async with watched(site):
        await wait_until(lambda: site.jobs.signals, "a signal")
    assert site.jobs.failures == 0


async def test_the_exit_of_a_job_that_is_gone_disturbs_nobody(site: Site) -> None:
    site.jobs.gone.add("job/job-unknown")
    site.agent.run("job-unknown-0-1", "true")
    site.agent.exit_of("job-unknown-0-1")
    site.agent.run("not-a-run", "echo nobody asked for this")
    site.agent.exit_of("not-a-run")
    site.agent.run(RUN, NUMBERS)
    async with watched(site):
        await wait_until(lambda: site.jobs.of(f"job/{JOB}"), "a signal")
    assert stored(site) == lines(3000)


async def test_the_runs_of_another_control_plane_on_the_same_machine_are_left_alone(
    site: Site,
) -> None:
    site.agent.run("job-foreign-0-1", "echo not for us", owner="SHA256:theirs")
    site.agent.exit_of("job-foreign-0-1")
    async with watched(site):
        site.agent.run(RUN, NUMBERS, owner=platform_key_fingerprint())
        await wait_until(lambda: site.jobs.of(f"job/{JOB}"), "a signal")
    assert site.jobs.of("job/job-foreign") == []
    assert stored(site, "job-foreign-0-1") == b""
    assert stored(site) == lines(3000)


async def test_a_run_whose_supervisor_is_gone_makes_its_job_look(site: Site) -> None:
    site.agent.run(RUN, "sleep 60")
    async with watched(site):
        os.kill(site.agent.document(RUN, "process.json")["supervisor_pid"], signal.SIGKILL)
        await wait_until(lambda: site.jobs.signals, "a signal")
    assert site.jobs.of(f"job/{JOB}")[0] == ("node_reachable", NodeReachable(node_id="nod-1"))


async def test_a_log_that_the_store_has_lost_is_brought_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "STORE_PAUSE_S", 0.01)
    site.agent.run(RUN, HALVES)
    async with watched(site):
        await wait_until(lambda: site.logs.length(RUN) == len(lines(30)), "half of the lines")
        site.logs.delete(JOB)
        site.agent.path(RUN, "work/more").touch()
        await wait_until(lambda: site.jobs.signals, "a signal")
        await wait_until(lambda: site.logs.length(RUN) == len(lines(60)), "the whole log")
    assert stored(site) == lines(60)


async def test_a_job_that_floods_fills_no_memory_while_the_store_is_slow(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    append = LogStore.append

    def slowly(
        logs: LogStore, run_id: str, offset: int, content: bytes, tail: int | None = None
    ) -> int:
        sizes.append(len(content))
        time.sleep(0.05)
        return append(logs, run_id, offset, content, tail)

    monkeypatch.setattr(LogStore, "append", slowly)
    site.agent.run(RUN, "head -c 60000000 /dev/zero")
    async with watched(site):
        await wait_until(lambda: site.jobs.signals, "a signal", 60)
    assert max(sizes) <= watch.WAITING_BYTES + (256 << 10)
    assert site.logs.length(RUN) == 60_000_000


@pytest.fixture
def short_logs(monkeypatch: pytest.MonkeyPatch, site: Site) -> Iterator[int]:
    """Logs of which so many bytes are stored."""
    most = 100_000
    monkeypatch.setenv("BASELOAD_RUN_LOG_MAX_BYTES", str(most))
    settings.cache_clear()
    log_store.cache_clear()
    yield most
    settings.cache_clear()
    log_store.cache_clear()


async def test_a_log_beyond_its_limit_is_cut_and_its_exit_is_told(
    site: Site, short_logs: int
) -> None:
    site.agent.run(RUN, "head -c 20000000 /dev/zero; exit 7")
    async with watched(site):
        await wait_until(lambda: site.jobs.signals, "a signal", 60)
    [(_, argument)] = site.jobs.of(f"job/{JOB}")
    assert isinstance(argument, WorkerExit)
    assert argument.exit.exit_code == 7
    assert stored(site)[:short_logs] == bytes(short_logs)
    assert stored(site)[short_logs:].count(b"[baseload] the log is cut here") == 1
    assert site.logs.length(RUN) < short_logs + 200
    assert (await site.do(collect_log, CollectLog(node=site.node, run_id=RUN))).stored_bytes == (
        site.logs.length(RUN)
    )


async def test_a_log_beyond_its_limit_is_not_sent_to_the_watch_any_more(
    site: Site, short_logs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    take = watch.Watch._take

    def taken(own: watch.Watch, run_id: str, frame: RunFrame, signals: JobSignals) -> None:
        if isinstance(frame, LogFrame):
            read.append(len(frame.payload))
        take(own, run_id, frame, signals)

    monkeypatch.setattr(watch.Watch, "_take", taken)
    site.agent.run(
        RUN, "head -c 200000 /dev/zero; while [ ! -e more ]; do sleep 0.05; done; cat more"
    )
    async with watched(site):
        await wait_until(lambda: site.logs.length(RUN) > short_logs, "the cut")
        site.agent.path(RUN, "work/part").write_bytes(bytes(30_000_000))
        site.agent.path(RUN, "work/part").rename(site.agent.path(RUN, "work/more"))
        await wait_until(lambda: site.jobs.signals, "a signal", 60)
    assert sum(read) < 1_000_000
    read.clear()
    async with watched(site):
        site.agent.run(f"{JOB}-1-1", "echo end")
        await wait_until(lambda: site.jobs.of(f"job/{JOB}")[2:], "the exits")
    assert sum(read) < 1000


async def test_a_log_that_was_stored_by_nobody_is_collected_up_to_its_limit(
    site: Site, short_logs: int
) -> None:
    site.agent.run(RUN, "head -c 20000000 /dev/zero")
    site.agent.exit_of(RUN)
    collected = await site.do(collect_log, CollectLog(node=site.node, run_id=RUN))
    assert short_logs < collected.stored_bytes < short_logs + 200
    assert collected.stored_bytes == site.logs.length(RUN)
