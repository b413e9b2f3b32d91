"""Power, network and clocks of machines, faults, and what must never happen."""

import pytest
from temporalio.exceptions import ApplicationError

from tests.simulation.contracts import Behaviour
from tests.simulation.outside.own_site import RUN, Site
from workflows.contracts.statuses import RunState
from workflows.effects import jobs, nodes, regions


def test_a_run_that_was_removed_is_not_staged_again() -> None:
    site = Site()
    site.run()
    with pytest.raises(ApplicationError, match="still runs"):
        site.do("clean_worker", jobs.CleanWorker(node=site.node, run_id=RUN))
    site.end()
    site.do("clean_worker", jobs.CleanWorker(node=site.node, run_id=RUN))

    with pytest.raises(ApplicationError, match="was removed") as refused:
        site.stage()
    assert refused.value.type == "NodeRefused"
    assert site.status().state is RunState.UNKNOWN
    assert site.end().state is RunState.UNKNOWN


def test_a_loss_of_power_loses_the_run_and_keeps_its_last_beat() -> None:
    site = Site()
    watch = site.watch()
    site.run()
    site.temporal.play(12)
    site.machine.crash(60)
    site.temporal.play(1)

    assert watch.error is not None
    assert watch.error.type == "NodeUnreachable"
    with pytest.raises(ApplicationError) as unreachable:
        site.status()
    assert unreachable.value.type == "NodeUnreachable"
    site.temporal.play(60)
    assert site.status().state is RunState.LOST
    assert site.end().elapsed_s == 10
    assert not site.process().was_cut


def test_a_restart_ends_commands_as_the_shutdown_does() -> None:
    site = Site(Behaviour(float("inf")))
    site.run()
    boot_id = site.machine.boot_id
    command = nodes.RebootNode(node=site.node, boot_id=boot_id)
    site.do("reboot_node", command)
    site.temporal.play(200)
    site.do("reboot_node", command)
    site.temporal.play(200)

    assert site.machine.boots == 2
    assert site.status().exit.reason == "node-stopping"


def test_a_wiped_machine_answers_with_another_host_key() -> None:
    site = Site(Behaviour(float("inf")))
    site.run()
    node = site.node
    site.world.strike("machine_wiped", "nod-1")

    with pytest.raises(ApplicationError) as refused:
        site.do("reach_node", nodes.ReachNode(node=node))
    assert refused.value.type == "HostKeyMismatch"
    assert site.process().was_cut
    assert site.process().state == "exited"


def test_a_machine_that_has_ended_never_answers_again() -> None:
    site = Site(Behaviour(float("inf")))
    site.run()
    site.temporal.play(7)
    site.world.machines.end(site.machine)
    site.world.calm()
    site.temporal.play(3600)

    with pytest.raises(ApplicationError) as unreachable:
        site.status()
    assert unreachable.value.type == "NodeUnreachable"
    assert site.process().was_cut
    assert site.process().measured_s == pytest.approx(7, abs=0.1)


def test_a_machine_that_has_left_its_region_refuses_the_login_until_it_joins_again() -> None:
    site = Site()
    site.do("restore_logins", nodes.RestoreLogins(node=site.node))
    site.do("restore_logins", nodes.RestoreLogins(node=site.node))
    with pytest.raises(ApplicationError) as refused:
        site.do("reach_node", nodes.ReachNode(node=site.node))
    assert refused.value.type == "LoginRefused"

    site.world.join(site.machine.minion_id)
    assert site.do("reach_node", nodes.ReachNode(node=site.node)).boot_id == site.machine.boot_id


def test_a_suspended_machine_does_not_count_the_seconds() -> None:
    site = Site()
    site.run()
    site.temporal.play(30)
    site.world.strike("machine_suspends", seconds=1000)
    site.temporal.play(1001)
    assert site.status().state is RunState.RUNNING
    site.temporal.play(31)

    assert site.status().exit.elapsed_s == pytest.approx(60, abs=0.1)


def test_a_moved_machine_answers_at_its_new_address_alone() -> None:
    site = Site()
    site.run()
    before = site.node
    watch = site.watch()
    site.world.strike("machine_moves", "nod-1")
    site.temporal.play(1)

    assert watch.error is not None
    with pytest.raises(ApplicationError) as unreachable:
        site.do("reach_node", nodes.ReachNode(node=before))
    assert unreachable.value.type == "NodeUnreachable"
    assert site.status().state is RunState.RUNNING


def test_two_live_runs_with_one_gpu_are_a_violation() -> None:
    site = Site()
    site.run(RUN)
    assert not site.world.violations()
    site.run("job-2-0-1")
    assert any("GPU 0" in found for found in site.world.violations())


def test_a_run_that_starts_on_two_machines_is_a_violation() -> None:
    site = Site()
    site.run()
    site.machine = site.world.machines.by_minion[site.world.add_machine()]
    site.run()
    assert any("started on" in found for found in site.world.violations())


def test_all_is_well_after_the_calm_and_long_commands_end() -> None:
    site = Site(Behaviour(10**6, unkillable_s=600))
    site.run()
    for what in site.world.faults:
        if what not in ("machine_lost", "machine_wiped", "machine_moves", "machine_reboots"):
            site.world.strike(what, "nod-1", seconds=10**5)
    site.world.strike("site_away", "reg-1", seconds=10**5)
    site.world.calm()
    site.temporal.play(3600)

    assert site.do("check_site", regions.CheckSite(region_id="reg-1"))
    assert site.process().state == "exited"
    assert not site.world.violations()


def test_a_site_that_is_away_does_not_answer() -> None:
    site = Site()
    site.do("reach_node", nodes.ReachNode(node=site.node))
    site.world.strike("site_away", "reg-1", seconds=100)

    assert not site.begin("check_site", regions.CheckSite(region_id="reg-1")).is_over
    with pytest.raises(ApplicationError) as unreachable:
        site.do("reach_node", nodes.ReachNode(node=site.node))
    assert unreachable.value.type == "NodeUnreachable"


def test_a_fault_that_happens_again_lasts_to_the_end_of_the_longer_one() -> None:
    site = Site()
    site.world.strike("disk_full", "nod-1", seconds=10)
    site.do("reach_node", nodes.ReachNode(node=site.node))
    site.world.strike("disk_full", "nod-1", seconds=10)
    site.temporal.play(5)
    site.world.strike("disk_full", "nod-1", seconds=100)
    site.temporal.play(50)
    assert site.machine.is_disk_full
    site.temporal.play(60)
    assert not site.machine.is_disk_full
