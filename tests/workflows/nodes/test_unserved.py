"""A node of a site that no worker serves any more."""

import asyncio
from dataclasses import replace

import pytest

from tests.waiting import eventually
from tests.workflows.conftest import Stage
from tests.workflows.jobs.test_job_lifecycle import at_running, job_id_of
from tests.workflows.nodes.test_node_lifecycle import Handle, last, reaches
from workflows.contracts import queues
from workflows.contracts.nodes import NodeProgress, NodeRequest
from workflows.contracts.regions import RegionRequest, SiteChange
from workflows.contracts.removals import Removal
from workflows.contracts.statuses import JobStatus, NodeStatus, ProviderKind
from workflows.effects.nodes import list_runs, probe_node, restore_logins
from workflows.effects.regions import check_site
from workflows.nodes.node_lifecycle import NodeLifecycle
from workflows.regions.region_lifecycle import RegionLifecycle

DARK = "reg-dark"


@pytest.fixture(autouse=True)
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same limits, shorter."""
    for place, effect in (
        ("workflows.hosts.connection.probe_node", probe_node),
        ("workflows.nodes.running_jobs.list_runs", list_runs),
        ("workflows.hosts.connection.restore_logins", restore_logins),
        ("workflows.regions.region_lifecycle.check_site", check_site),
    ):
        limits = replace(effect, schedule_to_close_s=1.5, schedule_to_start_s=None)
        monkeypatch.setattr(place, limits)


async def active(stage: Stage) -> Handle:
    """As it goes on after continue-as-new, on a queue that nobody polls."""
    carry = NodeProgress(
        sequence=9, status=NodeStatus.ACTIVE, resume_status=NodeStatus.ACTIVE,
        host="10.0.0.1", port=22, user="root", root=None,
    )  # fmt: skip
    request = NodeRequest(
        node_id="nod-1", account_id="acc-1", region_id=DARK, own_worker=True, name="n1",
        minion_id="SHA256:key", relaxed_requirements=("all",), resumed_from=carry,
    )  # fmt: skip
    return await stage.client.start_workflow(
        NodeLifecycle.run, request, id="node/dark", task_queue=queues.MAIN
    )


async def test_it_goes_offline_naming_the_site_and_its_jobs_are_told(stage: Stage) -> None:
    job = await stage.job()
    await at_running(stage, job)
    await active(stage)
    await reaches(stage, "offline")

    reason = str(stage.world.rows["nod-1"].status_reason)
    assert f"no worker serves the site of {DARK}" in reason
    await eventually(
        lambda: stage.world.statuses[job_id_of(job)][-1] == JobStatus.UNREACHABLE, "it is told"
    )
    assert len(stage.world.live_runs()) == 1


async def test_its_forced_removal_does_not_wait_for_a_worker(stage: Stage) -> None:
    handle = await active(stage)
    await reaches(stage, "offline")
    await handle.signal(NodeLifecycle.remove, Removal(force=True))
    assert (await asyncio.wait_for(handle.result(), 30)).status == "archived"


async def test_its_removal_is_read_while_it_is_still_looked_for(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "workflows.hosts.connection.probe_node", replace(probe_node, schedule_to_close_s=600)
    )
    handle = await active(stage)
    await handle.signal(NodeLifecycle.remove, Removal())
    assert (await asyncio.wait_for(handle.result(), 30)).status == "archived"
    assert last(stage) == "archived"


async def test_its_region_looks_at_once_and_may_be_given_to_a_shared_worker(stage: Stage) -> None:
    region = RegionRequest(
        region_id=DARK, account_id="acc-1", provider_id="prv-1",
        provider_kind=ProviderKind.PHYSICAL, name="dark", resumed_status="healthy",
        own_worker=True,
    )  # fmt: skip
    handle = await stage.client.start_workflow(
        RegionLifecycle.run, region, id=f"region/{DARK}", task_queue=queues.MAIN
    )
    await active(stage)
    await eventually(lambda: stage.world.statuses[DARK] == ["offline"], "the region is offline")

    await handle.signal(RegionLifecycle.change_site, SiteChange(own_worker=False))
    await eventually(lambda: stage.world.statuses[DARK][-1] == "healthy", "a shared worker answers")
    assert stage.world.statuses[DARK] == ["offline", "healthy"]
