"""Machines of the simulated clouds: their whole life, and what goes wrong in it."""

from collections.abc import Generator
from datetime import timedelta

import pytest

from tests.simulation.contracts import Attempt, CutOff
from tests.simulation.outside.clouds.commands import (
    LEASE,
    NAME,
    OTHER_ZONE,
    ZONE,
    creation,
    machine,
    offer,
    termination,
)
from tests.simulation.outside.clouds.stage import Stage
from workflows.contracts.errors import (
    CAPACITY_EXHAUSTED,
    NOT_YET,
    REQUEST_REFUSED,
    STALE,
    UNAVAILABLE,
)
from workflows.contracts.statuses import MachineState
from workflows.effects.machines import (
    create_machine,
    describe_machine,
    terminate_machine,
    wait_for_machine,
)

SEEDS = range(1, 13)


# ── a machine ───────────────────────────────────────────────────────────────────────────────


def test_a_machine_is_made_and_shows_its_host_key_only_when_it_has_booted() -> None:
    stage = Stage()
    assert stage.call(create_machine, creation()).state in (
        MachineState.MAKING,
        MachineState.RUNNING,
    )
    assert stage.failure(wait_for_machine, machine()) == NOT_YET
    stage.clock.pass_time(60)
    seen = stage.call(wait_for_machine, machine())
    assert seen.is_reachable
    assert (seen.host, seen.minion_id) == (stage.boxes.all[0].host, stage.boxes.all[0].minion_id)


def test_a_repeated_creation_finds_the_machine() -> None:
    stage = Stage()
    first = stage.make()
    assert stage.call(create_machine, creation()).provider_machine_id == first.provider_machine_id
    assert len(stage.boxes.all) == 1


def test_a_machine_of_another_offer_is_terminated_first() -> None:
    stage = Stage()
    stage.make(spot=False)
    assert stage.failure(create_machine, creation(spot=True)) == NOT_YET
    stage.clock.pass_time(120)
    assert stage.call(create_machine, creation(spot=True)).offer_label == offer().label


def test_a_machine_costs_until_its_deletion_is_done() -> None:
    stage = Stage()
    seen = stage.make()
    assert stage.failure(terminate_machine, termination()) == NOT_YET
    assert stage.call(describe_machine, machine()).state is MachineState.ENDING
    [costs] = stage.clouds.cloud_machines()
    assert costs.is_running
    gone = stage.end(provider_machine_id=seen.provider_machine_id)
    [cost] = stage.clouds.cloud_machines()
    assert (gone.state, gone.began_at, gone.ended_at) == (
        MachineState.GONE,
        cost.made_at,
        cost.ended_at,
    )
    assert not stage.boxes.all[0].is_up


def test_a_stale_termination_ends_nothing() -> None:
    stage = Stage()
    stage.make()
    stage.rows.sequences[LEASE] = 5
    assert stage.failure(terminate_machine, termination(sequence=4)) == STALE
    assert stage.call(describe_machine, machine()).state is MachineState.RUNNING


def test_a_stale_creation_makes_nothing() -> None:
    stage = Stage()
    stage.rows.sequences[LEASE] = 5
    stale = creation().model_copy(update={"sequence": 4})
    assert stage.failure(create_machine, stale) == STALE
    assert stage.call(describe_machine, machine()).state is MachineState.GONE


def test_a_deletion_by_name_leaves_a_remark_to_the_last_attempt() -> None:
    remarks = []
    for seed in range(1, 150):
        stage = Stage(seed)
        stage.make()
        remarks.append(stage.end().reason)
    assert any("deleted by its name" in remark for remark in remarks)
    assert remarks.count("") > 130


def test_a_machine_type_that_the_catalogue_lacks_is_refused() -> None:
    stage = Stage()
    command = creation()
    strange = command.offer.model_copy(update={"machine_type": "a9-none"})
    command = command.model_copy(update={"offer": strange})
    assert stage.failure(create_machine, command) == REQUEST_REFUSED


def test_a_zone_without_our_subnetwork_takes_no_machine() -> None:
    stage = Stage()
    elsewhere = creation("europe-west4-a")
    assert stage.failure(create_machine, elsewhere) == REQUEST_REFUSED


def test_two_zones_are_not_to_be_asked_for_one_name() -> None:
    stage = Stage()
    stage.make()
    assert stage.clouds.violations() == []
    stage.make(zone=OTHER_ZONE)
    assert len(stage.clouds.violations()) == 1


# ── what Google does by itself ──────────────────────────────────────────────────────────────


def test_a_preempted_machine_runs_through_its_notice_and_is_then_gone() -> None:
    stage = Stage()
    seen = stage.make()
    stage.clouds.strike("preempted", NAME)
    at = stage.clock.now()
    stage.clock.pass_time(29)
    assert stage.boxes.all[0].is_up
    stage.clock.pass_time(2)
    assert not stage.boxes.all[0].is_up
    stage.clock.pass_time(120)
    assert stage.call(describe_machine, machine()).state is MachineState.GONE
    gone = stage.end(provider_machine_id=seen.provider_machine_id)
    assert gone.ended_at == at + timedelta(seconds=30)


