"""A machine that was created and never answered for is gone before the next offer is tried."""

import pytest
from temporalio.exceptions import ApplicationError

from tests.workflows.conftest import Stage
from tests.workflows.leases.test_lease_lifecycle import NAME, lease, offer, released
from workflows.contracts import errors
from workflows.contracts.base import Contract
from workflows.contracts.statuses import LeaseStatus
from workflows.effects.machines import CreateMachine
from workflows.leases import lease_lifecycle

FINAL = lease_lifecycle._NO_OTHER_OFFER
"""Failures after which no other is tried."""
PASSING = (errors.CAPACITY_EXHAUSTED, errors.UNAVAILABLE, errors.NOT_YET, errors.PRICE_CAP)
"""Failures of a creation after which the next offer is tried."""


def _lose_the_answer(stage: Stage, kind: str) -> None:
    """The next creation is done, and fails as far as the lease hears."""

    async def created(asked: Contract) -> None:
        assert isinstance(asked, CreateMachine)
        stage.world.create_machine(asked)
        raise ApplicationError("no answer", type=kind, non_retryable=True)

    stage.world.faults["create_machine"].append(created)


async def _silent(_: Contract) -> None:
    raise ApplicationError("no route", type=errors.REQUEST_REFUSED)


@pytest.mark.parametrize("is_seen", [True, False])
@pytest.mark.parametrize("kind", PASSING)
async def test_the_next_offer_waits_until_the_machine_of_the_last_is_gone(
    stage: Stage, kind: str, is_seen: bool
) -> None:
    there: list[list[tuple[str, str]]] = []

    async def note(_: Contract) -> None:
        there.append(list(stage.world.cloud.machines))

    _lose_the_answer(stage, kind)
    stage.world.faults["create_machine"].append(note)
    if not is_seen:
        stage.world.faults["describe_machine"].append(_silent)
    await released(stage, await lease(stage, offer("zone-a"), offer("zone-b")))
    assert there == [[]], "nothing is left when the second machine is asked for"
    assert stage.world.cloud.made == {(NAME, "zone-a"): 1, (NAME, "zone-b"): 1}
    assert stage.world.cloud.machines == {}


@pytest.mark.parametrize("kind", FINAL)
async def test_a_lease_that_tries_no_other_offer_leaves_no_machine_either(
    stage: Stage, kind: str
) -> None:
    _lose_the_answer(stage, kind)
    report = await (await lease(stage, offer("zone-a"), offer("zone-b"))).result()
    assert report.status is LeaseStatus.REFUSED
    assert stage.world.cloud.made == {(NAME, "zone-a"): 1}
    assert stage.world.cloud.machines == {}
