"""A removal that Temporal has forgotten the end of removes nothing of what came after it."""

from datetime import timedelta

import pytest
from temporalio.client import WorkflowHandle

from tests.waiting import eventually
from tests.workflows.conftest import Stage
from tests.workflows.fake_world import REGION
from tests.workflows.jobs.test_races import Gate
from tests.workflows.providers.test_provider_lifecycle import HOME, PROVIDER, reaches
from workflows.contracts import queues
from workflows.contracts.base import Contract
from workflows.contracts.removals import Removal
from workflows.primitives.journal import RESOURCE_STATUS, STALE

STARTS: dict[str, tuple[str, Contract, str]] = {
    REGION: ("RegionLifecycle", HOME, "healthy"),
    PROVIDER.provider_id: ("ProviderLifecycle", PROVIDER, "ready"),
}


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    for lifecycle in ("regions.region_lifecycle", "providers.provider_lifecycle"):
        interval = f"workflows.{lifecycle}.REMOVAL_INTERVAL"
        monkeypatch.setattr(interval, timedelta(milliseconds=50))


async def started(stage: Stage, resource_id: str) -> "WorkflowHandle[object, object]":
    workflow, request, status = STARTS[resource_id]
    handle = await stage.client.start_workflow(
        workflow, request, id=f"removed/{resource_id}", task_queue=queues.MAIN
    )
    await reaches(stage, resource_id, status)
    return handle


@pytest.mark.parametrize("resource_id", STARTS)
async def test_a_workflow_that_is_restored_in_a_removal_leaves_what_its_row_has_kept(
    stage: Stage, resource_id: str
) -> None:
    stage.world.dependents[resource_id].add("nod-7")
    handle = await started(stage, resource_id)
    gate = Gate(stage, "remove_dependents")
    await handle.signal("remove", Removal(force=True))
    await gate.entered()
    row = stage.world.rows[resource_id]  # The removal was given up, and the resource has gone on.
    ahead = {"sequence": row.sequence + 7, "status": "healthy"}
    stage.world.rows[resource_id] = row.model_copy(update=ahead)
    gate.open()

    async def is_decided() -> bool:
        found = await handle.describe()
        is_stale = found.typed_search_attributes.get(RESOURCE_STATUS) == STALE
        return is_stale or not stage.world.dependents[resource_id]

    await eventually(is_decided, "the reconciliation can tell that its row is ahead")
    assert stage.world.dependents[resource_id] == {"nod-7"}
