"""An effect that fails for good meets its branch, and one without a limit goes on afterwards."""

from dataclasses import replace

from tests.simulation.lasting_failures import (
    KEEPS_FAILING,
    REFUSED_FOR_GOOD,
    final_errors_of,
    passing_errors_of,
)
from tests.simulation.life import Life
from tests.simulation.lifecycles.all_parts import PARTS
from tests.simulation.lifecycles.part import effects_of
from tests.simulation.plan import Act, At, On
from tests.simulation.simulation import play
from tests.simulation.test_coverage import PLAN


def _life(*acts: Act, hours: float = 0.4) -> Life:
    life = play(replace(PLAN, acts=acts, hours=hours))
    assert life.violations == []
    return life


def _failed(life: Life, effect: str) -> int:
    return sum(what == f"{effect}: refused" for _, _, what, _ in life.engine.log.lines)


def test_a_command_that_is_refused_for_good_fails_its_job() -> None:
    life = _life(Act(On("seal_run_specs", 1, of="job#1"), "call", REFUSED_FOR_GOOD, seconds=1))
    [job] = life.rows.jobs()
    assert job.status == "failed"
    assert "seal_run_specs fails" in (job.status_reason or "")


def test_an_effect_without_a_limit_is_tried_until_it_answers_again() -> None:
    life = _life(Act(On("seal_run_specs", 1), "call", KEEPS_FAILING, seconds=600))
    [job] = life.rows.jobs()
    assert job.status == "finished"
    assert _failed(life, "seal_run_specs") > 10


def test_nothing_keeps_failing_when_all_is_well_again() -> None:
    life = _life(Act(On("seal_run_specs", 1), "call", KEEPS_FAILING, seconds=10**6), hours=0.1)
    [job] = life.rows.jobs()
    assert job.status == "finished"


def test_a_failure_that_lasts_meets_its_workflow_alone() -> None:
    second = replace(PLAN.jobs[0], at_s=1000)
    act = Act(On("seal_run_specs", 1), "call", REFUSED_FOR_GOOD, seconds=10**6)
    life = play(replace(PLAN, jobs=(PLAN.jobs[0], second), acts=(act,), hours=0.6))
    assert [job.status for job in life.rows.jobs()] == ["failed", "finished"]


def test_calls_are_counted_in_the_order_in_which_jobs_come_to_them() -> None:
    second = replace(PLAN.jobs[0], at_s=1500)
    act = Act(On("seal_run_specs", 1, of="job#2"), "call", REFUSED_FOR_GOOD, seconds=1)
    life = play(replace(PLAN, jobs=(PLAN.jobs[0], second), acts=(act,), hours=0.6))
    assert [job.status for job in life.rows.jobs()] == ["finished", "failed"]


def test_a_second_worker_serves_an_own_site_while_the_first_is_away() -> None:
    acts = (
        Act(At(5), "process", "second", "site"),
        Act(At(6), "process", "kill", "site", 1200),
    )
    life = play(replace(PLAN, acts=acts, has_own_site=True))
    assert life.violations == []
    [job] = life.rows.jobs()
    [process] = life.world.processes()
    assert job.status == "finished"
    assert process.began_at is not None
    assert (process.began_at - job.created_at).total_seconds() < 60


def test_a_second_planning_process_places_jobs_while_the_first_is_away() -> None:
    acts = (
        Act(At(5), "process", "second", "planning"),
        Act(At(6), "process", "kill", "planning", 1200),
    )
    life = _life(*acts)
    [job] = life.rows.jobs()
    [process] = life.world.processes()
    assert process.began_at is not None
    assert (process.began_at - job.created_at).total_seconds() < 60


def test_each_effect_that_is_drawn_has_errors_that_are_retried() -> None:
    effects = {effect for part in PARTS for effect in effects_of(*part.workflows)}
    assert all(passing_errors_of(effect) for effect in effects)
    assert not any(set(passing_errors_of(one)) & set(final_errors_of(one)) for one in effects)


def test_the_commands_of_a_machine_that_lies_are_excused() -> None:
    life = _life(Act(At(300), "world", "machine_lies", "machine/0", 60))
    [node], [job] = life.rows.nodes(), life.rows.jobs()
    assert (node.status, job.status) == ("failed", "waiting_for_resources")
    assert life.disbelieved == set(life.machines)
