"""A command that does nothing, from its work order to the news of it."""

from typing import Any

import pytest

from activities.site.staging import stage_worker
from tests.activities.site.test_runs import JOB, RUN, look, order, started
from tests.activities.site.test_watch import watched
from tests.activities.sites import Site, isolated
from tests.activities.waiting import wait_until
from workflows.contracts.jobs import WorkerIdle

RENTED = {"lease_id": "lea-1"}
GPU = {"gpu_indices": (0,), "gpu_uuids": ("GPU-0",)}


async def staged_limit(site: Site, **place: Any) -> object:
    """What the node is told of how long its command may do nothing."""
    sealed = isolated(site.node).model_copy(update={"gpu_uuids": place.get("gpu_uuids", ())})
    asked = order(site, "true", idle_timeout_s=900, isolation=sealed)
    assignment = asked.assignment.model_copy(update=place)
    await site.do(stage_worker, asked.model_copy(update={"assignment": assignment}))
    return site.agent.document(RUN, "spec.json")["idle_timeout_s"]


@pytest.mark.parametrize("place", [RENTED, {"ephemeral": True}, {**RENTED, **GPU}])
async def test_on_a_machine_that_is_rented_a_command_may_do_nothing_for_its_limit(
    site: Site, place: dict[str, Any]
) -> None:
    assert await staged_limit(site, **place) == 900


@pytest.mark.parametrize("place", [{}, GPU, {**RENTED, "gpu_indices": (0,)}])
async def test_on_an_owned_machine_or_with_gpus_that_nobody_can_name_it_may_for_ever(
    site: Site, place: dict[str, Any]
) -> None:
    assert await staged_limit(site, **place) is None


async def test_a_command_that_does_nothing_is_told_to_its_job_which_sees_it_too(site: Site) -> None:
    asked = order(site, "sleep 100", idle_timeout_s=1)
    assignment = asked.assignment.model_copy(update=RENTED)
    await site.do(stage_worker, asked.model_copy(update={"assignment": assignment}))
    await started(site, "sleep 100")
    async with watched(site):
        [(job, name, told)] = await wait_until(lambda: site.jobs.signals, "the news")
    assert (job, name) == (f"job/{JOB}", "worker_idle")
    assert isinstance(told, WorkerIdle)
    assert (told.worker, told.attempt) == (0, 1)
    assert told.idle_s >= 0.75, "it is warned before its time is over"
    assert (await look(site)).idle_s >= told.idle_s
