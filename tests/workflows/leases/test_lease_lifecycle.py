"""The life of a machine that costs money, against a provider that keeps what it has made."""

import asyncio
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.client import WorkflowHandle
from temporalio.exceptions import ApplicationError

from tests.waiting import eventually
from tests.workflows.conftest import Stage
from tests.workflows.fake_cloud import PRICE_MICROCREDITS
from tests.workflows.fake_world import REGION
from tests.workflows.jobs.test_races import Gate
from workflows.contracts import errors, queues
from workflows.contracts.base import Contract
from workflows.contracts.billing import hourly
from workflows.contracts.leases import LeaseProgress, LeaseRelease, LeaseReport, LeaseRequest
from workflows.contracts.lifecycles import LeaseChanges
from workflows.contracts.machines import MachineNotification, MachineOffer, MachineSpec
from workflows.contracts.removals import Removal
from workflows.contracts.statuses import LeaseStatus, MachineState, ProviderKind
from workflows.effects.machines import CreateMachine
from workflows.leases.lease_lifecycle import LeaseLifecycle

Handle = WorkflowHandle[LeaseLifecycle, LeaseReport]
LEASE = "lea-1"
NAME = "baseload-lea-1"


def offer(zone: str, microcredits_per_hour: int = PRICE_MICROCREDITS) -> MachineOffer:
    return MachineOffer(
        zone=zone, machine_type="large", microcredits_per_hour=microcredits_per_hour
    )


async def lease(stage: Stage, *offers: MachineOffer, **changes: Any) -> Handle:
    """A machine's workflow, as the start after its lease's commit begins it."""
    asked = {
        "lease_id": LEASE,
        "account_id": "acc-1",
        "region_id": REGION,
        "provider_id": "prv-1",
        "provider_kind": ProviderKind.GCP,
        "machine_name": NAME,
        "holder_id": "nod-1",
        "offers": offers or (offer("zone-a"),),
        "spec": MachineSpec(lifetime_s=3600),
        "deadline": datetime.now(UTC) + timedelta(hours=1),
        **changes,
    }
    return await stage.client.start_workflow(
        LeaseLifecycle.run,
        LeaseRequest.model_validate(asked),
        id=f"lease/{uuid.uuid4().hex}",
        task_queue=queues.MAIN,
    )


async def reaches(stage: Stage, status: LeaseStatus) -> None:
    await eventually(lambda: stage.world.statuses[LEASE][-1:] == [status], f"it is {status}")


async def released(stage: Stage, handle: Handle) -> LeaseReport:
    await reaches(stage, LeaseStatus.READY)
    await handle.signal(
        LeaseLifecycle.release, LeaseRelease(reason="its job has ended", by_holder=True)
    )
    return await handle.result()


async def test_a_machine_is_there_while_it_is_leased_and_gone_after(stage: Stage) -> None:
    handle = await lease(stage)
    await reaches(stage, LeaseStatus.READY)
    assert list(stage.world.cloud.machines) == [(NAME, "zone-a")]
    await eventually(lambda: len(stage.world.cloud.ready) > 0, "its holder is told")
    (ready,) = stage.world.cloud.ready
    assert (ready.seen.host, ready.seen.minion_id) == ("10.0.0.1", "SHA256:key")

    assert (await released(stage, handle)).status is LeaseStatus.RELEASED
    assert stage.world.cloud.machines == {}
    assert stage.world.statuses[LEASE] == [
        "creating", "waiting_for_ssh", "ready", "releasing", "released",
    ]  # fmt: skip


async def test_a_machine_that_is_leased_does_not_have_to_join(stage: Stage) -> None:
    stage.world.machines["nod-1"].has_joined = False
    handle = await lease(stage)
    assert (await released(stage, handle)).status is LeaseStatus.RELEASED


