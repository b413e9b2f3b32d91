"""The lives of providers and regions, against a world with state."""

import uuid

from temporalio.exceptions import ApplicationError

from tests.waiting import eventually
from tests.workflows.conftest import Stage
from tests.workflows.world import REGION
from workflows.contracts import errors, queues
from workflows.contracts.base import Contract
from workflows.contracts.provider import Check, ProviderRequest, RegionRequest, Removal
from workflows.contracts.states import ProviderKind
from workflows.provider import ProviderLifecycle
from workflows.region import RegionLifecycle

PROVIDER = ProviderRequest(provider_id="prv-1", account_id="acc-1", kind=ProviderKind.PHYSICAL)
HOME = RegionRequest(
    region_id=REGION,
    account_id="acc-1",
    provider_id="prv-1",
    provider_kind=ProviderKind.PHYSICAL,
    name="home",
)


async def reaches(stage: Stage, resource_id: str, status: str) -> None:
    await eventually(
        lambda: stage.world.statuses[resource_id][-1:] == [status], f"{resource_id} is {status}"
    )


async def test_a_provider_fails_with_what_to_do_and_a_recheck_mends_it(stage: Stage) -> None:
    stage.world.checks = (Check(name="platform-key", status="failed", detail="make one"),)
    handle = await stage.client.start_workflow(
        ProviderLifecycle.run, PROVIDER, id=f"provider/{uuid.uuid4().hex}", task_queue=queues.MAIN
    )
    await reaches(stage, "prv-1", "failed")
    assert stage.world.rows["prv-1"].status_reason == "platform-key: make one"

    stage.world.checks = (Check(name="platform-key", status="passed"),)
    await handle.signal(ProviderLifecycle.recheck)
    await reaches(stage, "prv-1", "ready")


async def test_a_provider_with_regions_stays_unless_forced(stage: Stage) -> None:
    stage.world.dependents["prv-1"].add(REGION)
    handle = await stage.client.start_workflow(
        ProviderLifecycle.run, PROVIDER, id=f"provider/{uuid.uuid4().hex}", task_queue=queues.MAIN
    )
    await handle.signal(ProviderLifecycle.remove, Removal())
    await eventually(
        lambda: "provider.removal-refused" in stage.world.events["prv-1"], "it is refused"
    )
    await reaches(stage, "prv-1", "ready")

    await handle.signal(ProviderLifecycle.remove, Removal(force=True))
    assert (await handle.result()).status == "archived"
    assert stage.world.dependents["prv-1"] == set()


async def test_a_region_without_a_worker_on_its_queue_is_offline_not_failed(stage: Stage) -> None:
    async def nobody(_: Contract) -> None:
        raise ApplicationError("no worker", type=errors.REFUSED)

    stage.world.faults["check_site"].append(nobody)
    handle = await stage.client.start_workflow(
        RegionLifecycle.run, HOME, id=f"region/{uuid.uuid4().hex}", task_queue=queues.MAIN
    )
    await reaches(stage, REGION, "offline")
    await handle.signal(RegionLifecycle.remove, Removal())
    assert (await handle.result()).status == "archived"


async def test_a_region_is_healthy_when_its_site_answers(stage: Stage) -> None:
    await stage.client.start_workflow(
        RegionLifecycle.run, HOME, id=f"region/{uuid.uuid4().hex}", task_queue=queues.MAIN
    )
    await reaches(stage, REGION, "healthy")
    assert stage.world.statuses[REGION] == ["provisioning", "healthy"]
