"""The life of a region in a cloud: all of it is made, or nothing is left."""

import uuid
from datetime import timedelta

import pytest
from temporalio.client import WorkflowHandle
from temporalio.exceptions import ApplicationError

from tests.waiting import eventually
from tests.workflows.conftest import Stage
from tests.workflows.fake_world import REGION
from tests.workflows.providers.test_provider_lifecycle import reaches
from workflows.contracts import errors, queues
from workflows.contracts.base import Contract
from workflows.contracts.regions import RegionReport, RegionRequest, Replacement
from workflows.contracts.removals import Removal
from workflows.contracts.statuses import NodeStatus, ProviderKind
from workflows.regions.region_lifecycle import RegionLifecycle

Handle = WorkflowHandle[RegionLifecycle, RegionReport]
REQUEST = RegionRequest(
    region_id=REGION,
    account_id="acc-1",
    provider_id="prv-9",
    provider_kind=ProviderKind.GCP,
    name="burst",
    cloud_region="us-central1",
)


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "workflows.regions.region_lifecycle.REMOVAL_INTERVAL", timedelta(milliseconds=50)
    )


async def begun(stage: Stage, **changes: object) -> Handle:
    request = RegionRequest.model_validate({**REQUEST.model_dump(), **changes})
    return await stage.client.start_workflow(
        RegionLifecycle.run, request, id=f"region/{uuid.uuid4().hex}", task_queue=queues.MAIN
    )


async def healthy(stage: Stage) -> Handle:
    handle = await begun(stage)
    await reaches(stage, REGION, "healthy")
    return handle


def nothing_is_left(stage: Stage) -> bool:
    return not stage.world.resources[REGION] and not stage.world.storage[REGION]


async def refuse(_: Contract) -> None:
    raise ApplicationError("the cloud says no", type=errors.REFUSED)


async def test_a_region_is_healthy_with_its_network_and_storage_and_leaves_nothing(
    stage: Stage,
) -> None:
    handle = await healthy(stage)
    assert stage.world.resources[REGION] == {"subnetwork"}
    assert len(stage.world.storage[REGION]) == 1
    await handle.signal(RegionLifecycle.remove, Removal())
    assert (await handle.result()).status == "archived"
    assert nothing_is_left(stage)
    assert stage.world.statuses[REGION] == ["provisioning", "healthy", "removing", "archived"]


@pytest.mark.parametrize(
    "effect", ["ensure_region_resource", "find_storage_claim", "add_storage_node"]
)
async def test_a_part_that_is_refused_fails_the_region_with_nothing_left(
    stage: Stage, effect: str
) -> None:
    stage.world.faults[effect].append(refuse)
    handle = await begun(stage)
    await reaches(stage, REGION, "failed")
    assert stage.world.rows[REGION].status_reason == "the cloud says no"
    assert nothing_is_left(stage)
    await handle.signal(RegionLifecycle.refresh)
    await handle.signal(RegionLifecycle.remove, Removal())
    assert (await handle.result()).status == "archived"
    assert "healthy" not in stage.world.statuses[REGION]


async def test_a_storage_node_that_fails_fails_the_region_with_its_reason(stage: Stage) -> None:
    stage.world.storage_comes_as = NodeStatus.CONNECTING
    handle = await begun(stage)
    await eventually(lambda: stage.world.storage_added == 1, "its storage is added")
    stage.world.turn_storage(NodeStatus.FAILED, "us-central1-a has none left")
    await handle.signal(RegionLifecycle.refresh)
    await reaches(stage, REGION, "failed")
    assert "us-central1-a has none left" in str(stage.world.rows[REGION].status_reason)
    assert nothing_is_left(stage)


async def test_what_cannot_be_undone_is_named(stage: Stage) -> None:
    stage.world.faults["add_storage_node"].append(refuse)
    stage.world.faults["remove_region_resource"].append(refuse)
    handle = await begun(stage)
    await reaches(stage, REGION, "failed")
    told = "the cloud says no; and subnetwork: the cloud says no"
    assert stage.world.rows[REGION].status_reason == told
    await handle.signal(RegionLifecycle.remove, Removal())
    assert (await handle.result()).status == "archived"
    assert nothing_is_left(stage)


async def test_a_region_is_as_well_as_its_storage(stage: Stage) -> None:
    handle = await healthy(stage)
    stage.world.turn_storage(NodeStatus.OFFLINE, "it was preempted")
    await handle.signal(RegionLifecycle.refresh)
    await reaches(stage, REGION, "offline")
    assert "it was preempted" in str(stage.world.rows[REGION].status_reason)
    stage.world.turn_storage(NodeStatus.ACTIVE)
    await handle.signal(RegionLifecycle.refresh)
    await reaches(stage, REGION, "healthy")