async def test_the_row_names_the_place_before_anything_is_made_there(stage: Stage) -> None:
    named: list[object] = []

    async def note(_: Contract) -> None:
        changes = stage.world.rows[LEASE].changes
        assert isinstance(changes, LeaseChanges)
        named.append(changes.offer)

    stage.world.faults["create_machine"].append(note)
    await released(stage, await lease(stage))
    assert named == [offer("zone-a")]


async def test_what_is_sold_out_is_remembered_and_had_elsewhere(stage: Stage) -> None:
    stage.world.cloud.short.add("zone-a")
    await released(stage, await lease(stage, offer("zone-a"), offer("zone-b")))
    assert list(stage.world.cloud.made) == [(NAME, "zone-b")]
    assert stage.world.cloud.remembered == {"zone-a/large/on-demand": "zone-a has none left"}


@pytest.mark.parametrize("tells", [True, False])
async def test_a_machine_that_ends_before_it_answers_is_given_up_for_the_next_offer(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, tells: bool
) -> None:
    if not tells:
        monkeypatch.setattr(
            "workflows.leases.lease_lifecycle.START_POLL_INTERVAL", timedelta(milliseconds=100)
        )
    stage.world.machines["nod-1"].reachable = False
    handle = await lease(stage, offer("zone-a"), offer("zone-b"))
    await reaches(stage, LeaseStatus.WAITING_FOR_SSH)
    stage.world.cloud.end(NAME)
    if tells:
        await handle.signal(LeaseLifecycle.refresh)
    await eventually(lambda: "lease.offer-refused" in stage.world.events[LEASE], "it is given up")
    stage.world.machines["nod-1"].reachable = True
    await reaches(stage, LeaseStatus.READY)
    assert list(stage.world.cloud.machines) == [(NAME, "zone-b")]
    assert stage.world.cloud.lost == [], "its holder has another machine"
    await released(stage, handle)
    assert stage.world.cloud.machines == {}


async def test_nobody_asks_for_what_is_known_to_be_short(stage: Stage) -> None:
    stage.world.cloud.remembered["zone-a/large/on-demand"] = "zone-a has none left"
    report = await (await lease(stage, offer("zone-a"))).result()
    assert report.status is LeaseStatus.REFUSED
    assert report.status_reason is not None
    assert "zone-a has none left; not asked again before" in report.status_reason
    assert not stage.world.cloud.made
    (lost,) = stage.world.cloud.lost
    assert lost.capacity_exhausted


async def test_a_machine_above_the_cap_is_not_asked_for(stage: Stage) -> None:
    handle = await lease(
        stage,
        offer("zone-a", PRICE_MICROCREDITS + 1),
        price_cap_microcredits_per_hour=PRICE_MICROCREDITS,
    )
    report = await handle.result()
    assert report.status is LeaseStatus.REFUSED
    assert f"the cap is {hourly(PRICE_MICROCREDITS)}" in str(report.status_reason)
    assert not stage.world.cloud.made


async def test_a_machine_that_turns_out_dearer_than_the_cap_is_ended_unused(stage: Stage) -> None:
    stage.world.cloud.price_microcredits = 2 * PRICE_MICROCREDITS
    handle = await lease(stage, price_cap_microcredits_per_hour=PRICE_MICROCREDITS)
    assert (await handle.result()).status is LeaseStatus.REFUSED
    assert sum(stage.world.cloud.made.values()) == 1
    assert stage.world.cloud.machines == {}
    assert stage.world.cloud.ready == []
    assert stage.world.cloud.remembered == {}, "its price is no shortage"


async def test_a_price_above_the_cap_in_the_answer_to_the_creation_ends_the_machine_unawaited(
    stage: Stage,
) -> None:
    waited: list[Contract] = []

    async def note(command: Contract) -> None:
        waited.append(command)

    stage.world.faults["wait_for_machine"].append(note)
    stage.world.cloud.price_microcredits = 2 * PRICE_MICROCREDITS
    handle = await lease(stage, price_cap_microcredits_per_hour=PRICE_MICROCREDITS)
    report = await handle.result()
    assert "costs 2 credits an hour" in str(report.status_reason)
    assert stage.world.cloud.machines == {}
    assert waited == []


