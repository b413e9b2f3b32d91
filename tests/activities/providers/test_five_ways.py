"""Five independent ways in which a rented machine ends, at every kind: its job finishes, fails or
is idle; a person leaves or kills; or a reconciliation finds what nobody else remembers.

All ways of one kind happen side by side, on workers that are started once; each has its own test.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from temporalio.client import Client

from activities.db import tables
from activities.db.ids import new_id
from activities.db.session import Database
from activities.leases.first_reconciliation import reconcile_all
from activities.providers.base import Unavailable
from activities.providers.registry import driver_of
from tests.activities.providers.driver_contract import SPEC
from tests.activities.providers.local.conftest import folder
from tests.activities.providers.markets import OPENERS, Market, Stage, market, staged
from tests.activities.rows import NOW
from tests.doubles.runpod.fixtures import make_runpod
from tests.doubles.vastai.fixtures import make_vastai
from tests.waiting import eventually
from workflows.contracts.machines import MachineOffer
from workflows.contracts.statuses import LeaseStatus

__all__ = ["folder", "make_runpod", "make_vastai", "market"]
IDLE_S = 4
ON_AND_ON = "echo begun; sleep 600"
KINDS = pytest.mark.parametrize("market", list(OPENERS), indirect=True)


@dataclass(frozen=True)
class Ended:
    """How it ended: the job, the lease of its machine, and whether a machine was left."""

    job: tables.Job | None = None
    lease: tables.Lease | None = None
    events: list[tuple[str, str]] = field(default_factory=list)
    error: BaseException | None = None

    def of_job(self) -> tuple[str, str]:
        assert self.job is not None
        return self.job.status, str(self.job.status_reason)


async def is_over(stage: Stage, job_id: str) -> Ended:
    """The job with its one machine, once the provider has that no more and the lease has ended."""

    def gone() -> bool:
        leases = stage.leases_of(job_id)
        return bool(leases) and all(
            each.status == LeaseStatus.RELEASED and not stage.market.has(each.name)
            for each in leases
        )

    await eventually(gone, f"{job_id}: nothing is left of its machine")
    (lease,) = stage.leases_of(job_id)
    return Ended(stage.job(job_id), lease, stage.events(job_id))


async def runs(stage: Stage, job_id: str) -> tables.Lease:
    """The lease of a job's machine, once its command runs there."""
    await eventually(lambda: stage.job(job_id).status == "running", f"{job_id} runs")
    (lease,) = stage.leases_of(job_id)
    assert stage.market.has(lease.name)
    return lease


async def completion(stage: Stage) -> Ended:
    job_id = await stage.submitted("echo done")
    await stage.end_of(job_id)
    return await is_over(stage, job_id)


async def failure(stage: Stage) -> Ended:
    job_id = await stage.submitted("echo broken; exit 7")
    await stage.end_of(job_id)
    return await is_over(stage, job_id)


async def idleness(stage: Stage) -> Ended:
    job_id = await stage.submitted(ON_AND_ON, idle_timeout_s=IDLE_S)
    await stage.end_of(job_id)
    return await is_over(stage, job_id)


async def leaving(stage: Stage) -> Ended:
    """What the client asks for when a person who followed interrupts it, and says yes."""
    job_id = await stage.submitted(ON_AND_ON)
    await runs(stage, job_id)
    await stage.person.made(f"/v1/jobs/{job_id}/cancel", None)
    await stage.end_of(job_id)
    return await is_over(stage, job_id)


async def kill(stage: Stage) -> Ended:
    """What `baseload kill` asks for, of a machine whose job cannot go on elsewhere."""
    job_id = await stage.submitted(ON_AND_ON, max_restarts=0)
    lease = await runs(stage, job_id)
    answer = await stage.person.call("DELETE", f"/v1/leases/{lease.id}")
    assert answer.status_code == 202, answer.text
    await stage.end_of(job_id)
    return await is_over(stage, job_id)


async def reconciliation(stage: Stage) -> Ended:
    """The machine of a lease that is over, which nobody remembers, when a process starts."""
    lease_id = new_id("lea")
    offer = _free_offers(stage)[0]
    lease = tables.Lease(
        id=lease_id,
        account_id=stage.region.account_id,
        name=f"baseload-{lease_id}",
        status=LeaseStatus.RELEASED,
        region_id=stage.region.id,
        provider_id=stage.region.provider_id,
        provider_kind=stage.market.kind,
        holder_id="nod-lost",
        offers=[offer.model_dump(mode="json")],
        offer=offer.model_dump(mode="json"),
        spec=SPEC.model_dump(mode="json"),
        deadline=NOW + timedelta(hours=1),
        created_at=NOW,
        updated_at=NOW,
    )
    stage.person.site.write(lease)
    await _made(stage, lease.name, offer)
    assert list(await reconcile_all()) == [stage.region.provider_id]
    await eventually(lambda: not stage.market.has(lease.name), "it is found and ended")
    return Ended(lease=lease)