async def test_storage_is_replaced_and_filled_and_the_region_stays(stage: Stage) -> None:
    handle = await healthy(stage)
    stage.world.cached["nod-store-1"] |= {"code/a", "parts/b"}
    await handle.signal(RegionLifecycle.replace, Replacement())
    await eventually(
        lambda: "region.storage-replaced" in stage.world.events[REGION], "it is replaced"
    )
    assert [node.node_id for node in stage.world.storage[REGION]] == ["nod-store-2"]
    assert stage.world.cached["nod-store-2"] == {"code/a", "parts/b"}
    assert stage.world.statuses[REGION] == ["provisioning", "healthy"]


async def test_storage_whose_lease_ends_is_replaced_once(stage: Stage) -> None:
    handle = await healthy(stage)
    ends = Replacement(requested_by="nod-store-1", node_id="nod-store-1")
    for _ in range(2):
        await handle.signal(RegionLifecycle.replace, ends)
        await eventually(
            lambda: "region.storage-replaced" in stage.world.events[REGION], "it is replaced"
        )
    await handle.signal(RegionLifecycle.remove, Removal())
    await handle.result()
    assert stage.world.events[REGION].count("region.storage-replaced") == 1
    assert stage.world.storage_added == 2


def newest_becomes(stage: Stage, status: NodeStatus) -> None:
    nodes = stage.world.storage[REGION]
    nodes[-1] = nodes[-1].model_copy(update={"status": status})


def storage_ids(stage: Stage) -> list[str]:
    return [node.node_id for node in stage.world.storage[REGION]]


async def replaces(stage: Stage, handle: Handle) -> None:
    """The region waits for the second storage node."""
    stage.world.storage_comes_as = NodeStatus.CONNECTING
    await handle.signal(RegionLifecycle.replace, Replacement())
    await eventually(lambda: "region.storage-added" in stage.world.events[REGION][-1:], "it waits")
    assert storage_ids(stage) == ["nod-store-1", "nod-store-2"]


@pytest.mark.parametrize(
    ("becomes", "stays"),
    [(NodeStatus.ACTIVE, "nod-store-2"), (NodeStatus.FAILED, "nod-store-1")],
)
async def test_a_replacement_that_is_forgotten_half_way_leaves_one_storage_node(
    stage: Stage, becomes: NodeStatus, stays: str
) -> None:
    first = await healthy(stage)
    await replaces(stage, first)
    await first.terminate("Temporal forgets it")
    row = {"resumed_status": "healthy", "sequence": stage.world.rows[REGION].sequence}
    handle = await begun(stage, **row)
    await handle.signal(RegionLifecycle.refresh)
    newest_becomes(stage, becomes)
    await handle.signal(RegionLifecycle.refresh)
    await eventually(lambda: storage_ids(stage) == [stays], "one is left")
    assert stage.world.storage_added == 2
    assert stage.world.rows[REGION].status == "healthy"


async def test_a_replacement_that_a_refused_removal_breaks_off_leaves_one_storage_node(
    stage: Stage,
) -> None:
    stage.world.dependents[REGION].add("nod-7")
    handle = await healthy(stage)
    await replaces(stage, handle)
    await handle.signal(RegionLifecycle.remove, Removal())
    await eventually(lambda: "region.removal-refused" in stage.world.events[REGION], "it stays")
    newest_becomes(stage, NodeStatus.ACTIVE)
    await handle.signal(RegionLifecycle.refresh)
    await eventually(lambda: storage_ids(stage) == ["nod-store-2"], "one is left")
    assert stage.world.storage_added == 2
    assert stage.world.resources[REGION] == {"subnetwork"}, "the region stays"


async def test_storage_that_a_person_and_its_lease_have_replaced_meanwhile_is_replaced_once(
    stage: Stage,
) -> None:
    handle = await healthy(stage)
    await replaces(stage, handle)
    for reason in (Replacement(node_id="nod-store-1"), Replacement(), Replacement()):
        await handle.signal(RegionLifecycle.replace, reason)
    stage.world.storage_comes_as = NodeStatus.ACTIVE
    newest_becomes(stage, NodeStatus.ACTIVE)
    await handle.signal(RegionLifecycle.refresh)
    there = stage.world.events[REGION]
    await eventually(lambda: "region.storage-replaced" in there, "it is replaced")
    assert storage_ids(stage) == ["nod-store-2"]
    await handle.signal(RegionLifecycle.remove, Removal())
    await handle.result()
    assert stage.world.events[REGION].count("region.storage-replaced") == 1
    assert stage.world.storage_added == 2


