"""The machine of a lease is terminated for certain, and never that of a later offer."""

from datetime import timedelta

import pytest
from temporalio.exceptions import ApplicationError

from tests.waiting import eventually
from tests.workflows.conftest import Stage
from tests.workflows.jobs.test_races import Gate
from tests.workflows.leases.test_lease_lifecycle import LEASE, NAME, lease, offer, reaches
from workflows.contracts import errors
from workflows.contracts.base import Contract
from workflows.contracts.leases import LeaseRelease
from workflows.contracts.statuses import LeaseStatus
from workflows.leases.lease_lifecycle import LeaseLifecycle
from workflows.primitives.journal import RESOURCE_STATUS, STALE


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    interval = "workflows.leases.machine_end.TERMINATION_INTERVAL"
    monkeypatch.setattr(interval, timedelta(milliseconds=50))


async def refuse(_: Contract) -> None:
    raise ApplicationError("not reachable over SSH", type=errors.REFUSED)


async def test_a_workflow_that_is_restored_in_an_earlier_offer_leaves_the_machine_of_the_present(
    stage: Stage,
) -> None:
    stage.world.faults["reach_node"].append(refuse)
    gate = Gate(stage, "terminate_machine")
    larger = offer("zone-a").model_copy(update={"machine_type": "larger"})
    handle = await lease(stage, offer("zone-a"), larger)
    await gate.entered()
    row = stage.world.rows[LEASE]  # The lease has gone on, with a machine of its second offer.
    ahead = {"sequence": row.sequence + 7, "status": "ready"}
    stage.world.rows[LEASE] = row.model_copy(update=ahead)
    gate.open()

    async def is_decided() -> bool:
        found = await handle.describe()
        is_stale = found.typed_search_attributes.get(RESOURCE_STATUS) == STALE
        return is_stale or not stage.world.cloud.machines

    await eventually(is_decided, "the reconciliation can tell that its row is ahead")
    assert list(stage.world.cloud.machines) == [(NAME, "zone-a")]


async def test_a_release_while_a_machine_is_terminated_does_not_keep_it(stage: Stage) -> None:
    """The release is a step of the same workflow, after which the termination is told of it."""
    stage.world.faults["reach_node"].append(refuse)
    gate = Gate(stage, "terminate_machine")
    handle = await lease(stage)
    await gate.entered()
    await handle.signal(LeaseLifecycle.release, LeaseRelease(reason="its job has ended"))
    await reaches(stage, LeaseStatus.RELEASING)
    gate.open()
    report = await handle.result()
    assert (report.status, report.status_reason) == ("released", "its job has ended")
    assert stage.world.cloud.machines == {}
    assert "lease.not-released" not in stage.world.events[LEASE]
