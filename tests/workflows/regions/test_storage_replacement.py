"""The storage node of own machines is replaced: the new one is filled, then the old one removed."""

import uuid
from datetime import timedelta

import pytest
from temporalio.client import WorkflowHandle

from tests.waiting import eventually
from tests.workflows.conftest import Stage
from tests.workflows.fake_world import REGION
from tests.workflows.providers.test_provider_lifecycle import reaches
from workflows.contracts import queues
from workflows.contracts.regions import RegionReport, RegionRequest, Replacement
from workflows.contracts.statuses import NodeStatus, ProviderKind
from workflows.effects.regions import StorageNode
from workflows.regions.region_lifecycle import RegionLifecycle
from workflows.regions.storage_replacement import TRIES

Handle = WorkflowHandle[RegionLifecycle, RegionReport]
OLD, NEW = "nod-old", "nod-new"
HELD = {"code/a", "parts/b", "files/c"}


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    module = "workflows.regions.storage_replacement"
    for name in ("SOON", "AGAIN"):
        monkeypatch.setattr(f"{module}.{name}", timedelta(milliseconds=10))
    monkeypatch.setattr(
        "workflows.regions.region_lifecycle.OFFLINE_INTERVAL", timedelta(milliseconds=10)
    )


def add(stage: Stage, node_id: str, status: NodeStatus, fills_from: str = "") -> None:
    stage.world.storage[REGION].append(StorageNode(node_id=node_id, name=node_id, status=status))
    if fills_from:
        stage.world.fills_from[node_id] = fills_from


def turn(stage: Stage, node_id: str, status: NodeStatus) -> None:
    nodes = stage.world.storage[REGION]
    stage.world.storage[REGION] = [
        one.model_copy(update={"status": status}) if one.node_id == node_id else one
        for one in nodes
    ]


def storage(stage: Stage) -> list[str]:
    return [one.node_id for one in stage.world.storage[REGION]]


async def begun(stage: Stage, **changes: object) -> Handle:
    add(stage, OLD, NodeStatus.ACTIVE)
    stage.world.cached[OLD] |= HELD
    request = RegionRequest(
        region_id=REGION,
        account_id="acc-1",
        provider_id="prv-1",
        provider_kind=ProviderKind.PHYSICAL,
        name="home",
        central_storage=True,
    ).model_copy(update=changes)
    handle = await stage.client.start_workflow(
        RegionLifecycle.run, request, id=f"region/{uuid.uuid4().hex}", task_queue=queues.MAIN
    )
    await reaches(stage, REGION, "healthy")
    return handle


async def test_the_new_storage_node_has_all_before_the_old_one_is_removed(stage: Stage) -> None:
    handle = await begun(stage)
    add(stage, NEW, NodeStatus.CONNECTING, fills_from=OLD)
    await handle.signal(RegionLifecycle.replace, Replacement())
    await handle.signal(RegionLifecycle.refresh)
    assert storage(stage) == [OLD, NEW]
    turn(stage, NEW, NodeStatus.ACTIVE)
    await handle.signal(RegionLifecycle.refresh)
    await eventually(lambda: storage(stage) == [NEW], "the old one is removed")
    assert stage.world.cached[NEW] == HELD
    await eventually(
        lambda: "region.storage-replaced" in stage.world.events[REGION], "that is recorded"
    )
    assert stage.world.events[REGION].count("region.storage-replaced") == 1


async def test_a_region_that_knew_of_no_central_storage_replaces_as_well(stage: Stage) -> None:
    handle = await begun(stage, central_storage=False)
    add(stage, NEW, NodeStatus.ACTIVE, fills_from=OLD)
    await handle.signal(RegionLifecycle.replace, Replacement())
    await eventually(lambda: storage(stage) == [NEW], "the old one is removed")
    assert stage.world.cached[NEW] == HELD


async def test_an_old_storage_node_that_goes_away_is_removed_without_a_fill(stage: Stage) -> None:
    handle = await begun(stage)
    turn(stage, OLD, NodeStatus.OFFLINE)
    add(stage, NEW, NodeStatus.ACTIVE, fills_from=OLD)
    await handle.signal(RegionLifecycle.replace, Replacement())
    await eventually(lambda: storage(stage) == [NEW], "the old one is removed")
    assert stage.world.cached[NEW] == set()


async def test_a_fill_that_fails_is_tried_again_and_then_given_up_with_its_reason(
    stage: Stage,
) -> None:
    handle = await begun(stage)
    stage.world.fill_reasons = ["no route to 10.0.0.1"] * TRIES
    add(stage, NEW, NodeStatus.ACTIVE, fills_from=OLD)
    await handle.signal(RegionLifecycle.replace, Replacement())
    await eventually(lambda: storage(stage) == [NEW], "the old one is removed")
    assert stage.world.fill_reasons == []
    assert "region.storage-not-filled" in stage.world.events[REGION]


async def test_a_region_that_comes_back_goes_on_with_its_replacement(stage: Stage) -> None:
    add(stage, NEW, NodeStatus.ACTIVE, fills_from=OLD)
    await begun(stage)
    await eventually(lambda: storage(stage) == [NEW], "the old one is removed")
    assert stage.world.cached[NEW] == HELD