async def test_a_node_that_asks_while_another_is_replaced_is_replaced_after_it(
    stage: Stage,
) -> None:
    handle = await healthy(stage)
    await replaces(stage, handle)
    await handle.signal(RegionLifecycle.replace, Replacement(node_id="nod-store-1"))
    await handle.signal(RegionLifecycle.replace, Replacement(node_id="nod-store-2"))
    stage.world.storage_comes_as = NodeStatus.ACTIVE
    newest_becomes(stage, NodeStatus.ACTIVE)
    await handle.signal(RegionLifecycle.refresh)
    await eventually(lambda: storage_ids(stage) == ["nod-store-3"], "both are replaced")
    assert stage.world.storage_added == 3


async def test_a_request_after_a_replacement_that_failed_is_tried(stage: Stage) -> None:
    handle = await healthy(stage)
    await replaces(stage, handle)
    await handle.signal(RegionLifecycle.replace, Replacement(node_id="nod-store-1"))
    stage.world.storage_comes_as = NodeStatus.ACTIVE
    newest_becomes(stage, NodeStatus.FAILED)
    await handle.signal(RegionLifecycle.refresh)
    await eventually(lambda: storage_ids(stage) == ["nod-store-3"], "it is replaced all the same")
    assert stage.world.storage_added == 3
    assert stage.world.rows[REGION].status == "healthy"


async def test_a_request_that_is_repeated_after_a_replacement_was_forgotten_goes_on_with_that(
    stage: Stage,
) -> None:
    first = await healthy(stage)
    await replaces(stage, first)
    await first.terminate("Temporal forgets it")
    row = {"resumed_status": "healthy", "sequence": stage.world.rows[REGION].sequence}
    handle = await begun(stage, **row)
    await handle.signal(RegionLifecycle.replace, Replacement(node_id="nod-store-1"))
    await handle.signal(RegionLifecycle.refresh)
    newest_becomes(stage, NodeStatus.ACTIVE)
    await handle.signal(RegionLifecycle.refresh)
    await eventually(lambda: storage_ids(stage) == ["nod-store-2"], "one is left")
    assert stage.world.storage_added == 2


async def test_storage_is_claimed_anew_when_it_is_replaced(stage: Stage) -> None:
    handle = await healthy(stage)
    first = stage.world.storage_claim
    dearer = first.offers[0].model_copy(update={"microcredits_per_hour": 3_000_000})
    stage.world.storage_claim = first.model_copy(update={"offers": (dearer,)})
    await handle.signal(RegionLifecycle.replace, Replacement())
    await eventually(
        lambda: "region.storage-replaced" in stage.world.events[REGION], "it is replaced"
    )
    assert stage.world.storage_claims == [first, stage.world.storage_claim]


@pytest.mark.parametrize("effect", ["find_storage_claim", "add_storage_node"])
async def test_storage_stays_when_another_is_refused(stage: Stage, effect: str) -> None:
    handle = await healthy(stage)
    stage.world.faults[effect].append(refuse)
    await handle.signal(RegionLifecycle.replace, Replacement())
    await eventually(
        lambda: "region.storage-not-replaced" in stage.world.events[REGION], "it is told"
    )
    assert "the cloud says no" in stage.world.told[REGION]["region.storage-not-replaced"]
    assert [node.node_id for node in stage.world.storage[REGION]] == ["nod-store-1"]
    assert stage.world.statuses[REGION] == ["provisioning", "healthy"]


async def test_storage_that_cannot_be_replaced_stays(stage: Stage) -> None:
    handle = await healthy(stage)
    stage.world.storage_comes_as = NodeStatus.FAILED
    await handle.signal(RegionLifecycle.replace, Replacement())
    await eventually(
        lambda: "region.storage-not-replaced" in stage.world.events[REGION], "it is told"
    )
    assert [node.node_id for node in stage.world.storage[REGION]] == ["nod-store-1"]
    assert stage.world.statuses[REGION] == ["provisioning", "healthy"]


async def test_a_region_with_nodes_of_others_than_its_own_stays_unless_forced(
    stage: Stage,
) -> None:
    stage.world.dependents[REGION].add("nod-7")
    handle = await healthy(stage)
    await handle.signal(RegionLifecycle.remove, Removal())
    await eventually(lambda: "region.removal-refused" in stage.world.events[REGION], "it stays")
    assert "has nod-7: stays" in stage.world.told[REGION]["region.removal-refused"]
    await handle.signal(RegionLifecycle.remove, Removal(force=True))
    assert (await handle.result()).status == "archived"
    assert nothing_is_left(stage)


async def test_a_region_removed_while_it_is_made_leaves_nothing(stage: Stage) -> None:
    stage.world.storage_comes_as = NodeStatus.CONNECTING
    handle = await begun(stage)
    await eventually(lambda: stage.world.storage_added == 1, "its storage is added")
    await handle.signal(RegionLifecycle.remove, Removal())
    assert (await handle.result()).status == "archived"
    assert nothing_is_left(stage)
