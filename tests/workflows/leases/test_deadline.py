"""When the holder of a lease is notified of its deadline."""

from datetime import UTC, datetime, timedelta

import pytest
from temporalio import workflow

from workflows.contracts.events import Event
from workflows.contracts.leases import LeaseRequest
from workflows.contracts.machines import MachineSpec
from workflows.contracts.statuses import ProviderKind
from workflows.leases.deadline import Deadline

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


async def nobody(_: Event) -> None:
    """Nobody reads the events."""


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
    request = LeaseRequest(
        lease_id="lea-1", account_id="acc-1", region_id="reg-1", provider_id="prv-1",
        provider_kind=ProviderKind.GCP, machine_name="baseload-lea-1", holder_id="nod-1",
        offers=(), spec=MachineSpec(lifetime_s=int(lifetime.total_seconds())),
        deadline=NOW + lifetime,
    )  # fmt: skip
    assert Deadline(request, nobody).until_notice() == lifetime - notice
