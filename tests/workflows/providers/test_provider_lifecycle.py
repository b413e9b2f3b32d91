"""The lives of providers and regions, against a world with state."""

import uuid
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest
from temporalio.client import WorkflowHandle
from temporalio.exceptions import ApplicationError

from tests.waiting import eventually
from tests.workflows.conftest import Stage
from tests.workflows.fake_world import REGION
from workflows.contracts import errors, queues
from workflows.contracts.base import Contract
from workflows.contracts.lifecycles import ProviderChanges
from workflows.contracts.providers import (
    Check,
    PricesState,
    ProviderReport,
    ProviderRequest,
)
from workflows.contracts.regions import RegionRequest
from workflows.contracts.removals import Removal
from workflows.contracts.statuses import ProviderKind
from workflows.providers import machine_reconciliation
from workflows.providers.provider_lifecycle import ProviderLifecycle
from workflows.regions.region_lifecycle import RegionLifecycle
from workflows.rules.catalogue.providers import traits_of

CLOUD = ProviderRequest(provider_id="prv-9", account_id="acc-1", kind=ProviderKind.GCP)
EVERY_PART = set(traits_of(ProviderKind.GCP).resources)
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


async def test_what_a_marketplace_offers_is_known_once_its_provider_is_ready(stage: Stage) -> None:
    stage.world.cloud.untold_offers = {"offer-1"}
    request = CLOUD.model_copy(update={"kind": ProviderKind.RUNPOD})
    await stage.client.start_workflow(
        ProviderLifecycle.run, request, id=f"provider/{uuid.uuid4().hex}", task_queue=queues.MAIN
    )
    await eventually(lambda: stage.world.cloud.known_offers == {"offer-1"}, "its offers are known")
    assert stage.world.statuses[CLOUD.provider_id][-1] == "ready"


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


async def enabled(stage: Stage) -> WorkflowHandle[ProviderLifecycle, ProviderReport]:
    """A cloud provider, begun."""
    return await stage.client.start_workflow(
        ProviderLifecycle.run, CLOUD, id=f"provider/{uuid.uuid4().hex}", task_queue=queues.MAIN
    )


async def test_people_are_told_once_that_prices_stay_and_once_that_they_do_not(
    stage: Stage,
) -> None:
    handle = await enabled(stage)
    await reaches(stage, CLOUD.provider_id, "ready")
    told = stage.world.events[CLOUD.provider_id]
    for trouble in ("", "the API is off", "the API is off", "", "", "it is off again"):
        await handle.signal(ProviderLifecycle.prices_state, PricesState(trouble=trouble))
    stale, read = "provider.prices-stale", "provider.prices-read"
    await eventually(lambda: told.count(stale) == 2, "all of it is heard")
    assert [event for event in told if event in (stale, read)] == [stale, read, stale]
    assert "it is off again" in stage.world.told[CLOUD.provider_id][stale]
    assert stage.world.statuses[CLOUD.provider_id][-1] == "ready"


async def test_a_provider_that_is_asked_to_reconcile_does_not_wait_for_its_timer(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_reconciliation, "RECONCILIATION_INTERVAL", timedelta(days=1000))
    handle = await enabled(stage)
    for name in ("baseload-lost", "baseload-lost-too"):
        stage.world.cloud.stray.add(name)
        await handle.signal(ProviderLifecycle.reconcile)
        await eventually(lambda found=name: stage.world.cloud.swept[found] == 1, "it is ended")  # type: ignore[misc]
    await handle.signal(ProviderLifecycle.remove, Removal())
    assert (await handle.result()).status == "archived"


async def test_each_provider_is_reconciled_by_its_own_timer_and_people_are_told_when_it_is_not(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_reconciliation, "RECONCILIATION_INTERVAL", timedelta(seconds=0.1))
    monkeypatch.setattr(machine_reconciliation, "UNRECONCILED_LIMIT", timedelta(seconds=0.3))
    healthy = CLOUD.model_copy(update={"provider_id": "prv-8"})
    is_away = True

    async def away(asked: Contract) -> None:
        if is_away and getattr(asked, "provider_id", "") == CLOUD.provider_id:
            raise ApplicationError("no route to it", type=errors.REFUSED)

    stage.world.faults["reconcile_machines"] = [away] * 1000
    handle = await enabled(stage)
    await stage.client.start_workflow(
        ProviderLifecycle.run, healthy, id=f"provider/{uuid.uuid4().hex}", task_queue=queues.MAIN
    )
    told = stage.world.events[CLOUD.provider_id]
    lost, again = "provider.not-reconciled", "provider.reconciled"
    await eventually(lambda: lost in told, "people are told")
    stage.world.cloud.stray.add("baseload-late")
    await eventually(lambda: stage.world.cloud.swept["baseload-late"] == 1, "the other one goes on")
    assert "no route to it" in stage.world.told[CLOUD.provider_id][lost]
    is_away = False
    await eventually(lambda: again in told, "people are told that it is mended")
    assert [event for event in told if event in (lost, again)] == [lost, again]
    assert not {lost, again} & set(stage.world.events[healthy.provider_id])
    await handle.signal(ProviderLifecycle.remove, Removal())
    assert (await handle.result()).status == "archived"


def refuses(resource: str) -> Callable[[Contract], Awaitable[None]]:
    """A fault: this part is refused, others are not."""

    async def refuse(asked: Contract) -> None:
        if getattr(asked, "resource", "") == resource:
            raise ApplicationError(f"{resource} is in use", type=errors.REFUSED)

    return refuse


