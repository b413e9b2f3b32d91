"""Runs that nobody claims, and runs that go: ended, told, and removed with all that they had."""

import json
import os
import signal
import subprocess
from typing import Any

import pytest

from activities.agent import folders
from activities.agent.errors import RefusedError
from activities.agent.host import cgroups, process_tree, processes
from activities.agent.runs import clean, end, stage
from tests.activities.agent.agent_process import LocalAgent, Refused, spec
from tests.activities.archives import file, packed
from tests.activities.waiting import wait_for

pytestmark = pytest.mark.usefixtures("staged_before")

RUN = "job-gone-0-1"


def test_strays_are_ended_and_the_others_left_alone(agent: LocalAgent) -> None:
    agent.run("job-stray-0-1", "sleep 600")
    agent.run("job-kept-0-1", "sleep 600")
    ended = agent.call("orphans", live=["job-kept-0-1"], among=["job-stray-0-1", "job-kept-0-1"])[
        "ended"
    ]
    assert list(ended) == ["job-stray-0-1"]
    assert ended["job-stray-0-1"]["elapsed_s"] > 0
    assert agent.look("job-kept-0-1")["state"] == "running"


def test_strays_of_another_control_plane_on_the_same_machine_are_left_alone(
    agent: LocalAgent,
) -> None:
    agent.run("job-ours-0-1", "sleep 600", owner="SHA256:ours")
    agent.run("job-theirs-0-1", "sleep 600", owner="SHA256:theirs")
    both = ["job-ours-0-1", "job-theirs-0-1"]
    ended = agent.call("orphans", live=[], among=both, owner="SHA256:ours")["ended"]
    assert list(ended) == ["job-ours-0-1"]
    assert agent.look("job-theirs-0-1")["state"] == "running"


def test_a_run_that_came_after_the_list_of_what_is_live_is_left_alone(agent: LocalAgent) -> None:
    agent.run("job-new-0-1", "sleep 600")
    assert agent.call("orphans", live=[], among=["job-old-0-1"])["ended"] == {}
    assert agent.look("job-new-0-1")["state"] == "running"


def test_a_run_that_was_staged_too_late_can_never_start(agent: LocalAgent) -> None:
    agent.call("stage", run_id="job-late-0-1", spec=spec("sleep 600"))
    ended = agent.call("orphans", live=[], among=["job-late-0-1"])["ended"]
    assert ended["job-late-0-1"]["elapsed_s"] == 0
    assert agent.call("start", run_id="job-late-0-1")["state"] == "exited"


def half_staged(agent: LocalAgent, run_id: str, owner: str) -> None:
    """Its node was lost while its packages were installed."""
    agent.put_input(run_id, packed(file("given")), owner=owner)
    with pytest.raises(Refused):
        agent.call("stage", run_id=run_id, code_sha256="0" * 64, spec=spec("true", owner=owner))
    assert agent.look(run_id)["state"] == "unknown"


def test_a_run_that_was_staged_in_part_is_ended_and_can_be_removed(agent: LocalAgent) -> None:
    for run_id in ("job-half-0-1", "job-kept-0-1", "job-new-0-1"):
        half_staged(agent, run_id, "SHA256:ours")
    half_staged(agent, "job-theirs-0-1", "SHA256:theirs")
    among = ["job-half-0-1", "job-kept-0-1", "job-theirs-0-1"]
    asked = {"live": ["job-kept-0-1"], "among": among, "owner": "SHA256:ours"}
    ended = agent.call("orphans", **asked)["ended"]
    assert {run_id: state["elapsed_s"] for run_id, state in ended.items()} == {"job-half-0-1": 0}
    agent.stage("job-half-0-1", "echo too late", owner="SHA256:ours")
    assert agent.call("start", run_id="job-half-0-1")["state"] == "exited"
    for run_id in ("job-kept-0-1", "job-new-0-1", "job-theirs-0-1"):
        assert agent.look(run_id)["state"] == "unknown"
        assert agent.path(run_id, "input/given").exists()
    assert agent.call("clean", run_ids=["job-half-0-1"])["removed"] == ["job-half-0-1"]
    assert not agent.path("job-half-0-1").exists()


