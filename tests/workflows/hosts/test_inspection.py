"""A machine that is not what it was: it is offered as it is now."""

from datetime import timedelta

import pytest
from temporalio.exceptions import ApplicationError

from tests.waiting import eventually
from tests.workflows.conftest import Stage
from tests.workflows.nodes.test_node_lifecycle import last, onboarded, reaches
from workflows.contracts import errors
from workflows.contracts.base import Contract
from workflows.contracts.nodes import Gpu
from workflows.contracts.statuses import NodeStatus

GPUS = tuple(Gpu(index=i, name="NVIDIA A100-SXM4-80GB", uuid=f"GPU-{i}") for i in range(2))


def changed(stage: Stage, **values: object) -> None:
    machine = stage.world.machines["nod-1"]
    machine.hardware = machine.hardware.model_copy(update=values)


async def restarted(stage: Stage) -> None:
    """Away, and back with another boot."""
    machine = stage.world.machines["nod-1"]
    machine.reachable, machine.boot = False, 2
    machine.changed.set()
    await reaches(stage, "offline")
    machine.reachable = True


async def test_a_node_back_from_a_repair_is_offered_with_the_gpus_that_it_has_now(
    stage: Stage,
) -> None:
    changed(stage, gpus=GPUS)
    await onboarded(stage)
    assert len(stage.world.hardware["nod-1"].gpus) == 2

    changed(stage, gpus=GPUS[:1])
    found_when_back: list[int] = []

    async def note(step: Contract) -> None:
        if getattr(step, "status", "") == NodeStatus.ACTIVE:
            found_when_back.append(len(stage.world.hardware["nod-1"].gpus))
        else:
            stage.world.faults["record"].append(note)

    await restarted(stage)
    stage.world.faults["record"].append(note)
    await reaches(stage, "active")
    assert found_when_back[:1] == [1]


async def test_a_node_that_misses_a_requirement_after_a_restart_waits_for_a_person(
    stage: Stage,
) -> None:
    changed(stage, tpm=True)
    handle = await stage.node(relaxed_requirements=("nvme-drives", "sata-drives"))
    await reaches(stage, "maintenance")
    await stage.want(handle, "active")
    await reaches(stage, "active")
    changed(stage, tpm=False)
    await restarted(stage)
    await reaches(stage, "maintenance")
    assert "tpm-2" in str(stage.world.rows["nod-1"].status_reason)

    await stage.want(handle, "active")
    await reaches(stage, "active")
    assert stage.world.rows["nod-1"].status_reason is None


async def test_a_node_whose_driver_is_broken_after_a_restart_takes_no_jobs(stage: Stage) -> None:
    async def broken(_: Contract) -> None:
        raise ApplicationError("nvidia-smi: exit 9", type=errors.NODE_REFUSED, non_retryable=True)

    await onboarded(stage)
    stage.world.faults["inspect_node"].append(broken)
    await restarted(stage)
    await reaches(stage, "maintenance")
    assert "nvidia-smi: exit 9" in str(stage.world.rows["nod-1"].status_reason)


async def test_the_free_disk_of_an_idle_node_is_seen_anew_within_the_interval(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workflows.nodes.upkeep.TIDY_INTERVAL", timedelta(seconds=1))
    changed(stage, free_disk_bytes=9 * 10**9)
    await onboarded(stage)
    changed(stage, free_disk_bytes=10**9)
    await eventually(
        lambda: stage.world.hardware["nod-1"].free_disk_bytes == 10**9, "the row says so"
    )
    assert last(stage) == "active"
    assert stage.world.events["nod-1"].count("node.inspected") == 1