def recorded_parts(stage: Stage) -> list[str]:
    """What the row says that there is in the cloud."""
    changes = stage.world.rows["prv-9"].changes
    assert isinstance(changes, ProviderChanges)
    return [resource.name for resource in changes.resources or ()]


async def test_a_cloud_provider_is_ready_with_all_of_its_parts(stage: Stage) -> None:
    handle = await enabled(stage)
    await reaches(stage, "prv-9", "ready")
    assert stage.world.resources["prv-9"] == EVERY_PART
    assert set(recorded_parts(stage)) == EVERY_PART

    await handle.signal(ProviderLifecycle.remove, Removal())
    assert (await handle.result()).status == "archived"
    assert stage.world.resources["prv-9"] == set()
    assert recorded_parts(stage) == []
    assert stage.world.forgotten_keys == {"prv-9"}
    told = stage.world.told["prv-9"]["provider.archived"]
    assert "network of prv-9" in told
    assert "the service account" in told


async def test_a_check_that_fails_leaves_nothing_made_and_says_the_fix(stage: Stage) -> None:
    lacking = Check(name="api-pubsub", status="failed", detail="is not enabled", fix="https://on")
    stage.world.checks = (lacking,)
    await enabled(stage)
    await reaches(stage, "prv-9", "failed")
    assert stage.world.rows["prv-9"].status_reason == "api-pubsub: is not enabled (https://on)"
    assert not stage.world.resources["prv-9"]


async def test_a_part_that_is_refused_fails_with_the_clouds_words_and_a_recheck_goes_on(
    stage: Stage,
) -> None:
    stage.world.faults["ensure_provider_resource"] += [refuses("network")] * len(EVERY_PART)
    handle = await enabled(stage)
    await reaches(stage, "prv-9", "failed")
    assert stage.world.rows["prv-9"].status_reason == "network is in use"
    assert recorded_parts(stage) == ["topic", "subscription", "sink", "publisher"]
    stage.world.faults["ensure_provider_resource"].clear()
    await handle.signal(ProviderLifecycle.recheck)
    await reaches(stage, "prv-9", "ready")
    assert stage.world.resources["prv-9"] == EVERY_PART


async def test_a_key_that_stops_working_turns_the_provider_failed_and_touches_nothing(
    stage: Stage,
) -> None:
    handle = await enabled(stage)
    await reaches(stage, "prv-9", "ready")
    stage.world.checks = (Check(name="key", status="failed", detail="invalid_grant"),)
    await handle.signal(ProviderLifecycle.refresh)
    await reaches(stage, "prv-9", "failed")
    assert stage.world.statuses["prv-9"] == ["enabling", "ready", "failed"]
    assert "invalid_grant" in str(stage.world.rows["prv-9"].status_reason)
    assert stage.world.resources["prv-9"] == EVERY_PART


async def test_a_cloud_that_does_not_answer_is_no_reason_to_fail(stage: Stage) -> None:
    handle = await enabled(stage)
    await reaches(stage, "prv-9", "ready")

    async def nobody(_: Contract) -> None:
        raise ApplicationError("no answer", type=errors.REFUSED)

    stage.world.faults["check_cloud"].append(nobody)
    await handle.signal(ProviderLifecycle.refresh)
    await eventually(lambda: "provider.unchecked" in stage.world.events["prv-9"], "it is told")
    assert stage.world.statuses["prv-9"] == ["enabling", "ready"]


async def test_what_cannot_be_removed_keeps_the_provider_until_it_is_forced_and_named(
    stage: Stage,
) -> None:
    handle = await enabled(stage)
    await reaches(stage, "prv-9", "ready")
    stage.world.faults["remove_provider_resource"] += [refuses("network")] * 2 * len(EVERY_PART)
    await handle.signal(ProviderLifecycle.remove, Removal())
    await reaches(stage, "prv-9", "failed")
    assert "network: network is in use" in str(stage.world.rows["prv-9"].status_reason)
    assert stage.world.resources["prv-9"] == {"network"}
    assert recorded_parts(stage) == ["network"]
    assert not stage.world.forgotten_keys

    await handle.signal(ProviderLifecycle.remove, Removal(force=True))
    assert (await handle.result()).status == "archived"
    told = stage.world.told["prv-9"]["provider.archived"]
    assert "left, by force: network: network is in use" in told


async def test_the_key_of_a_provider_is_kept_while_its_cloud_lists_machines_unless_forced(
    stage: Stage,
) -> None:
    handle = await stage.client.start_workflow(
        ProviderLifecycle.run, CLOUD, id=f"provider/{uuid.uuid4().hex}", task_queue=queues.MAIN
    )
    await reaches(stage, "prv-9", "ready")
    stage.world.cloud.unknown.add("baseload-lea-7")
    await handle.signal(ProviderLifecycle.remove, Removal())
    await reaches(stage, "prv-9", "failed")
    assert "still lists baseload-lea-7" in str(stage.world.rows["prv-9"].status_reason)
    assert not stage.world.forgotten_keys
    assert stage.world.resources["prv-9"] == EVERY_PART

    await handle.signal(ProviderLifecycle.remove, Removal(force=True))
    await handle.result()
    assert "still lists baseload-lea-7" in stage.world.told["prv-9"]["provider.archived"]
    assert stage.world.forgotten_keys == {"prv-9"}