async def test_a_refusal_is_told_and_no_other_offer_is_tried(stage: Stage) -> None:
    async def refuse(_: Contract) -> None:
        raise ApplicationError("the image does not exist", type=errors.REQUEST_REFUSED)

    stage.world.faults["create_machine"].append(refuse)
    report = await (await lease(stage, offer("zone-a"), offer("zone-b"))).result()
    assert (report.status, report.status_reason) == ("refused", "the image does not exist")
    assert not stage.world.cloud.made
    assert [lost.reason for lost in stage.world.cloud.lost] == ["the image does not exist"]


async def test_a_machine_with_another_key_is_ended_and_never_told_of(stage: Stage) -> None:
    stage.world.machines["nod-1"].minion_id = "SHA256:other"
    report = await (await lease(stage, offer("zone-a"), offer("zone-b"))).result()
    assert report.status is LeaseStatus.REFUSED
    assert report.status_reason == "nod-1: cannot be reached: no SHA256:key answers there"
    assert stage.world.cloud.machines == {}
    assert stage.world.cloud.ready == []


async def test_a_machine_that_its_provider_has_ended_is_told_to_who_holds_it(stage: Stage) -> None:
    handle = await lease(stage)
    await reaches(stage, LeaseStatus.READY)
    stage.world.cloud.end(NAME)
    await handle.signal(LeaseLifecycle.refresh)
    assert (await handle.result()).status is LeaseStatus.RELEASED
    assert [lost.reason for lost in stage.world.cloud.lost] == [
        "the provider says that the machine is gone"
    ]


async def test_a_machine_is_given_back_at_its_deadline(stage: Stage) -> None:
    handle = await lease(stage, deadline=datetime.now(UTC) + timedelta(seconds=2))
    report = await handle.result()
    assert report.status is LeaseStatus.RELEASED
    assert str(report.status_reason).startswith("the deadline has passed")
    assert stage.world.cloud.machines == {}


async def test_a_deadline_is_told_before_and_a_loss_only_when_the_provider_shows_it(
    stage: Stage,
) -> None:
    cloud_is_silent = Gate(stage, "terminate_machine")
    deadline = datetime.now(UTC) + timedelta(seconds=5)
    handle = await lease(stage, deadline=deadline)
    await eventually(lambda: len(stage.world.cloud.ending) > 0, "its holder is told before")
    assert [told.ends_at for told in stage.world.cloud.ending] == [deadline]
    assert stage.world.events[LEASE].count("lease.ending") == 1
    await cloud_is_silent.entered()
    assert stage.world.cloud.lost == [], "a machine that is there is not lost"
    cloud_is_silent.open()
    await handle.result()
    (lost,) = stage.world.cloud.lost
    assert lost.reason.startswith("the deadline has passed")
    assert lost.ended_at is not None


