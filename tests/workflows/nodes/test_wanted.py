"""What is wanted of a node, and what is announced of it, are rows that it reads when it looks."""

import asyncio
import time
from datetime import timedelta

import pytest
from temporalio.exceptions import ApplicationError

from tests.waiting import eventually
from tests.workflows.conftest import Stage
from tests.workflows.fake_world import Run
from tests.workflows.nodes.test_node_lifecycle import HERE, last, onboarded, reaches
from workflows.contracts import errors
from workflows.contracts.base import Contract
from workflows.contracts.statuses import RunState
from workflows.nodes.node_lifecycle import NodeLifecycle

FLOOD = [HERE.model_copy(update={"host": f"203.0.113.{index}"}) for index in range(1, 7)]


async def slow(_: Contract) -> None:
    await asyncio.sleep(2)
    raise ApplicationError("nod-1: no route", type=errors.NODE_UNREACHABLE)


async def test_a_flood_of_announcements_neither_delays_what_a_person_wants_nor_is_visited(
    stage: Stage,
) -> None:
    handle = await onboarded(stage)
    stage.world.faults["reach_node"] += [slow] * 12
    for announced in FLOOD:
        await stage.announce(handle, announced)
    began = time.monotonic()
    await stage.want(handle, "maintenance")
    await reaches(stage, "maintenance")
    assert time.monotonic() - began < 2
    assert len(stage.world.faults["reach_node"]) == 12


async def test_a_flood_of_announcements_does_not_keep_an_offline_node_from_coming_back(
    stage: Stage,
) -> None:
    handle = await onboarded(stage)
    machine = stage.world.machines["nod-1"]
    machine.reachable = False
    machine.changed.set()
    await reaches(stage, "offline")
    for announced in FLOOD:
        await stage.announce(handle, announced)
    machine.reachable = True
    await reaches(stage, "active")
    assert stage.world.hosts["nod-1"] == HERE.host
    assert stage.world.events["nod-1"].count("node.move-refused") <= 1


async def test_a_flood_of_wakes_does_not_keep_a_node_from_continuing_as_new(
    stage: Stage,
) -> None:
    handle = await onboarded(stage)
    current = stage.client.get_workflow_handle(handle.id)
    first = (await current.describe()).run_id

    async def has_continued() -> bool:
        await asyncio.gather(*(current.signal("wake") for _ in range(50)))
        return (await current.describe()).run_id != first

    await eventually(has_continued, "the node continues as new")
    await stage.want(current, "maintenance")
    await reaches(stage, "maintenance")
    assert stage.world.statuses["nod-1"][-2:] == ["active", "maintenance"]


async def test_of_two_requests_the_last_one_holds_however_late_the_first_arrives(
    stage: Stage,
) -> None:
    handle = await stage.node()
    await reaches(stage, "maintenance")
    stage.world.want("nod-1", "active")  # Its wake is on its way for a long time.
    await stage.want(handle, "maintenance")
    await eventually(lambda: stage.world.seen_revisions.get("nod-1") == 2, "the node has looked")
    await handle.signal(NodeLifecycle.wake)
    await stage.want(handle, "active")
    await reaches(stage, "active")
    assert stage.world.statuses["nod-1"][-2:] == ["maintenance", "active"]


async def test_a_node_is_tidied_by_its_own_clock_while_wakes_keep_coming(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workflows.nodes.upkeep.TIDY_INTERVAL", timedelta(seconds=2))
    handle = await onboarded(stage)
    run = Run(RunState.RUNNING)
    stage.world.machines["nod-1"].runs["job-x-0-1"] = run

    async def is_ended() -> bool:
        await handle.signal(NodeLifecycle.wake)
        return run.state is RunState.EXITED

    await eventually(is_ended, "the orphaned run is ended", limit_s=20)
    assert last(stage) == "active"