def test_a_run_that_cannot_be_killed_is_measured_until_it_has_ended_and_saves_no_other(
    agent: LocalAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck, other = "job-a-0-1", "job-b-0-1"
    agent.run(stuck, "exec sleep 600")
    agent.run(other, "sleep 600")
    wait_for(lambda: agent.document(stuck, "process.json")["pid"], "its first process")
    process = agent.document(stuck, "process.json")
    os.kill(process["supervisor_pid"], signal.SIGKILL)
    wait_for(lambda: agent.look(stuck)["state"] == "lost", "the loss to show")
    send = process_tree.send

    def spare(targets: list[processes.Process], number: int) -> None:
        """A process in uninterruptible sleep hears no signal."""
        send([one for one in targets if one.pid != process["pid"]], number)

    request = {"root": str(agent.root), "live": [], "among": [stuck, other]}
    with monkeypatch.context() as asleep:
        asleep.setattr(process_tree, "KILL_S", 0.1)
        asleep.setattr(process_tree, "send", spare)
        asleep.setattr(cgroups, "folders_of", lambda _: [])
        first = clean.orphans(request)
        second = clean.orphans({**request, "among": [], "leaving": [stuck]})
    assert list(first["ended"]) == [other]
    (before,), (later,) = first["alive"].values(), second["alive"].values()
    assert before["state"] == later["state"] == "lost"
    assert str(process["pid"]) in later["why"]
    assert 0 < before["elapsed_s"] < later["elapsed_s"]
    ended = clean.orphans({**request, "leaving": [stuck]})
    assert ended["alive"] == {}
    assert ended["ended"][stuck]["elapsed_s"] >= later["elapsed_s"]


def test_a_leaving_run_that_is_not_here_has_ended_and_can_never_start(agent: LocalAgent) -> None:
    agent.call("clean", run_ids=["job-tidied-0-1"])
    leaving = ["job-tidied-0-1", "job-unheard-0-1"]
    ended = agent.call("orphans", live=[], among=[], leaving=leaving)["ended"]
    assert {run_id: state["elapsed_s"] for run_id, state in ended.items()} == dict.fromkeys(
        leaving, 0
    )
    agent.stage("job-unheard-0-1", "sleep 600")
    assert agent.call("start", run_id="job-unheard-0-1")["state"] == "exited"


def test_cleaning_removes_ended_runs_and_keeps_living_ones(agent: LocalAgent) -> None:
    agent.run("job-done-0-1", "true")
    agent.exit_of("job-done-0-1")
    agent.run("job-live-0-1", "sleep 600")
    answer = agent.call("clean", run_ids=["job-done-0-1", "job-live-0-1", "job-none-0-1"])
    assert answer["removed"] == ["job-done-0-1", "job-none-0-1"]
    assert answer["kept"] == ["job-live-0-1"]
    assert agent.look("job-done-0-1")["state"] == "unknown"


def test_what_arrives_for_a_run_after_its_removal_is_refused_and_leaves_nothing(
    agent: LocalAgent,
) -> None:
    agent.call("clean", run_ids=[RUN])
    with pytest.raises(Refused) as caught:
        agent.stage(RUN, "sleep 600")
    assert caught.value.code == "removed"
    with pytest.raises(subprocess.CalledProcessError, match="3"):
        agent.put_input(RUN, packed(file("given")))
    assert list((agent.root / "runs").iterdir()) == []


def test_a_run_that_is_ended_again_after_its_removal_is_not_made_anew(agent: LocalAgent) -> None:
    agent.run(RUN, "sleep 600")
    assert agent.call("end", run_id=RUN, grace_s=0)["state"] == "exited"
    agent.call("clean", run_ids=[RUN])
    again = agent.call("end", run_id=RUN, grace_s=0)
    assert (again["state"], again["tree_gone"]) == ("unknown", True)
    assert list((agent.root / "runs").iterdir()) == []


def test_a_run_that_is_removed_while_it_is_ended_leaves_nothing(
    agent: LocalAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_lock = folders.take_lock

    def removed_meanwhile(path: str, wait: bool) -> int | None:
        agent.call("clean", run_ids=[RUN])
        agent.path(RUN).mkdir()  # It goes on as if nothing had been.
        return take_lock(path, wait)

    monkeypatch.setattr(end, "take_lock", removed_meanwhile)
    end.end({"root": str(agent.root), "run_id": RUN})
    assert list((agent.root / "runs").iterdir()) == []


def test_a_run_that_is_removed_while_it_is_staged_leaves_nothing(
    agent: LocalAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_work = stage._make_work

    def removed_meanwhile(*asked: Any) -> None:
        agent.call("clean", run_ids=[RUN])
        agent.path(RUN).mkdir()  # It goes on as if nothing had been.
        make_work(*asked)

    monkeypatch.setattr(stage, "_make_work", removed_meanwhile)
    with pytest.raises(RefusedError, match="it was removed"):
        stage.stage({"root": str(agent.root), "run_id": RUN, "spec": spec("sleep 600")})
    assert list((agent.root / "runs").iterdir()) == []


def test_that_a_run_was_removed_is_forgotten_with_the_caches(agent: LocalAgent) -> None:
    agent.call("clean", run_ids=[RUN])
    agent.call("prune", max_age_s=600)
    assert [mark.name for mark in (agent.root / "removed").iterdir()] == [RUN]
    agent.call("prune", max_age_s=-1)
    assert list((agent.root / "removed").iterdir()) == []


def test_what_is_put_into_a_run_that_is_being_removed_does_not_save_it(agent: LocalAgent) -> None:
    agent.put_input(RUN, packed(file("given")))
    sending = subprocess.Popen(
        agent.command("put_input"), stdin=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert sending.stdin is not None
    sending.stdin.write(json.dumps({"root": str(agent.root), "run_id": RUN}).encode() + b"\n")
    sending.stdin.flush()
    wait_for(lambda: list(agent.path(RUN).glob(".part-*/archive")), "the transfer to begin")
    assert agent.call("clean", run_ids=[RUN])["removed"] == [RUN]
    sending.communicate(packed(file("given")), timeout=60)
    assert sending.returncode != 0
    assert agent.call("status", run_ids=None)["runs"] == {}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount: run as root")
def test_what_cannot_be_removed_is_not_called_removed(agent: LocalAgent) -> None:
    agent.run(RUN, "echo x > kept")
    agent.exit_of(RUN)
    kept = agent.path(RUN, "work")
    held = agent.root.parent / "held"
    held.mkdir()
    subprocess.run(["mount", "--bind", str(held), str(kept)], check=True)
    try:
        for _ in range(2):
            with pytest.raises(Refused, match=RUN) as caught:
                agent.call("clean", run_ids=[RUN])
            assert caught.value.code == "not-removed"
    finally:
        (mounted,) = (agent.root / "runs").glob(f".removed-{RUN}.*/run/work")
        subprocess.run(["umount", str(mounted)], check=True)
    assert agent.call("clean", run_ids=[RUN])["removed"] == [RUN]
    assert list((agent.root / "runs").iterdir()) == []


def test_a_job_that_closed_its_folders_is_removed_also_where_nobody_is_root(
    agent: LocalAgent,
) -> None:
    agent.become_ordinary()
    agent.run(RUN, "mkdir -p a/b; touch a/b/c; chmod 0 a/b; chmod 0500 a .")
    agent.exit_of(RUN)
    assert agent.call("clean", run_ids=[RUN])["removed"] == [RUN]
    assert list((agent.root / "runs").iterdir()) == []
