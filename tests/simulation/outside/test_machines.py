"""What machines do with runs, as the agent and the activities of a site do."""

from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from tests.simulation.contracts import Behaviour, Process
from tests.simulation.outside.fake_temporal import Installation
from workflows.contracts.jobs import WorkerAssignment
from workflows.contracts.nodes import NodeAddress
from workflows.contracts.statuses import RunState
from workflows.effects import jobs, nodes, regions

RUN = "job-1-0-1"
NEXT = "job-1-0-2"


class Site(Installation):
    """One own machine with two GPUs, as the node `nod-1`."""

    def __init__(self, behaviour: Behaviour = Behaviour(60.0)) -> None:  # noqa: B008 - frozen
        super().__init__()
        minion_id = self.world.add_machine(gpus=2)
        self.machine = self.world.machines.by_minion[minion_id]
        self.world.behave("job-1", behaviour)

    @property
    def node(self) -> NodeAddress:
        return NodeAddress(
            node_id="nod-1",
            region_id="reg-1",
            host=self.machine.host,
            port=22,
            minion_id=self.machine.minion_id,
        )

    def stage(self, run_id: str = RUN, **more: Any) -> Any:
        return self.do("stage_worker", self.staging(run_id, **more))

    def staging(self, run_id: str = RUN, gpu: int = 0, **more: Any) -> jobs.StageWorker:
        job_id, worker, attempt = run_id.rsplit("-", 2)
        self.world.keep_run_specs(job_id, int(attempt))
        assigned = WorkerAssignment(worker=int(worker), node=self.node, gpu_indices=(gpu,))
        return jobs.StageWorker(
            node=self.node,
            run_id=run_id,
            run_spec=f"orders/{job_id}/{attempt}/{worker}",
            assignment=assigned,
            **more,
        )

    def run(self, run_id: str = RUN, **more: Any) -> None:
        self.stage(run_id, **more)
        self.do("start_worker", jobs.StartWorker(node=self.node, run_id=run_id))

    def status(self, run_id: str = RUN) -> Any:
        return self.do("get_run_status", jobs.GetRunStatus(node=self.node, run_id=run_id))

    def end(self, run_id: str = RUN, grace_s: int = 10) -> Any:
        command = jobs.EndWorker(node=self.node, run_id=run_id, grace_s=grace_s)
        return self.do("end_worker", command)

    def process(self) -> Process:
        return next(iter(self.world.processes()))

    def watch(self) -> Any:
        return self.begin("watch_node", nodes.WatchNode(node=self.node))

    def orphans(self, *, live: tuple[str, ...] = (), leaving: tuple[str, ...] = ()) -> Any:
        among = self.do("list_runs", nodes.ListRuns(node=self.node)).run_ids
        command = nodes.EndOrphanedRuns(node=self.node, among=among, live=live, leaving=leaving)
        return self.do("end_orphaned_runs", command).runs


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


def test_a_start_after_an_end_starts_nothing() -> None:
    site = Site()
    site.stage()
    assert site.end().exit.reason == "never-started"
    report = site.do("start_worker", jobs.StartWorker(node=site.node, run_id=RUN))

    assert report.state is RunState.EXITED
    assert not list(site.world.processes())


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
    site.world.machines.end(site.machine)
    site.world.calm()
    site.temporal.play(3600)

    with pytest.raises(ApplicationError) as unreachable:
        site.status()
    assert unreachable.value.type == "NodeUnreachable"
    assert site.process().was_cut


def test_a_machine_that_has_left_its_region_refuses_the_login_until_it_joins_again() -> None:
    site = Site()
    site.do("restore_logins", nodes.RestoreLogins(node=site.node))
    site.do("restore_logins", nodes.RestoreLogins(node=site.node))
    with pytest.raises(ApplicationError) as refused:
        site.do("reach_node", nodes.ReachNode(node=site.node))
    assert refused.value.type == "LoginRefused"

    site.world.join(site.machine.minion_id)
    assert site.do("reach_node", nodes.ReachNode(node=site.node)).boot_id == site.machine.boot_id


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


def test_a_state_snapshot_goes_on_where_the_earlier_attempt_had_come() -> None:
    site = Site(Behaviour(100.0, saves_state=True))
    site.run()
    site.temporal.play(65)
    save = jobs.SaveSnapshot(node=site.node, run_id=RUN, at=site.temporal.now())
    assert site.do("save_snapshot", save).outcome is jobs.SnapshotOutcome.SAVED
    site.end()
    staged = site.stage(NEXT, restores_state=True)
    assert staged.state_saved_at == save.at

    site.do("start_worker", jobs.StartWorker(node=site.node, run_id=NEXT))
    site.temporal.play(41)
    assert site.status(NEXT).exit.succeeded


def test_an_output_that_is_stored_is_not_stored_again() -> None:
    site = Site()
    site.run()
    site.temporal.play(61)
    command = jobs.StoreOutput(node=site.node, run_id=RUN)
    stored = site.do("store_output", command)
    site.machine.be_unreachable(1000)

    assert site.do("store_output", command).stored_bytes == stored.stored_bytes
    site.world.discard("job-1", "outputs")
    with pytest.raises(ApplicationError):
        site.do("store_output", command)


def test_a_transfer_that_is_cut_off_stores_nothing() -> None:
    site = Site()
    site.run()
    call = site.begin("store_output", jobs.StoreOutput(node=site.node, run_id=RUN))
    call.cut_off()
    site.temporal.play(1000)

    assert not site.world.store.names("outputs/job-1")


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


def test_the_store_refuses_everything_while_it_is_away() -> None:
    site = Site()
    command = site.staging()
    site.world.strike("store_away", seconds=100)
    with pytest.raises(ApplicationError, match="does not answer"):
        site.do("stage_worker", command)
    site.world.strike("heal")
    site.do("stage_worker", command)


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


def test_a_suspended_machine_does_not_count_the_seconds() -> None:
    site = Site()
    site.run()
    site.temporal.play(30)
    site.world.strike("machine_suspends", seconds=1000)
    site.temporal.play(1001)
    assert site.status().state is RunState.RUNNING
    site.temporal.play(31)

    assert site.status().exit.elapsed_s == pytest.approx(60, abs=0.1)


def test_a_command_that_hangs_ends_only_when_it_wakes() -> None:
    site = Site()
    site.run()
    site.world.strike("process_hangs", "job-1", seconds=500)
    with pytest.raises(ApplicationError, match="still alive"):
        site.end()
    site.temporal.play(500)

    assert site.process().state == "exited"
    assert not site.process().succeeded


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


def test_a_service_that_fails_first_succeeds_in_a_later_attempt() -> None:
    site = Site(Behaviour(5.0, fails_first=1))
    site.run(RUN)
    site.temporal.play(6)
    site.run(NEXT)
    site.temporal.play(6)

    assert site.status(RUN).exit.exit_code == 1
    assert site.status(NEXT).exit.exit_code == 0
