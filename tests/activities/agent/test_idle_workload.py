"""The idle workload: it runs while no run is on the machine, and is gone before any run begins."""

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from activities.agent.folders import Folders
from activities.agent.host import processes
from activities.agent.host.job_accounts import ACCOUNTS
from activities.agent.idle import lease
from activities.agent.idle.workload import PREFIX
from tests.activities.agent.agent_process import (
    LocalAgent,
    Refused,
    empty_environment,
    processes_naming,
    processes_of,
)
from tests.activities.agent.test_inspection import put_smi
from tests.activities.agent.watcher import frames_of
from tests.activities.waiting import wait_for

pytestmark = [
    pytest.mark.usefixtures("staged_before"),
    pytest.mark.skipif(os.geteuid() != 0, reason="a workload has an account: run as root"),
]
STUBBORN = "trap '' TERM; (trap '' TERM; setsid sleep 1000) & while :; do sleep 0.2; done"
"""A workload that heeds no TERM, with a child in a session of its own."""
TAKEN = 40
"""How many accounts the agents of other tests may have at once."""


class AloneAgent(LocalAgent):
    """An agent that has the accounts of its machine for itself, whatever other tests do."""

    accounts = Path()

    def command(self, verb: str) -> list[str]:
        mounted = f'mount --bind "{self.accounts}" {ACCOUNTS} && exec "$@"'
        return ["unshare", "--mount", "sh", "-c", mounted, "sh", *super().command(verb)]


@pytest.fixture
def alone(agent: LocalAgent) -> Iterator[AloneAgent]:
    agent.__class__ = AloneAgent
    assert isinstance(agent, AloneAgent)
    agent.accounts = agent.root.parent / "accounts"
    agent.accounts.mkdir(mode=0o700)
    Path(ACCOUNTS).mkdir(mode=0o700, exist_ok=True)
    other = agent.root.parent / "other"
    for number in range(1, TAKEN + 1):
        ended = other / f"runs/job-other-{number}-1"
        ended.mkdir(parents=True)
        (ended / "exit.json").write_text("{}")
        note = {"root": str(other), "run_id": ended.name}
        (agent.accounts / str(number)).write_text(json.dumps(note))
    own = agent.root / "idle/packages"
    own.parent.mkdir()
    own.symlink_to(empty_environment(agent.python))
    yield agent
    agent.call("switch_idle_workload", workload=None)


def switched(agent: LocalAgent, command: str = STUBBORN, **more: Any) -> None:
    """Switch a workload on, which starts at once when the machine is idle."""
    workload = {"revision": "r1", "command": command, "idle_after_s": 0.1, **more}
    agent.call("switch_idle_workload", workload=workload)


def workload_processes(agent: LocalAgent) -> list[int]:
    """The processes of this agent's workload; the machines of other tests may have theirs."""
    found, root = [], f"{agent.root}/idle/".encode()
    for pid in processes_of(PREFIX.rstrip("-")):
        with contextlib.suppress(OSError):  # It has ended.
            if root in Path(f"/proc/{pid}/environ").read_bytes():
                found.append(pid)
    return found


def workload_runs(agent: LocalAgent) -> list[int]:
    """The processes of the workload, waited for."""
    wait_for(lambda: len(workload_processes(agent)) >= 1, "the workload")
    return workload_processes(agent)


def keepers(agent: LocalAgent) -> list[int]:
    found = []
    for pid in processes_naming(agent.root):
        process = Path(f"/proc/{pid}")
        with contextlib.suppress(OSError):  # It has ended.
            is_supervisor = (process / "comm").read_text() == "supervise\n"  # A fork of the keeper.
            if not is_supervisor and b"keep_idle_workload" in (process / "cmdline").read_bytes():
                found.append(pid)
    return found


@contextlib.contextmanager
def paused(agent: LocalAgent) -> Iterator[None]:
    """What watches over the workload on the machine itself, standing still."""
    [record] = agent.root.glob("idle/runs/*/process.json")
    watchers = [*keepers(agent), json.loads(record.read_text())["supervisor_pid"]]
    for pid in watchers:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in watchers:
            os.kill(pid, signal.SIGCONT)


