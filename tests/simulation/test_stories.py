"""Stories that seeds have told, each of a defect that was mended."""

from dataclasses import replace
from datetime import timedelta

from tests.simulation.behaviour import Behaviour
from tests.simulation.outside.world import World
from tests.simulation.plan import Act, At, JobPlan, On
from tests.simulation.simulation import play
from tests.simulation.test_coverage import PLAN
from workflows.contracts.statuses import JobType


def test_a_node_that_moved_while_its_site_was_away_takes_jobs_again() -> None:
    """Its machine has announced itself once, and the first try at the new address was refused."""
    acts = (
        Act(At(60), "world", "site_away", "region/0", 1800),
        Act(At(300), "world", "machine_moves", "machine/0"),
    )
    life = play(replace(PLAN, acts=acts, hours=0.6))
    [node] = life.rows.nodes()
    assert (node.status, node.status_reason) == ("active", None)
    assert node.host != "10.0.0.1"
    assert life.violations == []


def test_a_job_begins_elsewhere_only_when_its_machine_has_ended_that_google_preempts() -> None:
    """Google tells of a preemption 30 s before the end, and a free machine waits for the job."""
    jobs = (
        JobPlan(at_s=10, type=JobType.TRAINING, behaviour=Behaviour(seconds=400)),
        JobPlan(at_s=40, type=JobType.TRAINING, behaviour=Behaviour(seconds=2000)),
    )
    acts = (Act(At(900), "world", "preempted", "cloud-machine/1"),)
    life = play(replace(PLAN, jobs=jobs, acts=acts, hours=1, has_cloud=True))
    assert life.violations == []
    _, taken = life.world.cloud_machines()  # The other is the storage node's.
    job_id = list(life.jobs)[1]
    runs = {one.run_id: one for one in life.world.processes()}
    first, second = runs[f"{job_id}-0-1"], runs[f"{job_id}-0-2"]
    assert taken.ending_at is not None
    assert first.ended_at is not None
    assert second.began_at is not None
    assert taken.ending_at < first.ended_at < second.began_at
    assert second.began_at - taken.ending_at < timedelta(seconds=120)
    assert {job.status for job in life.rows.jobs()} == {"finished"}


def test_the_storage_of_a_cloud_is_filled_before_the_old_one_goes_while_a_job_runs() -> None:
    """The worker is killed in the midst of it, and the job notices nothing."""
    jobs = (JobPlan(at_s=10, type=JobType.TRAINING, behaviour=Behaviour(seconds=3000)),)
    acts = (
        Act(At(1200), "ask", "replace", "storage/0"),
        Act(On("fill_cache", 1), "process", "kill", "main", 20),
    )
    life = play(replace(PLAN, jobs=jobs, acts=acts, hours=1.5, has_cloud=True))
    assert life.violations == []
    old, new = [one for one in life.rows.nodes() if one.lease_id and not one.ephemeral]
    assert (old.status, new.status) == ("archived", "active")
    assert [job.status for job in life.rows.jobs()] == ["finished"]


def test_transfers_wait_for_a_slot_of_their_account_and_end_after_each_other() -> None:
    """Three datasets are added at once, when one transfer may be under way, and all are stored."""
    acts = tuple(Act(At(60 + number), "ask", "add", "dataset") for number in range(3))
    life = play(replace(PLAN, acts=acts, hours=1))
    assert [one.status for one in life.rows.datasets()] == ["ready"] * 3
    assert isinstance(life.world, World)
    assert life.world.transfers.waited > 0
    assert life.violations == []
