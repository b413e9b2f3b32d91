"""What a watch tells jobs, and when it ends."""

import pytest

from tests.simulation.behaviour import Behaviour
from tests.simulation.outside.own_site import Site
from workflows.contracts.statuses import RunState


def test_a_command_that_ends_is_told_to_its_job_with_the_measured_seconds() -> None:
    site = Site()
    watch = site.watch()
    site.run()
    site.temporal.play(61)

    ((workflow_id, signal, told),) = site.temporal.signals
    assert (workflow_id, signal, told.node_id) == ("job/job-1", "worker_exited", "nod-1")
    assert told.exit.succeeded
    assert told.exit.elapsed_s == pytest.approx(60, abs=0.1)
    assert site.process().succeeded
    assert not watch.is_over


def test_a_run_without_its_supervisor_is_lost_and_its_job_is_told_to_look() -> None:
    site = Site()
    site.watch()
    site.run()
    site.temporal.play(12)
    site.world.strike("supervisor_killed", "job-1")
    site.temporal.play(6)

    assert [signal for _, signal, _ in site.temporal.signals] == ["node_reachable"]
    assert site.status().state is RunState.LOST
    assert site.status().elapsed_s == 10
    assert site.end().exit.reason == "ended-after-supervisor-loss"
    assert site.process().state == "exited"


def test_a_short_outage_is_survived_and_a_long_one_fails_the_watch() -> None:
    site = Site()
    watch = site.watch()
    site.machine.be_unreachable(5)
    site.temporal.play(30)
    assert not watch.is_over

    site.machine.be_unreachable(60)
    site.temporal.play(30)
    assert watch.error is not None
    assert watch.error.type == "NodeUnreachable"


def test_the_next_watch_repeats_the_exits_of_runs_that_are_there() -> None:
    site = Site()
    site.run()
    site.temporal.play(100)
    site.watch()
    site.temporal.play(1)

    assert [signal for _, signal, _ in site.temporal.signals] == ["worker_exited"]


def test_a_signal_that_temporal_did_not_take_is_sent_again() -> None:
    site = Site()
    site.watch()
    site.run()
    site.temporal.is_away = True
    site.temporal.play(100)
    site.temporal.is_away = False
    site.temporal.play(31)

    assert [signal for _, signal, _ in site.temporal.signals] == ["worker_exited"]


def test_a_watch_that_is_cut_off_sends_nothing_any_more() -> None:
    site = Site()
    watch = site.watch()
    site.run()
    site.temporal.is_away = True
    site.temporal.play(70)
    watch.cut_off()
    site.temporal.is_away = False
    site.temporal.play(100)

    assert not site.temporal.signals
    assert not site.machine.connections


def test_signals_come_late_and_twice_when_the_chances_say_so() -> None:
    site = Site()
    site.world.chances = 1.0
    site.watch()
    site.run()
    site.temporal.play(1000)

    assert [signal for _, signal, _ in site.temporal.signals] == ["worker_exited"] * 2


def test_an_idle_run_on_a_leased_machine_is_told_once_in_a_watch() -> None:
    site = Site(Behaviour(float("inf"), idles_after_s=30))
    site.watch()
    site.run(idle_timeout_s=60, ephemeral=True)
    site.temporal.play(200)

    ((_, signal, told),) = site.temporal.signals
    assert signal == "worker_idle"
    assert told.idle_s >= 60
    assert site.status().idle_s == pytest.approx(170, abs=1)


def test_nobody_looks_whether_a_run_on_an_own_machine_is_idle() -> None:
    site = Site(Behaviour(float("inf"), idles_after_s=30))
    site.watch()
    site.run(idle_timeout_s=60)
    site.temporal.play(200)

    assert not site.temporal.signals
    assert site.status().idle_s == 0