async def orphan(stage: Stage) -> Ended:
    """What `baseload kill --all` asks for, of a machine that no lease has ever named."""
    name, offer = "baseload-lea-of-nobody", _free_offers(stage)[-1]
    await _made(stage, name, offer)
    assert list(await reconcile_all()) == [stage.region.provider_id]
    await eventually(lambda: _is_said(stage, "orphaned-machine", name), "people are shown it")
    assert stage.market.has(name), "it may do work"
    listed = await stage.person.get(f"/v1/providers/{stage.region.provider_id}/machines")
    (found,) = [each for each in listed.json()["items"] if each["name"] == name]
    path = f"/v1/providers/{stage.region.provider_id}/machines/{name}?zone={found['zone']}"
    answer = await stage.person.call("DELETE", path)
    assert answer.status_code == 202, answer.text
    await eventually(lambda: not stage.market.has(name), "it is ended")
    await eventually(lambda: _is_said(stage, "machine-ended", name), "people can read that it is")
    return Ended(events=stage.events(stage.region.provider_id))


def _is_said(stage: Stage, event: str, name: str) -> bool:
    events = stage.events(stage.region.provider_id)
    return any(kind == f"provider.{event}" and name in text for kind, text in events)


async def _made(stage: Stage, name: str, offer: MachineOffer) -> None:
    driver = driver_of(stage.market.kind, stage.region.provider_id)
    spec = SPEC.model_copy(update={"tags": {"region": stage.region.id}})

    async def is_made() -> bool:
        """Repeated as the lease repeats it, when the market limits its calls or does not answer."""
        try:
            await asyncio.to_thread(driver.create, name, offer, spec)
        except Unavailable:
            return False
        return stage.market.has(name)

    await eventually(is_made, f"{name} is rented")


def _free_offers(stage: Stage) -> list[MachineOffer]:
    """The offers that no job of these tests takes; this host has one alone."""
    offers = [
        MachineOffer.model_validate(row.offer["machine"])
        for row in stage.person.site.rows(tables.RentalOfferRow)
    ]
    others = [each for each in offers if each.gpu_count == 1 and "A100" not in str(each.gpu_type)]
    return others or offers


WAYS: Mapping[str, Callable[[Stage], Awaitable[Ended]]] = {
    each.__name__: each
    for each in (completion, failure, idleness, leaving, kill, reconciliation, orphan)
}
_seen: dict[str, Mapping[str, Ended]] = {}


@pytest.fixture
def dialect() -> str:
    return "sqlite"


@pytest.fixture
async def ways(market: Market, migrated: Database, temporal_server: Client) -> Mapping[str, Ended]:
    """How each way has ended at this kind; all of them happen before the first test of the kind."""
    if market.kind not in _seen:
        slots = asyncio.Semaphore(market.at_once)

        async def go(stage: Stage, way: Callable[[Stage], Awaitable[Ended]]) -> Ended:
            async with slots:
                try:
                    return await way(stage)
                except (AssertionError, TimeoutError) as error:
                    return Ended(error=error)

        async with staged(market, migrated, temporal_server) as stage:
            found = await asyncio.gather(*(go(stage, way) for way in WAYS.values()))
        _seen[market.kind] = dict(zip(WAYS, found, strict=True))
    return _seen[market.kind]


def ended(ways: Mapping[str, Ended], way: str) -> Ended:
    if (error := ways[way].error) is not None:
        raise error
    return ways[way]


@KINDS
def test_a_machine_ends_when_its_job_has_finished(ways: Mapping[str, Ended]) -> None:
    assert ended(ways, "completion").of_job()[0] == "finished"


@KINDS
def test_a_machine_ends_when_its_job_has_failed(ways: Mapping[str, Ended]) -> None:
    status, reason = ended(ways, "failure").of_job()
    assert status == "failed"
    assert "7" in reason


@KINDS
def test_a_machine_ends_when_its_job_is_idle_and_people_are_warned_before(
    ways: Mapping[str, Ended],
) -> None:
    found = ended(ways, "idleness")
    status, reason = found.of_job()
    assert (status, f"for {IDLE_S} s (safety.idle_timeout_s)" in reason) == ("failed", True)
    types = [kind for kind, _ in found.events]
    assert types.index("job.idle") < types.index(
        "job.ending" if "job.ending" in types else "job.failed"
    )


@KINDS
def test_a_machine_ends_when_a_person_leaves_and_has_the_job_ended(
    ways: Mapping[str, Ended],
) -> None:
    assert ended(ways, "leaving").of_job()[0] == "canceled"


@KINDS
def test_a_machine_ends_when_a_person_kills_it(ways: Mapping[str, Ended]) -> None:
    found = ended(ways, "kill")
    assert found.of_job()[0] == "failed"
    assert found.lease is not None
    assert str(found.lease.status_reason).startswith("killed by ")


@KINDS
def test_a_machine_that_everybody_has_forgotten_ends_when_a_process_starts(
    ways: Mapping[str, Ended],
) -> None:
    assert ended(ways, "reconciliation").error is None


@KINDS
def test_a_machine_that_no_lease_names_is_shown_and_ends_when_a_person_says_so(
    ways: Mapping[str, Ended],
) -> None:
    types = [kind for kind, _ in ended(ways, "orphan").events]
    assert {"provider.orphaned-machine", "provider.machine-ended"} <= set(types)
