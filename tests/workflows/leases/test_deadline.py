"""When the holder of a lease is notified of its deadline, and when that has passed."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from temporalio import workflow
from temporalio.exceptions import ApplicationError

from tests.workflows.primitives.played import played
from workflows.contracts.errors import OUT_OF_TIME
from workflows.contracts.events import Event
from workflows.contracts.leases import LeaseProgress, LeaseRequest
from workflows.contracts.machines import MachineSpec
from workflows.contracts.statuses import LeaseStatus, ProviderKind
from workflows.leases.deadline import Deadline

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


async def nobody(_: Event) -> None:
    """Nobody reads the events."""


def request(lifetime: timedelta, deadline: datetime) -> LeaseRequest:
    return LeaseRequest(
        lease_id="lea-1", account_id="acc-1", region_id="reg-1", provider_id="prv-1",
        provider_kind=ProviderKind.GCP, machine_name="baseload-lea-1", holder_id="nod-1",
        offers=(), spec=MachineSpec(lifetime_s=int(lifetime.total_seconds())),
        deadline=deadline,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("lifetime", "notice"),
    [
        (timedelta(minutes=1), timedelta(seconds=6)),
        (timedelta(minutes=50), timedelta(minutes=5)),
        (timedelta(days=1), timedelta(minutes=15)),
    ],
)
def test_a_short_lease_has_a_notice_of_a_tenth_of_its_lifetime(
    monkeypatch: pytest.MonkeyPatch, lifetime: timedelta, notice: timedelta
) -> None:
    monkeypatch.setattr(workflow, "now", lambda: NOW)
    deadline = Deadline(request(lifetime, NOW + lifetime), nobody)
    assert deadline.until_notice() == lifetime - notice


@pytest.mark.parametrize(
    ("begins_s", "told"),
    [
        (0, [(0, False, False), (3235, False, False), (3245, True, False), (3605, True, True)]),
        (3500, [(3500, True, False), (3605, True, True)]),
        (3700, [(3700, True, True)]),
    ],
    ids=["before", "between notice and deadline", "after"],
)
def test_a_deadline_is_near_at_its_notice_and_passes_at_its_end(
    begins_s: int, told: list[tuple[int, bool, bool]]
) -> None:
    """Also in a run of the workflow that begins later than the lease."""
    found: list[tuple[int, bool, bool]] = []

    async def story() -> None:
        ends_at = workflow.now() + HOUR
        await workflow.sleep(begins_s)
        deadline = Deadline(request(HOUR, ends_at), nobody)
        watching = asyncio.create_task(deadline.watch())
        for at, _, _ in told:
            passed = (workflow.now() - (ends_at - HOUR)).total_seconds()
            await workflow.sleep(max(0.01, at - passed))
            found.append((at, deadline.must_announce, deadline.has_passed))
        await watching

    played(story, most_s=7200)
    assert found == told


@pytest.mark.parametrize(("after", "is_over"), [(-1, False), (0, True), (1, True)])
def test_a_passed_deadline_is_a_failure_that_says_so(
    monkeypatch: pytest.MonkeyPatch, after: int, is_over: bool
) -> None:
    monkeypatch.setattr(workflow, "now", lambda: NOW + timedelta(seconds=after))
    deadline = Deadline(request(HOUR, NOW), nobody)
    if not is_over:
        deadline.check()
        deadline.has_passed = True
    with pytest.raises(ApplicationError, match="has passed: 2026-03-01 12:00:00 UTC") as raised:
        deadline.check()
    assert raised.value.type == OUT_OF_TIME


@pytest.mark.parametrize(
    ("left", "until_next"),
    [(HOUR, timedelta(minutes=54)), (timedelta(minutes=6), timedelta(minutes=1))],
)
def test_notices_are_a_minute_apart_after_the_first(
    monkeypatch: pytest.MonkeyPatch, left: timedelta, until_next: timedelta
) -> None:
    monkeypatch.setattr(workflow, "now", lambda: NOW)
    assert Deadline(request(HOUR, NOW + left), nobody).until_next_notice() == until_next


async def test_the_end_of_a_lease_is_recorded_once_and_told_again() -> None:
    events: list[Event] = []

    async def keep(event: Event) -> None:
        events.append(event)

    deadline = Deadline(request(HOUR, NOW), keep)
    first, second = await deadline.announce(), await deadline.announce()
    assert first == second
    assert (first.lease_id, first.ends_at) == ("lea-1", NOW)
    assert first.reason == "the lease of its machine ends at 2026-03-01 12:00:00 UTC"
    assert [(one.type, one.message) for one in events] == [
        ("lease.ending", f"nod-1 is asked to leave: {first.reason}")
    ]
    assert not deadline.must_announce


@pytest.mark.parametrize("is_ending", [True, False])
def test_a_later_run_knows_whether_the_end_was_told(is_ending: bool) -> None:
    progress = LeaseProgress(sequence=1, status=LeaseStatus.READY, is_ending=is_ending)
    later = request(HOUR, NOW).model_copy(update={"resumed_from": progress})
    assert Deadline(later, nobody).is_announced is is_ending