async def test_a_provider_that_does_not_answer_keeps_nobody_from_hearing_of_the_deadline(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workflows.leases.deadline.ENDING_NOTICE", timedelta(seconds=4))
    handle = await lease(stage, deadline=datetime.now(UTC) + timedelta(seconds=10))
    await reaches(stage, LeaseStatus.READY)
    cloud_is_silent = Gate(stage, "describe_machine")
    await handle.signal(LeaseLifecycle.refresh)
    await cloud_is_silent.entered()
    await handle.result()
    cloud_is_silent.open()
    assert stage.world.cloud.ending != []
    assert stage.world.cloud.machines == {}


async def test_a_holder_that_has_left_before_the_deadline_is_told_of_no_loss(stage: Stage) -> None:
    handle = await lease(stage, deadline=datetime.now(UTC) + timedelta(minutes=1))
    await eventually(lambda: len(stage.world.cloud.ending) > 0, "its holder is told before")
    report = await released(stage, handle)
    assert (report.status, report.status_reason) == ("released", "its job has ended")
    assert stage.world.cloud.lost == []


async def test_a_loss_is_told_until_the_holder_has_heard_of_it(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "workflows.leases.lease_lifecycle.RELEASE_INTERVAL", timedelta(milliseconds=50)
    )

    async def refuse(_: Contract) -> None:
        raise ApplicationError("nobody listens", type=errors.REFUSED)

    handle = await lease(stage)
    await reaches(stage, LeaseStatus.READY)
    await eventually(lambda: len(stage.world.cloud.ready) > 0, "its holder is told")
    stage.world.faults["notify_holder"] += [refuse, refuse, refuse]
    stage.world.cloud.end(NAME)
    await handle.signal(LeaseLifecycle.refresh)
    assert (await handle.result()).status is LeaseStatus.RELEASED
    assert len(stage.world.cloud.lost) == 1
    assert stage.world.events[LEASE].count("lease.holder-not-notified") == 1


async def test_the_deadline_interrupts_the_making(stage: Stage) -> None:
    stage.world.cloud.silent.add("zone-a")
    handle = await lease(
        stage,
        offer("zone-a"),
        offer("zone-b"),
        deadline=datetime.now(UTC) + timedelta(seconds=2),
    )
    report = await asyncio.wait_for(handle.result(), 30)
    assert report.status is LeaseStatus.REFUSED
    assert str(report.status_reason).startswith("the deadline has passed")
    assert list(stage.world.cloud.made) == [(NAME, "zone-a")]
    assert stage.world.cloud.machines == {}
    assert [lost.capacity_exhausted for lost in stage.world.cloud.lost] == [False]


async def test_who_holds_a_machine_is_told_what_its_provider_told_of_its_end(
    stage: Stage,
) -> None:
    handle = await lease(stage)
    await reaches(stage, LeaseStatus.READY)
    stage.world.cloud.end(NAME)
    at = datetime(2026, 11, 21, 10, 42, 31, tzinfo=UTC)
    of_an_earlier_one = MachineNotification(
        what="it was deleted", at=at, provider_machine_id="vm-0"
    )
    preempted = MachineNotification(what="it was preempted", at=at, provider_machine_id="vm-1")
    for notified in (preempted, of_an_earlier_one):
        await handle.signal(LeaseLifecycle.notified, notified)
    await handle.result()
    assert [lost.reason for lost in stage.world.cloud.lost] == [
        "it was preempted at 2026-11-21 10:42:31 UTC"
    ]
    assert [lost.ended_at for lost in stage.world.cloud.lost] == [at]


async def test_of_two_ends_that_its_provider_tells_a_machine_has_had_the_earlier(
    stage: Stage,
) -> None:
    handle = await lease(stage)
    await reaches(stage, LeaseStatus.READY)
    at = datetime.now(UTC)
    stopped = {"state": MachineState.STOPPED, "ended_at": at}
    key = (NAME, "zone-a")
    found = stage.world.cloud.machines[key].model_copy(update=stopped)
    stage.world.cloud.machines[key] = found
    notified = MachineNotification(what="it was preempted", at=at + timedelta(seconds=9))
    await handle.signal(LeaseLifecycle.notified, notified)
    await handle.result()
    assert [lost.ended_at for lost in stage.world.cloud.lost] == [at]


async def test_news_of_a_machine_that_is_there_ends_nothing(stage: Stage) -> None:
    handle = await lease(stage)
    await reaches(stage, LeaseStatus.READY)
    looked = asyncio.Event()

    async def note(_: Contract) -> None:
        looked.set()

    stage.world.faults["describe_machine"].append(note)
    notified = MachineNotification(what="it was preempted", at=datetime.now(UTC))
    await handle.signal(LeaseLifecycle.notified, notified)
    await asyncio.wait_for(looked.wait(), 10)
    assert list(stage.world.cloud.machines) == [(NAME, "zone-a")]
    assert (await released(stage, handle)).status is LeaseStatus.RELEASED


async def test_another_machine_of_the_same_name_is_not_taken_for_the_one_that_was_ready(
    stage: Stage,
) -> None:
    handle = await lease(stage)
    await reaches(stage, LeaseStatus.READY)
    key = (NAME, "zone-a")
    late = stage.world.cloud.machines[key].model_copy(update={"provider_machine_id": "vm-9"})
    stage.world.cloud.machines[key] = late
    await handle.signal(LeaseLifecycle.refresh)
    assert (await handle.result()).status is LeaseStatus.RELEASED
    assert "another machine has its name" in stage.world.cloud.lost[0].reason
    assert stage.world.cloud.machines == {}


async def test_the_end_of_a_machine_is_when_its_provider_says_it_was(stage: Stage) -> None:
    began = datetime.now(UTC) - timedelta(hours=3)
    stage.world.cloud.began_at = began
    stage.world.cloud.ended_at = began + timedelta(seconds=4711)
    await released(stage, await lease(stage))
    changes = stage.world.rows[LEASE].changes
    assert isinstance(changes, LeaseChanges)
    assert (changes.began_at, changes.ended_at) == (began, stage.world.cloud.ended_at)


async def test_a_machine_that_nobody_saw_costs_none_the_less(stage: Stage) -> None:
    began = datetime.now(UTC) - timedelta(hours=3)
    stage.world.cloud.began_at = began
    stage.world.cloud.ended_at = began + timedelta(hours=2)

    async def lost_reply(asked: Contract) -> None:
        assert isinstance(asked, CreateMachine)
        stage.world.create_machine(asked)
        raise ApplicationError("the image does not exist", type=errors.REQUEST_REFUSED)

    async def away(_: Contract) -> None:
        raise ApplicationError("no route", type=errors.REQUEST_REFUSED)

    stage.world.faults["create_machine"].append(lost_reply)
    stage.world.faults["describe_machine"].append(away)
    report = await (await lease(stage)).result()
    assert report.seen is not None
    assert (report.seen.began_at, report.seen.ended_at) == (began, stage.world.cloud.ended_at)
    assert stage.world.cloud.machines == {}


async def test_a_lease_taken_up_again_tells_its_holder_again_with_the_same_id(
    stage: Stage,
) -> None:
    first = await lease(stage)
    await reaches(stage, LeaseStatus.READY)
    await eventually(lambda: len(stage.world.cloud.ready) > 0, "its holder is told")
    await first.terminate("from outside")
    (told,) = stage.world.cloud.ready
    resumed_from = LeaseProgress(
        sequence=stage.world.rows[LEASE].sequence,
        status=LeaseStatus.READY,
        offer=told.offer,
        seen=told.seen,
        was_ready=True,
    )
    second = await lease(stage, resumed_from=resumed_from)
    await eventually(lambda: len(stage.world.cloud.ready) > 1, "its holder is told again")
    assert {ready.lease_id for ready in stage.world.cloud.ready} == {LEASE}
    await released(stage, second)


async def test_a_lease_that_is_canceled_in_temporal_leaves_no_machine(stage: Stage) -> None:
    handle = await lease(stage)
    await reaches(stage, LeaseStatus.READY)
    await handle.cancel()
    assert (await handle.result()).status is LeaseStatus.RELEASED
    assert stage.world.cloud.machines == {}


async def test_a_lease_taken_up_again_finds_the_machine_whose_making_went_unanswered(
    stage: Stage,
) -> None:
    begun = offer("zone-b")
    first = await lease(stage, begun)
    await reaches(stage, LeaseStatus.READY)
    await first.terminate("from outside")
    sequence = stage.world.rows[LEASE].sequence
    resumed_from = LeaseProgress(sequence=sequence, status=LeaseStatus.CREATING, offer=begun)
    stage.world.statuses[LEASE].append(LeaseStatus.CREATING)
    await released(stage, await lease(stage, offer("zone-a"), begun, resumed_from=resumed_from))
    assert stage.world.cloud.made == {(NAME, "zone-b"): 1}
    assert stage.world.cloud.machines == {}


async def test_a_provider_that_cannot_be_asked_costs_nobody_a_machine(stage: Stage) -> None:
    async def silent(_: Contract) -> None:
        raise ApplicationError("503", type=errors.REQUEST_REFUSED)

    handle = await lease(stage)
    await reaches(stage, LeaseStatus.READY)
    stage.world.faults["describe_machine"].append(silent)
    await handle.signal(LeaseLifecycle.refresh)
    await eventually(lambda: "lease.not-seen" in stage.world.events[LEASE], "people are told")
    assert list(stage.world.cloud.machines) == [(NAME, "zone-a")]
    assert stage.world.cloud.lost == []
    assert (await released(stage, handle)).status is LeaseStatus.RELEASED


async def test_who_holds_a_machine_is_told_when_somebody_else_gives_it_back(stage: Stage) -> None:
    handle = await lease(stage)
    await reaches(stage, LeaseStatus.READY)
    await handle.signal(LeaseLifecycle.release, LeaseRelease(reason="killed by usr-1"))
    assert (await handle.result()).status is LeaseStatus.RELEASED
    assert [lost.reason for lost in stage.world.cloud.lost] == ["killed by usr-1"]


@pytest.mark.parametrize(("by", "who"), [("usr-1", "usr-1"), ("", "a person")])
async def test_a_lease_that_is_removed_with_its_region_says_who_has_asked(
    stage: Stage, by: str, who: str
) -> None:
    handle = await lease(stage)
    await reaches(stage, LeaseStatus.READY)
    await handle.signal(LeaseLifecycle.remove, Removal(requested_by=by))
    report = await handle.result()
    assert (report.status, report.status_reason) == ("released", f"removed by {who}")
    assert stage.world.cloud.machines == {}


async def test_a_machine_whose_holder_has_ended_meanwhile_is_not_kept(stage: Stage) -> None:
    stage.world.cloud.holder_has_ended = True
    report = await (await lease(stage)).result()
    assert report.status is LeaseStatus.RELEASED
    assert "nod-1: the holder of the lease does not exist" in str(report.status_reason)
    assert stage.world.cloud.machines == {}


async def test_what_a_refused_machine_has_cost_counts_once(stage: Stage) -> None:
    began = datetime.now(UTC) - timedelta(hours=2)
    stage.world.cloud.price_microcredits = 2 * PRICE_MICROCREDITS
    stage.world.cloud.began_at = began
    handle = await lease(stage, price_cap_microcredits_per_hour=PRICE_MICROCREDITS)
    assert (await handle.result()).status is LeaseStatus.REFUSED
    changes = stage.world.rows[LEASE].changes
    assert isinstance(changes, LeaseChanges)
    assert changes.began_at is not None
    assert changes.ended_at is not None
    seconds = (changes.ended_at - changes.began_at).total_seconds()
    cost = seconds / 3600 * (changes.microcredits_per_hour or 0)
    cost += changes.earlier_microcredits or 0
    assert 4 * PRICE_MICROCREDITS <= cost < 4.1 * PRICE_MICROCREDITS


async def test_a_give_back_is_written_down_before_what_is_under_way_has_ended(
    stage: Stage,
) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def take_long(_: Contract) -> None:
        begun.set()
        await go_on.wait()

    stage.world.faults["create_machine"].append(take_long)
    handle = await lease(stage)
    await begun.wait()
    await handle.signal(LeaseLifecycle.release, LeaseRelease(reason="not needed"))
    await reaches(stage, LeaseStatus.RELEASING)
    assert stage.world.rows[LEASE].status_reason == "not needed"
    go_on.set()
    assert (await handle.result()).status is LeaseStatus.RELEASED
    assert stage.world.cloud.machines == {}
