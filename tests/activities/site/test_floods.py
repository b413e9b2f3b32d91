"""Machines whose logs never end, beside a quiet one whose watch is in the same worker process."""

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncIterator
from functools import partial

import pytest
from temporalio.exceptions import ApplicationError

from activities.site import watch
from activities.site.answers.frames import LogFrame, RunFrame
from activities.site.job_signals import JobSignals
from activities.site.run_names import RunNames
from activities.site.watch import watch_node
from tests.activities.site import flooding_node
from tests.activities.sites import REGION, Site
from tests.activities.waiting import wait_for, wait_until
from workflows.contracts.nodes import NodeAddress
from workflows.effects.nodes import WatchNode

QUIET = f"job-quiet{os.getpid()}-0-1"
ECHO = 'mkfifo in; exec 3<>in; while read line <&3; do echo "$line"; done'
FLOODING = 3


def _address(index: int, port: int = 0, minion_id: str = "") -> NodeAddress:
    return NodeAddress(
        node_id=f"nod-flood{index}",
        region_id=REGION,
        host="127.0.0.1",
        port=port,
        minion_id=minion_id,
    )


@contextlib.asynccontextmanager
async def _watched(site: Site, *nodes: NodeAddress) -> AsyncIterator[None]:
    begun = [site.begin(watch_node, WatchNode(node=node)) for node in nodes]
    try:
        yield
        assert not any(task.done() for _, task in begun), [task for _, task in begun]
    finally:
        for environment, task in begun:
            environment.cancel()
            with contextlib.suppress(asyncio.CancelledError, ApplicationError):
                await task


@contextlib.asynccontextmanager
async def _flooding(site: Site) -> AsyncIterator[None]:
    """Machines that flood their watches."""
    runs = [f"job-flood{index}-0-1" for index in range(FLOODING)]
    names = [RunNames(_address(index)).of(run) for index, run in enumerate(runs)]
    command = [sys.executable, "-m", flooding_node.__name__, *names]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    try:
        assert process.stdout is not None
        words = [(await process.stdout.readline()).decode().split() for _ in runs]
        nodes = [_address(index, int(port), mid) for index, (port, mid) in enumerate(words)]
        async with _watched(site, *nodes):
            for run in runs:
                await wait_until(partial(_longer, site, 1 << 20, run), "the flood")
            yield
    finally:
        process.kill()
        await process.communicate()


async def _stored(site: Site, count: int) -> None:
    """Wait until so many lines of the quiet run are stored, one after the other."""
    for number in range(count):
        length = site.logs.length(QUIET)
        site.agent.path(QUIET, "work/in").write_text(f"line {number}\n")
        await wait_until(partial(_longer, site, length), "the line")


def _longer(site: Site, length: int, run_id: str = QUIET) -> bool:
    return site.logs.length(run_id) > length


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The size of each log frame that any watch has read."""
    found: list[int] = []
    take = watch.Watch._take

    def taken(own: watch.Watch, run_id: str, frame: RunFrame, signals: JobSignals) -> None:
        if isinstance(frame, LogFrame):
            found.append(len(frame.payload))
        take(own, run_id, frame, signals)

    monkeypatch.setattr(watch.Watch, "_take", taken)
    return found


async def test_a_quiet_node_is_followed_while_others_flood(
    site: Site, heard: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "LOG_BYTES_PER_S", 1 << 20)
    monkeypatch.setattr(watch, "LOG_BYTES_AT_ONCE", 5 << 20)
    site.agent.run(QUIET, ECHO)
    wait_for(site.agent.path(QUIET, "work/in").exists, "the pipe")
    async with _watched(site, site.node):
        began_s = time.monotonic()
        async with _flooding(site):
            await _stored(site, 8)
            elapsed_s = time.monotonic() - began_s
            most = FLOODING * ((5 << 20) + (1 << 20) * elapsed_s) + 8 * 100
            assert sum(heard) <= most
