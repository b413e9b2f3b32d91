"""The life of a datastore, against a world with state."""

import uuid
from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import WorkflowHandle
from temporalio.exceptions import ApplicationError

from tests.waiting import eventually
from tests.workflows.conftest import Stage
from workflows.contracts import errors, queues
from workflows.contracts.base import Contract
from workflows.contracts.datastores import DatastoreRequest, DatastoreStatus, DatastoreWay
from workflows.contracts.lifecycles import DatastoreChanges
from workflows.contracts.removals import Removal, RemovalProgress
from workflows.datastores import datastore_lifecycle
from workflows.datastores.datastore_lifecycle import DatastoreLifecycle
from workflows.effects.datastores import DatastoreChecked

LAB = "dst-1"
AWAY = DatastoreChecked(
    is_reachable=False, way=DatastoreWay.USER_SPACE, reason="nfs://nas/lab: no answer for 45 s"
)


async def begin(stage: Stage, **changes: Any) -> WorkflowHandle[Any, Any]:
    request = DatastoreRequest(
        datastore_id=LAB, account_id="acc-1", region_id="reg-1", name="lab", **changes
    )
    return await stage.client.start_workflow(
        DatastoreLifecycle.run, request, id=f"datastore/{uuid.uuid4().hex}", task_queue=queues.MAIN
    )


async def reaches(stage: Stage, status: str) -> str | None:
    """Wait for the status, and return its reason."""
    await eventually(lambda: stage.world.statuses[LAB][-1:] == [status], f"it is {status}")
    return stage.world.rows[LAB].status_reason


async def test_a_datastore_is_ready_and_says_how_a_node_reaches_it(stage: Stage) -> None:
    await begin(stage)
    assert await reaches(stage, "ready") is None
    assert stage.world.statuses[LAB] == ["checking", "ready"]
    changes = stage.world.rows[LAB].changes
    assert isinstance(changes, DatastoreChanges)
    assert changes.way is DatastoreWay.USER_SPACE
    assert "node nod-1 (user-space)" in stage.world.told[LAB]["datastore.ready"]


async def test_a_datastore_that_is_away_comes_back_by_itself(stage: Stage) -> None:
    stage.world.shares[LAB] = AWAY
    handle = await begin(stage)
    reason = await reaches(stage, "offline")
    assert reason == "node nod-1 (user-space): nfs://nas/lab: no answer for 45 s"
    await handle.signal(DatastoreLifecycle.refresh)
    del stage.world.shares[LAB]
    await handle.signal(DatastoreLifecycle.refresh)
    assert await reaches(stage, "ready") is None
    assert stage.world.events[LAB].count("datastore.offline") == 1


async def test_what_its_server_refuses_at_first_fails_and_later_is_offline(stage: Stage) -> None:
    refused = AWAY.model_copy(update={"is_refused": True, "reason": "Permission denied"})
    stage.world.shares[LAB] = refused
    handle = await begin(stage)
    assert "Permission denied" in str(await reaches(stage, "failed"))
    await handle.signal(DatastoreLifecycle.remove, Removal())
    assert (await handle.result()).status == "archived"

    again = await begin(stage, sequence=9, resumed_status=DatastoreStatus.OFFLINE)
    await again.signal(DatastoreLifecycle.refresh)
    await eventually(
        lambda: "datastore.checked" in stage.world.events[LAB], "it has been checked again"
    )
    assert stage.world.rows[LAB].status == "offline"


async def test_a_share_that_can_only_be_read_is_ready_with_that_reason(stage: Stage) -> None:
    stage.world.shares[LAB] = DatastoreChecked(
        is_reachable=True, way=DatastoreWay.KERNEL, reason="cannot be written to"
    )
    await begin(stage)
    assert str(await reaches(stage, "ready")).startswith("can only be read: node nod-1 (kernel)")


async def test_without_an_active_node_a_datastore_is_offline_with_that_reason(
    stage: Stage,
) -> None:
    stage.world.machines.clear()
    await begin(stage)
    assert "no active node" in str(await reaches(stage, "offline"))


async def test_a_node_that_cannot_be_reached_is_not_the_last_one_asked(stage: Stage) -> None:
    stage.world.machines["nod-0"] = type(stage.world.machines["nod-1"])(reachable=False)
    await begin(stage)
    await reaches(stage, "ready")
    assert "node nod-1" in stage.world.told[LAB]["datastore.ready"]


async def test_a_datastore_that_jobs_use_stays(stage: Stage) -> None:
    stage.world.dependents[LAB].add("job-1")
    handle = await begin(stage)
    await reaches(stage, "ready")
    await handle.signal(DatastoreLifecycle.remove, Removal())
    await eventually(
        lambda: "datastore.removal-refused" in stage.world.events[LAB], "it is refused"
    )
    assert "job-1" in stage.world.told[LAB]["datastore.removal-refused"]
    # Removing comes first, so that a job that is submitted meanwhile is refused, or is seen.
    assert stage.world.statuses[LAB] == ["checking", "ready", "removing", "ready"]
    assert LAB not in stage.world.forgotten_keys
    stage.world.dependents[LAB].clear()
    await handle.signal(DatastoreLifecycle.remove, Removal())
    assert (await handle.result()).status == "archived"
    assert LAB in stage.world.forgotten_keys


async def test_an_adopted_removal_that_jobs_forbid_is_given_up_and_the_datastore_checked(
    stage: Stage,
) -> None:
    stage.world.dependents[LAB].add("job-1")
    removal = RemovalProgress(removal=Removal())
    await begin(stage, resumed_status=DatastoreStatus.REMOVING, removal=removal)
    await reaches(stage, "ready")
    assert stage.world.events[LAB][:1] == ["datastore.removal-refused"]
    assert LAB not in stage.world.forgotten_keys


async def test_a_password_that_cannot_be_forgotten_is_told_and_tried_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datastore_lifecycle, "FORGET_INTERVAL", timedelta(seconds=0.2))

    async def refuse(_: Contract) -> None:
        raise ApplicationError("the object store is away", type=errors.REFUSED)

    stage.world.faults["forget_datastore"] = [refuse]
    handle = await begin(stage)
    await reaches(stage, "ready")
    await handle.signal(DatastoreLifecycle.remove, Removal())
    assert (await handle.result()).status == "archived"
    assert "the object store is away" in stage.world.told[LAB]["datastore.removing"]
    assert LAB in stage.world.forgotten_keys
