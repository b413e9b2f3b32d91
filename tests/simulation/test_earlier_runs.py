"""What an earlier node has left on a machine keeps the GPUs of that machine."""

from tests.simulation.batch import plan_of
from tests.simulation.behaviour import Behaviour
from tests.simulation.plan import Act, At, JobPlan, Plan
from tests.simulation.rows_model import ModelRows
from tests.simulation.simulation import play
from workflows.contracts.statuses import JobType

STUCK_S = 20_000.0
CANCELED_S = 200
STUCK = JobPlan(
    at_s=10, type=JobType.TRAINING, behaviour=Behaviour(seconds=5000, unkillable_s=STUCK_S)
)
NEXT = JobPlan(at_s=2800, type=JobType.TRAINING, behaviour=Behaviour(seconds=60))
PLAN = Plan(
    seed=1,
    jobs=(STUCK, NEXT),
    machines=((1,),),
    has_cloud=False,
    has_storage_node=False,
    microcredits=(10**12, 10**12),
    acts=(
        Act(At(CANCELED_S), "ask", "cancel", "job/0"),
        Act(At(600), "ask", "force_remove", "node/0"),
        Act(At(2600), "ask", "add", "machine/0"),
    ),
    hours=8,
)


def test_a_machine_that_is_added_again_gives_no_gpu_away_that_a_run_still_uses() -> None:
    """Its node was removed by force while a command could not be ended, and another was added."""
    life = play(PLAN)
    assert life.violations == []
    assert isinstance(life.rows, ModelRows)
    first, again = life.nodes
    assert life.rows.tables.nodes[first].status == "archived"
    held = [one for one in life.rows.tables.events[again] if one.type == "node.gpu-held"]
    assert len(held) == 1, "the new node says once which run is still there"
    stuck, following = (
        next(one for one in life.world.processes() if one.run_id.startswith(job))
        for job in life.jobs
    )
    assert stuck.has_resisted
    assert stuck.ended_at is not None
    assert following.began_at is not None
    assert stuck.ended_at < following.began_at
    assert [job.status for job in life.rows.jobs()] == ["canceled", "finished"]


def test_a_node_whose_runs_could_not_be_listed_takes_no_jobs_before_they_are() -> None:
    """A machine is added again while its earlier runs live, and the first list of them fails."""
    assert play(plan_of(706)).violations == []
