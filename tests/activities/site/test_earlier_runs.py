"""What an earlier node has left on a machine, over a real connection and with the real agent."""

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from activities.agent.host import cgroups, process_tree, processes
from activities.agent.runs import clean
from activities.secrets.platform_key import platform_key_fingerprint
from activities.site.node_client import NodeClient
from activities.site.nodes import MOST_EARLIER_RUNS, end_orphaned_runs, list_runs
from tests.activities.agent.agent_process import processes_of
from tests.activities.sites import Site, name_on
from tests.activities.waiting import wait_until
from workflows.effects.nodes import EndOrphanedRuns, ListRuns, OrphanedRunsEnded

EARLIER, THEIRS = "job-earlier-0-1", "job-theirs-2-3"


@contextmanager
def unkillable(site: Site, monkeypatch: pytest.MonkeyPatch, name: str) -> Iterator[None]:
    """The agent's own code ends orphaned runs in this process, and its signals miss this run.

    Nothing else can stand in for a process in uninterruptible sleep, which needs a broken device.
    """
    call, send = NodeClient.call, process_tree.send
    asleep = processes_of(name)

    def spare(targets: list[processes.Process], number: int) -> None:
        send([one for one in targets if one.pid not in asleep], number)

    async def here(self: NodeClient, verb: str, asked: Any, model: Any, **more: Any) -> Any:
        if verb != "orphans":
            return await call(self, verb, asked, model, **more)
        request = {**asked, "root": str(site.agent.root)}
        answer = await asyncio.to_thread(clean.orphans, request)
        return model.model_validate_json(json.dumps(answer))

    with monkeypatch.context() as patched:
        patched.setattr(NodeClient, "call", here)
        patched.setattr(process_tree, "KILL_S", 0.1)
        patched.setattr(process_tree, "send", spare)
        patched.setattr(cgroups, "folders_of", lambda _: [])
        yield


async def runs_without_supervisor(site: Site, name: str) -> None:
    """A run of this installation, which an earlier node has named, and whose supervisor dies."""
    site.agent.run(name, "exec sleep 600", owner=platform_key_fingerprint())
    await wait_until(lambda: processes_of(name), f"{name} to run")
    supervisor = site.agent.document(name, "process.json")["supervisor_pid"]
    os.kill(supervisor, signal.SIGKILL)
    await wait_until(lambda: site.agent.look(name)["state"] == "lost", "the loss to show")


async def test_a_run_of_an_earlier_node_that_cannot_be_ended_is_told_until_it_has_ended(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = name_on(site.node.model_copy(update={"node_id": "nod-earlier"}), EARLIER)
    await runs_without_supervisor(site, left)
    among = (await site.do(list_runs, ListRuns(node=site.node))).run_ids
    assert among == (left,)
    command = EndOrphanedRuns(node=site.node, among=among, live=())

    with unkillable(site, monkeypatch, left):
        found = await site.do(end_orphaned_runs, command)
    assert found.runs == (), "its name proves nothing of a job, so it is charged to nobody"
    [run] = found.earlier_runs
    assert run.name == left
    assert "still alive" in run.alive
    assert processes_of(left)

    assert await site.do(end_orphaned_runs, command) == OrphanedRunsEnded()
    assert processes_of(left) == []


async def test_a_run_of_another_installation_is_neither_ended_nor_told(site: Site) -> None:
    theirs = name_on(site.node.model_copy(update={"node_id": "nod-theirs"}), THEIRS)
    site.agent.run(theirs, "exec sleep 600", owner="SHA256:another-installation")
    await wait_until(lambda: processes_of(theirs), f"{theirs} to run")
    among = (await site.do(list_runs, ListRuns(node=site.node))).run_ids
    assert among == (theirs,)
    command = EndOrphanedRuns(node=site.node, among=among, live=())
    assert await site.do(end_orphaned_runs, command) == OrphanedRunsEnded()
    assert processes_of(theirs)


async def test_a_machine_that_names_thousands_of_runs_has_some_of_them_told(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = tuple(f"job-many{number}-0-1-x" for number in range(1000))
    living = {
        "state": "lost", "elapsed_s": 1.0, "exit": None, "log_bytes": 0, "why": "still alive: [7]"
    }  # fmt: skip

    async def call(_: NodeClient, verb: str, __: Any, model: Any, **___: Any) -> Any:
        runs = {"ended": {}, "alive": dict.fromkeys(names, living)}
        return model.model_validate_json(json.dumps(runs if verb == "orphans" else {}))

    monkeypatch.setattr(NodeClient, "call", call)
    command = EndOrphanedRuns(node=site.node, among=names, live=())
    found = await site.do(end_orphaned_runs, command)
    assert [run.name for run in found.earlier_runs] == sorted(names)[:MOST_EARLIER_RUNS]