def end_lease(agent: LocalAgent) -> None:
    """Let the workload's lease be over, as after a day without the platform."""
    path = agent.root / "idle" / lease.LEASE
    found = json.loads(path.read_text())
    part = path.with_suffix(".part")
    part.write_text(json.dumps({**found, "uptime_s": found["uptime_s"] - found["lease_s"]}))
    part.rename(path)


def report(agent: LocalAgent) -> dict[str, Any]:
    workload = json.loads((agent.root / "idle/workload.json").read_text())
    return agent.call("switch_idle_workload", workload=workload)


def test_it_runs_while_idle_gives_way_before_a_run_and_comes_back_after_it(
    alone: AloneAgent,
) -> None:
    switched(alone, environment={"BASELOAD_WALLET_XMR": "4abc"})
    pids = workload_runs(alone)
    uids = {Path(f"/proc/{pid}").stat().st_uid for pid in pids}
    assert 0 not in uids, "its account is a job's"
    variables = Path(f"/proc/{pids[0]}/environ").read_bytes().split(b"\0")
    assert b"BASELOAD_WALLET_XMR=4abc" in variables
    assert os.getpriority(os.PRIO_PROCESS, pids[0]) == 19
    alone.stage("job-awake-first-0-1", "sleep 100", user="baseload-job")
    assert workload_processes(alone) == [], "gone when the staging ends"
    alone.call("start", run_id="job-awake-first-0-1")
    assert workload_processes(alone) == []
    assert list(alone.call("status", run_ids=None)["runs"]) == ["job-awake-first-0-1"]
    alone.call("end", run_id="job-awake-first-0-1", grace_s=0)
    workload_runs(alone)
    assert report(alone)["run_s"] > 0
    alone.call("switch_idle_workload", workload=None)
    assert workload_processes(alone) == []
    assert not (alone.root / "idle/workload.json").exists()


def test_it_is_gone_before_a_run_also_when_all_of_ours_was_killed(alone: AloneAgent) -> None:
    switched(alone)
    alone.stage("job-awake-late-0-1", "true", user="baseload-job")
    # The staged run keeps the workload away; a workload that started before it is made below.
    alone.call("end", run_id="job-awake-late-0-1", grace_s=0)
    own = workload_runs(alone)
    ours = [pid for pid in processes_naming(alone.root) if pid not in own]
    assert ours, "the keeper, and the supervisor"
    for pid in ours:
        os.kill(pid, signal.SIGKILL)
    process = json.loads(next(alone.root.glob("idle/runs/*/process.json")).read_text())
    os.kill(process["supervisor_pid"], signal.SIGKILL)
    assert workload_processes(alone), "it goes on without us"
    alone.stage("job-awake-next-0-1", "true", user="baseload-job")
    assert workload_processes(alone) == []


def test_the_watch_starts_its_keeper_again_and_reports_hours_and_energy(
    alone: AloneAgent, tmp_path: Path
) -> None:
    put_smi(alone, tmp_path / "bin", "")
    tool = tmp_path / "bin/nvidia-smi"
    tool.write_text('#!/bin/sh\ncase "$1" in *power*) printf "250.5\\n150\\n";; esac\n')
    switched(alone, "sleep 1000", measure_s=0.1)
    workload_runs(alone)
    for pid in keepers(alone):
        os.kill(pid, signal.SIGKILL)
    with frames_of(alone, "idle_workload", idle_workload_s=0.2) as said:
        wait_for(lambda: said() and said()[-1]["state"] == "running", "its state")
        wait_for(lambda: said()[-1]["run_s"] > 0, "its seconds")
        wait_for(lambda: bool(keepers(alone)), "the keeper")
        wait_for(lambda: (said()[-1]["energy_joules"] or 0) > 0, "its energy")
    last = said()[-1]
    assert last["revision"] == "r1"
    assert last["energy_joules"] == pytest.approx(400.5 * last["energy_s"])


