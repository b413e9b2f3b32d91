"""A job whose workflow is lost while it ends, or while it is stopped: it ends as it was to."""

from datetime import UTC, datetime

import pytest

from activities.db import tables
from activities.jobs.starts import TERMINATED
from activities.settings import settings
from tests.activities.rows import allocate
from tests.waiting import eventually
from tests.workflows.installation import JOB, NODE, Installation, installation
from tests.workflows.jobs.test_job_lifecycle import CANCEL
from tests.workflows.jobs.test_races import STOP, Gate
from workflows.contracts.jobs import NodeEnding, NodeUnreachable

__all__ = ["installation"]
pytestmark = pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)


def job(at: Installation) -> tables.Job:
    with at.database.read() as session:
        return session.get_one(tables.Job, JOB)


async def stopped_notebook(at: Installation) -> None:
    """On a machine that is there to stay, in its first attempt, with files."""
    await at.start(JOB, type="notebook")
    await at.run_to("running")
    at.world.machines[NODE].runs[f"{JOB}-0-1"].kept = 9
    await at.tell(JOB, "stop", STOP)
    await at.reaches(JOB, "stopped")
    assert at.world.states[JOB, 0].kept == 9
    await at.forget()


async def test_a_stopped_notebook_whose_workflow_is_forgotten_starts_with_its_files(
    installation: Installation,
) -> None:
    at = installation
    await stopped_notebook(at)
    await at.start(JOB)
    await at.tell(JOB, "start_again")
    await at.reaches(JOB, "waiting_for_resources")
    at.place(attempt=2)
    await at.tell(JOB, "placed", at.world.held[JOB])
    await at.reaches(JOB, "running")
    assert at.world.machines[NODE].runs[f"{JOB}-0-2"].kept == 9


async def test_a_stopped_notebook_that_is_canceled_after_its_adoption_leaves_no_copy(
    installation: Installation,
) -> None:
    at = installation
    await stopped_notebook(at)
    handle = await at.start(JOB)
    await at.tell(JOB, "cancel", CANCEL)
    await handle.result()
    assert (job(at).status, at.world.states, job(at).state_bytes) == ("canceled", {}, 0)


@pytest.mark.parametrize("type_", ["training", "notebook"])
async def test_a_canceled_job_whose_workflow_is_terminated_while_it_ends_does_not_run_again(
    installation: Installation, type_: str
) -> None:
    at = installation
    with at.database.write() as session:
        row = session.get_one(tables.Job, JOB)
        row.spec = row.spec | {"safety": {"max_retries": 1}}
    await at.start(JOB, type=type_)
    await at.run_to("running")
    gate = Gate(at.stage, "collect_log")
    await at.tell(JOB, "cancel", CANCEL)
    await gate.entered()
    await at.forget()
    gate.open()
    handle = await at.start(JOB, ended_by_person=True)
    await handle.result()
    assert (job(at).status, job(at).status_reason) == ("canceled", CANCEL.reason)


async def test_a_job_that_waits_for_data_and_is_terminated_ends_and_asks_for_nothing(
    installation: Installation,
) -> None:
    at = installation
    handle = await at.start(JOB, status="new", sequence=3, ended_by_person=True)
    await handle.result()
    assert job(at).status_reason == TERMINATED.reason
    assert set(at.world.statuses[JOB]) == {"failed"}, at.world.statuses[JOB]


async def test_a_command_that_was_not_seen_to_end_runs_once_though_its_workflow_is_forgotten(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = settings().model_copy(update={"job_unreachable_limit_s": 4})
    monkeypatch.setattr("activities.jobs.starts.settings", lambda: short)
    at = installation
    await at.start(JOB)
    await at.run_to("running")
    with at.database.write() as session:
        allocate(session, session.get_one(tables.Job, JOB), session.get_one(tables.Node, NODE), 0)
    at.world.machines[NODE].reachable = False
    await at.tell(JOB, "node_ending", NodeEnding(node_id=NODE, reason="its lease ends"))
    await at.tell(JOB, "node_unreachable", NodeUnreachable(node_id=NODE, reason="no route"))
    await eventually(lambda: "job.worker-abandoned" in at.world.events[JOB], "it is abandoned")
    with at.database.write() as session:
        node = session.get_one(tables.Node, NODE)
        node.status, node.updated_at = "offline", datetime.now(UTC)
    await at.forget()
    handle = await at.start(JOB)
    await handle.result()
    assert at.world.live_runs() == [f"{JOB}-0-1"]
    assert job(at).status == "failed"
    assert "its command would run twice" in (job(at).status_reason or "")
