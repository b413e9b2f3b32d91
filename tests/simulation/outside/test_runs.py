"""What machines do with runs, as the agent does."""

import pytest
from temporalio.exceptions import ApplicationError

from tests.simulation.behaviour import Behaviour
from tests.simulation.outside.own_site import NEXT, RUN, Site
from tests.simulation.outside.run_names import name_of
from workflows.contracts.statuses import RunState
from workflows.effects import jobs, nodes


def test_a_start_after_an_end_starts_nothing() -> None:
    site = Site()
    site.stage()
    assert site.end().exit.reason == "never-started"
    report = site.do("start_worker", jobs.StartWorker(node=site.node, run_id=RUN))

    assert report.state is RunState.EXITED
    assert not list(site.world.processes())


def test_a_second_start_finds_the_run_started() -> None:
    site = Site()
    site.run()
    site.do("start_worker", jobs.StartWorker(node=site.node, run_id=RUN))

    assert site.process().starts == 1
    assert not site.world.violations()


def test_a_run_that_was_not_staged_does_not_start() -> None:
    site = Site()
    with pytest.raises(ApplicationError, match="not staged") as refused:
        site.do("start_worker", jobs.StartWorker(node=site.node, run_id=RUN))
    assert refused.value.type == "NodeRefused"


def test_a_command_that_ignores_sigterm_ends_by_the_kill_after_the_grace() -> None:
    site = Site(Behaviour(float("inf"), ignores_sigterm=True))
    site.run()
    began_s = site.temporal.seconds
    report = site.end(grace_s=10)

    assert report.exit.reason == "ended"
    assert site.temporal.seconds - began_s == pytest.approx(10, abs=0.1)


def test_a_command_that_cannot_be_killed_is_refused_until_it_can() -> None:
    site = Site(Behaviour(float("inf"), unkillable_s=300))
    site.run()
    with pytest.raises(ApplicationError, match="still alive") as refused:
        site.end()
    assert refused.value.type == "OutcomeUnknown"
    assert site.process().state == "running"
    assert site.process().measured_s > 40

    site.temporal.play(300)
    report = site.end()
    assert report.exit.reason == "ended-after-supervisor-loss"
    assert report.elapsed_s == site.process().measured_s


def test_orphans_end_and_live_runs_go_on() -> None:
    site = Site(Behaviour(float("inf")))
    site.run(RUN)
    site.run("job-2-0-1", gpu=1)
    site.temporal.play(7)
    (seen,) = site.orphans(live=("job-2-0-1",), leaving=("job-3-0-1",))[:1]

    assert (seen.run_id, seen.alive) == (RUN, "")
    assert site.status(RUN).state is RunState.EXITED
    assert site.status("job-2-0-1").state is RunState.RUNNING
    assert site.status("job-3-0-1").exit.reason == "never-started"


def test_an_orphan_is_reported_until_an_hour_has_passed() -> None:
    site = Site(Behaviour(float("inf")))
    site.run()
    assert [run.run_id for run in site.orphans()] == [RUN]
    assert [run.run_id for run in site.orphans()] == [RUN]
    site.temporal.play(3601)
    assert [run.run_id for run in site.orphans()] == [RUN]
    assert not site.orphans()


def test_runs_of_an_earlier_node_are_ended_and_not_billed() -> None:
    site = Site(Behaviour(float("inf")))
    site.run()
    other = site.node.model_copy(update={"node_id": "nod-2"})
    among = site.do("list_runs", nodes.ListRuns(node=other)).run_ids
    command = nodes.EndOrphanedRuns(node=other, among=among, live=())

    assert not site.do("end_orphaned_runs", command).runs
    assert site.status().state is RunState.EXITED


def test_runs_of_an_earlier_node_that_cannot_be_ended_are_told_apart() -> None:
    site = Site(Behaviour(float("inf"), unkillable_s=300))
    site.run()
    other = site.node.model_copy(update={"node_id": "nod-2"})
    among = site.do("list_runs", nodes.ListRuns(node=other)).run_ids
    command = nodes.EndOrphanedRuns(node=other, among=among, live=())

    answer = site.do("end_orphaned_runs", command)
    assert not answer.runs
    assert [run.name for run in answer.earlier_runs] == [name_of(RUN, "nod-1")]
    assert "still alive" in answer.earlier_runs[0].alive

    site.temporal.play(300)
    assert site.do("end_orphaned_runs", command) == nodes.OrphanedRunsEnded()


def test_nothing_is_staged_without_a_run_spec_or_room_on_the_disk() -> None:
    site = Site()
    site.world.strike("disk_full", seconds=100)
    with pytest.raises(ApplicationError) as full:
        site.stage()
    assert full.value.type == "WorkRefused"
    site.temporal.play(101)
    command = site.staging()
    site.world.discard("job-1", "run_specs", 1)
    with pytest.raises(ApplicationError) as missing:
        site.do("stage_worker", command)
    assert missing.value.type == "NotFound"


def test_a_staging_goes_on_when_its_worker_process_is_killed() -> None:
    site = Site()
    call = site.begin("stage_worker", site.staging())
    call.close()
    site.temporal.play(1000)

    assert site.status().state is RunState.STAGED


def test_an_end_before_the_staging_is_over_keeps_the_run_from_starting() -> None:
    site = Site()
    call = site.begin("stage_worker", site.staging())
    site.end()
    site.temporal.play_until(lambda: call.is_over, 1000)
    report = site.do("start_worker", jobs.StartWorker(node=site.node, run_id=RUN))

    assert report.exit.reason == "never-started"
    assert not list(site.world.processes())


def test_a_command_that_hangs_ends_only_when_it_wakes() -> None:
    site = Site()
    site.run()
    site.world.strike("process_hangs", "job-1", seconds=500)
    with pytest.raises(ApplicationError, match="still alive"):
        site.end()
    site.temporal.play(500)

    assert site.process().state == "exited"
    assert not site.process().succeeded


def test_a_service_that_fails_first_succeeds_in_a_later_attempt() -> None:
    site = Site(Behaviour(5.0, fails_first=1))
    site.run(RUN)
    site.temporal.play(6)
    site.run(NEXT)
    site.temporal.play(6)

    assert site.status(RUN).exit.exit_code == 1
    assert site.status(NEXT).exit.exit_code == 0
