"""An artifact from a datastore: a node of the region reads it, another one where that cannot."""

from datetime import timedelta

import pytest
from temporalio.exceptions import ApplicationError

from tests.workflows.artifacts.test_artifact_lifecycle import DATASET, REQUEST, reaches, start
from tests.workflows.conftest import Stage
from tests.workflows.fake_artifacts import CONTENT
from tests.workflows.fake_world import Machine
from workflows.artifacts import artifact_lifecycle, regional_transfer
from workflows.artifacts.artifact_lifecycle import ArtifactLifecycle
from workflows.contracts import errors
from workflows.contracts.artifacts import RegionalSource, RetryTransfer
from workflows.contracts.base import Contract
from workflows.contracts.lifecycles import ArtifactChanges
from workflows.contracts.removals import Removal

SOURCE = RegionalSource(type="regional", datastore_id="dst-01jd0000000000000000000000", path="a")
REGIONAL = REQUEST.model_copy(update={"source": SOURCE})


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regional_transfer, "PAUSE", timedelta(seconds=0.1))


async def test_a_node_of_the_region_reads_the_source(stage: Stage) -> None:
    handle = await start(stage, REGIONAL)
    await reaches(stage, "ready")
    changes = stage.world.rows[DATASET].changes
    assert isinstance(changes, ArtifactChanges)
    assert changes.content == CONTENT
    assert stage.world.transfers == []  # the control plane itself has read nothing
    await handle.signal(ArtifactLifecycle.remove, Removal())
    await handle.result()


async def test_a_node_that_cannot_be_reached_is_not_the_last_one_asked(stage: Stage) -> None:
    stage.world.machines["nod-0"] = Machine(reachable=False)
    handle = await start(stage, REGIONAL)
    await reaches(stage, "ready")
    assert stage.world.read_by[DATASET] == ["nod-1"]
    await handle.signal(ArtifactLifecycle.remove, Removal())
    await handle.result()


async def test_without_a_node_it_fails_with_that_reason_and_is_tried_again(stage: Stage) -> None:
    machines = dict(stage.world.machines)
    stage.world.machines.clear()
    handle = await start(stage, REGIONAL)
    await reaches(stage, "failed")
    assert "no active node" in str(stage.world.rows[DATASET].status_reason)
    stage.world.machines.update(machines)
    await handle.signal(ArtifactLifecycle.retry, RetryTransfer())
    await reaches(stage, "ready")
    await handle.signal(ArtifactLifecycle.remove, Removal())
    await handle.result()


async def test_a_datastore_that_is_away_is_asked_again_later(stage: Stage) -> None:
    async def away(_: Contract) -> None:
        raise ApplicationError("nfs://nas/lab: cannot be reached", type=errors.DATASTORE_AWAY)

    stage.world.faults["transfer_from_datastore"] = [away, away]
    handle = await start(stage, REGIONAL)
    await reaches(stage, "ready")
    assert stage.world.read_by[DATASET] == ["nod-1"]
    await handle.signal(ArtifactLifecycle.remove, Removal())
    await handle.result()


async def test_what_its_server_refuses_is_asked_of_no_other_node(stage: Stage) -> None:
    async def refuse(_: Contract) -> None:
        raise ApplicationError("link: is a link", type=errors.WORK_REFUSED)

    stage.world.faults["transfer_from_datastore"] = [refuse]
    handle = await start(stage, REGIONAL)
    await reaches(stage, "failed")
    assert stage.world.rows[DATASET].status_reason == "link: is a link"
    await handle.signal(ArtifactLifecycle.remove, Removal())
    await handle.result()


async def test_it_waits_while_its_account_has_all_slots_taken(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifact_lifecycle, "FIRST_SLOT_INTERVAL", timedelta(seconds=0.1))

    async def waits(_: Contract) -> None:
        words = "waits: three transfers are under way"
        raise ApplicationError(words, type=errors.TRANSFER_WAITS, non_retryable=True)

    stage.world.faults["find_datastore_reader"] += [waits] * 3
    handle = await start(stage, REGIONAL)
    await reaches(stage, "ready")
    assert stage.world.read_by[DATASET] == ["nod-1"]
    await handle.signal(ArtifactLifecycle.remove, Removal())
    await handle.result()