def test_it_ends_by_itself_when_the_platform_stays_away_and_comes_back_with_it(
    alone: AloneAgent,
) -> None:
    switched(alone)
    pids = workload_runs(alone)
    with paused(alone):
        end_lease(alone)
        assert report(alone)["state"] == "running", "the platform has renewed the lease"
    assert pids[0] in workload_processes(alone), "which does not start it anew"
    end_lease(alone)
    wait_for(lambda: not workload_processes(alone), "its end")
    wait_for(lambda: not keepers(alone), "its keeper's end")
    with frames_of(alone, "idle_workload", idle_workload_s=0.1) as said:
        wait_for(lambda: len(said()) > 1, "what the watch says")
    assert {frame["state"] for frame in said()} == {"off"}
    assert "not been in contact for 24 h" in said()[-1]["reason"]
    assert keepers(alone) == [], "a watch alone does not start it"
    assert report(alone)["state"] == "waiting"
    workload_runs(alone)


def test_without_a_keeper_its_supervisor_ends_it_when_the_platform_stays_away(
    alone: AloneAgent,
) -> None:
    switched(alone)
    workload_runs(alone)
    for pid in keepers(alone):
        os.kill(pid, signal.SIGKILL)
    end_lease(alone)
    wait_for(lambda: not workload_processes(alone), "its end")
    wait_for(lambda: list(alone.root.glob("idle/runs/*/exit.json")), "how it ended")
    exits = [json.loads(path.read_text()) for path in alone.root.glob("idle/runs/*/exit.json")]
    assert [("not been in contact" in each["message"]) for each in exits] == [True]


def test_a_lease_goes_on_over_a_restart_and_no_clock_prolongs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, clock = Folders(str(tmp_path)), {"boot": "a", "uptime": 1000.0, "time": 5e6}
    monkeypatch.setattr(processes, "boot_id", lambda: clock["boot"])
    monkeypatch.setattr("time.clock_gettime", lambda _: clock["uptime"])
    monkeypatch.setattr("time.time", lambda: clock["time"])
    assert lease.has_ended(own), "there is none"
    lease.renew(own, {})
    clock.update(time=9e9)
    assert not lease.has_ended(own), "within one boot the wall clock does not count"
    clock.update(boot="b", uptime=20.0, time=5e6 + lease.LEASE_S - 100)
    lease.note_restart(own)
    assert not lease.has_ended(own)
    clock.update(time=0.0, uptime=120.0)
    assert lease.has_ended(own), "a hundred seconds were left at the restart"
    lease.renew(own, {})
    clock.update(boot="c", time=0.0 + lease.LEASE_S)
    assert lease.has_ended(own), "also before the restart is noted"


def test_a_machine_that_becomes_another_node_does_not_run_what_the_earlier_one_has_left(
    alone: AloneAgent,
) -> None:
    switched(alone, node_id="nod-1")
    workload_runs(alone)
    alone.call("prepare", node_id="nod-1")
    assert workload_processes(alone), "its own node is only prepared again"
    alone.call("prepare", node_id="nod-2")
    assert workload_processes(alone) == []
    assert not (alone.root / "idle/workload.json").exists()


def test_the_end_of_orphaned_runs_and_the_removal_of_what_is_unused_leave_it_alone(
    alone: AloneAgent,
) -> None:
    switched(alone)
    pids = workload_runs(alone)
    (run_id,) = [path.name for path in alone.root.glob("idle/runs/*")]
    assert alone.call("status", run_ids=None)["runs"] == {}, "so no list of runs has it"
    found = alone.call("orphans", live=[], among=[run_id], leaving=[run_id])
    assert (found["ended"].get(run_id, {}).get("elapsed_s", 0), found["alive"]) == (0, {})
    alone.call("prune", max_age_s=0)
    assert pids[0] in workload_processes(alone)


def test_a_released_machine_has_no_workload(alone: AloneAgent) -> None:
    switched(alone)
    workload_runs(alone)
    alone.call("release")
    assert workload_processes(alone) == []
    assert not (alone.root / "idle/workload.json").exists()


def test_a_node_whose_account_is_not_root_refuses_it(agent: LocalAgent) -> None:
    agent.become_ordinary()
    with pytest.raises(Refused, match="needs-root"):
        agent.call("switch_idle_workload", workload={"revision": "r1", "command": "true"})