def test_a_machine_that_is_preempted_while_it_is_made_has_no_capacity() -> None:
    stage = Stage()
    stage.clock.later(3, lambda: stage.clouds.strike("preempted", NAME))
    assert stage.failure(create_machine, creation()) == CAPACITY_EXHAUSTED
    assert stage.call(describe_machine, machine()).state is MachineState.GONE


def test_a_machine_on_demand_stays_stopped_when_its_host_fails() -> None:
    stage = Stage()
    stage.make(spot=False)
    stage.clouds.strike("preempted", NAME)
    stage.clock.pass_time(600)
    assert stage.call(describe_machine, machine()).state is MachineState.STOPPED
    [cost] = stage.clouds.cloud_machines()
    assert not cost.is_running
    assert cost.ended_at is None
    stage.end()
    assert stage.call(describe_machine, machine()).state is MachineState.GONE


def test_a_plain_machine_on_demand_survives_its_host() -> None:
    stage = Stage()
    stage.make(spot=False, gpus=0)
    stage.clouds.strike("preempted", NAME)
    assert stage.call(describe_machine, machine()).state is MachineState.RUNNING


def test_google_ends_a_machine_at_its_deadline() -> None:
    stage = Stage()
    stage.make(lifetime_s=3600)
    stage.clock.pass_time(3400)
    assert stage.call(describe_machine, machine()).state is MachineState.RUNNING
    stage.clock.pass_time(300)
    assert stage.call(describe_machine, machine()).state is MachineState.GONE


def test_a_deadline_can_come_early_and_comes_to_no_machine_without_one() -> None:
    stage = Stage()
    stage.make()
    stage.clouds.strike("deadline", NAME)
    stage.clock.pass_time(100)
    assert stage.call(describe_machine, machine()).state is MachineState.GONE
    stage.make(lifetime_s=200 * 86400)
    stage.clouds.strike("deadline", NAME)
    assert stage.call(describe_machine, machine()).state is MachineState.RUNNING


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_cancelled_creation_is_done_to_its_end_first(steps: int) -> None:
    stage = Stage()
    attempt = Attempt("create_machine", "workflow", "run", "1", 1, "worker")
    running = stage.clouds.effects["create_machine"](attempt, creation())
    assert isinstance(running, Generator)
    for _ in range(steps):
        next(running)
        stage.clock.pass_time(1)
    running.throw(CutOff())
    with pytest.raises(CutOff):
        stage.play(running)
    assert stage.call(describe_machine, machine()).state is MachineState.RUNNING


# ── faults of creations ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("seed", SEEDS)
def test_no_capacity_leaves_nothing_behind(seed: int) -> None:
    stage = Stage(seed)
    stage.clouds.strike("no_capacity", ZONE)
    assert stage.failure(create_machine, creation()) == CAPACITY_EXHAUSTED
    stage.clock.pass_time(3600)
    assert not stage.boxes.all
    assert stage.call(create_machine, creation(OTHER_ZONE)).zone == OTHER_ZONE


def test_a_lost_reply_leaves_a_machine_that_the_next_attempt_finds() -> None:
    stage = Stage()
    stage.clouds.strike("cloud_forgets")
    outcomes = [stage.failure(create_machine, creation()) for _ in range(2)]
    assert outcomes == [UNAVAILABLE, ""]
    stage.clock.pass_time(60)
    assert len(stage.boxes.all) == 1


def test_late_machines_are_made_though_nobody_waits_for_them() -> None:
    came_late = 0
    for seed in SEEDS:
        stage = Stage(seed)
        stage.clouds.strike("makes_late")
        assert stage.failure(create_machine, creation()) in ("", UNAVAILABLE)
        was_unknown = stage.call(describe_machine, machine()).state is MachineState.GONE
        stage.clock.pass_time(1000)
        [made] = stage.clouds.cloud_machines()
        assert made.came_late is was_unknown
        came_late += made.came_late
    assert 0 < came_late < len(SEEDS)


def test_a_machine_may_be_made_though_it_was_said_to_have_failed() -> None:
    twice = 0
    for seed in SEEDS:
        stage = Stage(seed)
        stage.clouds.strike("makes_twice")
        outcome = stage.failure(create_machine, creation())
        stage.clock.pass_time(1500)
        [made] = stage.clouds.cloud_machines()
        assert (outcome == CAPACITY_EXHAUSTED) is made.came_late
        twice += made.came_late
    assert 0 < twice < len(SEEDS)


def test_a_mute_machine_runs_and_nobody_answers_at_its_address() -> None:
    mute = 0
    for seed in SEEDS:
        stage = Stage(seed)
        stage.clouds.strike("boots_mute")
        seen = stage.make()
        assert seen.is_reachable
        mute += not stage.boxes.all
    assert mute


def test_a_machine_may_show_its_host_key_late() -> None:
    late = 0
    for seed in SEEDS:
        stage = Stage(seed)
        stage.clouds.strike("key_late")
        stage.call(create_machine, creation())
        stage.clock.pass_time(120)
        late += stage.failure(wait_for_machine, machine()) == NOT_YET
        stage.clock.pass_time(1500)
        assert stage.call(wait_for_machine, machine()).is_reachable
    assert late
