"""First contact: what is in the way, corrections, and addresses that are not the machine's."""

from datetime import timedelta

import pytest
from temporalio.exceptions import ApplicationError

from tests.waiting import eventually
from tests.workflows.conftest import Stage
from tests.workflows.nodes.test_node_lifecycle import HERE, reaches
from workflows.contracts import errors
from workflows.contracts.base import Contract
from workflows.contracts.hosts import Announcement
from workflows.contracts.removals import Removal
from workflows.nodes.node_lifecycle import NodeLifecycle

ELSEWHERE = Announcement(minion_id="SHA256:key", host="203.0.113.9", port=22)


def reason(stage: Stage) -> str:
    row = stage.world.rows.get("nod-1")
    return str(row.status_reason) if row else ""


@pytest.fixture
def slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is tried again by itself: what is heard meanwhile is what counts."""
    monkeypatch.setattr("workflows.hosts.connection.FIRST_INTERVAL", timedelta(minutes=30))


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workflows.hosts.connection.FIRST_INTERVAL", timedelta(milliseconds=200))


@pytest.mark.usefixtures("slowly")
async def test_a_wrong_address_is_corrected_by_the_next_announcement(stage: Stage) -> None:
    handle = await stage.node(host=None)
    await stage.announce(handle, ELSEWHERE)
    await eventually(lambda: "no route" in reason(stage), "the cause is told")
    assert stage.world.statuses["nod-1"] == ["connecting"]

    await stage.announce(handle, HERE)
    await reaches(stage, "maintenance")
    assert stage.world.hosts["nod-1"] == HERE.host


@pytest.mark.usefixtures("quickly")
async def test_a_refused_login_is_told_while_it_is_tried_on(stage: Stage) -> None:
    async def refuse(_: Contract) -> None:
        raise ApplicationError("nod-1: root: key refused", type=errors.LOGIN_REFUSED)

    stage.world.faults["reach_node"] += [refuse] * 4
    handle = await stage.node()
    await eventually(lambda: "key refused" in reason(stage), "the cause is told")
    await reaches(stage, "maintenance")
    assert (await handle.query(NodeLifecycle.status)).status_reason is None
    assert stage.world.events["nod-1"].count("node.not-reached") == 1


@pytest.mark.usefixtures("slowly")
async def test_a_node_that_was_never_reached_is_removed_at_once(stage: Stage) -> None:
    stage.world.machines["nod-1"].reachable = False
    handle = await stage.node()
    await eventually(lambda: "no route" in reason(stage), "the cause is told")
    await handle.signal(NodeLifecycle.remove, Removal())
    assert (await handle.result()).status == "archived"


@pytest.mark.usefixtures("quickly")
async def test_a_bogus_address_of_a_failed_node_does_not_cost_it_its_own(stage: Stage) -> None:
    handle = await stage.node(relaxed_requirements=("nvme-drives", "sata-drives"))
    await reaches(stage, "failed")
    assert "tpm-2" in reason(stage)

    machine = stage.world.machines["nod-1"]
    machine.hardware = machine.hardware.model_copy(update={"tpm": True})
    await stage.announce(handle, ELSEWHERE)
    await reaches(stage, "maintenance")
    assert stage.world.hosts["nod-1"] == HERE.host


@pytest.mark.usefixtures("quickly")
async def test_an_announced_address_where_another_machine_answers_is_given_up(
    stage: Stage,
) -> None:
    async def another(_: Contract) -> None:
        raise ApplicationError("nod-1: found SHA256:other", type=errors.HOST_KEY_MISMATCH)

    stage.world.machines["nod-1"].reachable = False
    handle = await stage.node()
    await eventually(lambda: "no route" in reason(stage), "the cause is told")
    stage.world.faults["reach_node"].append(another)
    await stage.announce(handle, ELSEWHERE)
    await eventually(lambda: "SHA256:other" in reason(stage), "the other one is told")
    stage.world.machines["nod-1"].reachable = True
    await reaches(stage, "maintenance")
    assert stage.world.hosts["nod-1"] == HERE.host
