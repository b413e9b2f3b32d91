"""The set-up step of a run: what runs before its command, and how a run ends that it fails."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.activities.agent.agent_process import LocalAgent, processes_of
from tests.activities.waiting import wait_for

RUN = "job-setup-0-1"
BEGINS, ENDS = "baseload: set-up begins", "baseload: set-up ends"


def log(agent: LocalAgent) -> list[str]:
    return agent.path(RUN, "log").read_text().splitlines()


def test_each_step_runs_before_the_command_in_its_folder_and_environment(
    agent: LocalAgent,
) -> None:
    steps = ["pwd; echo $WHO > made", "cd /; exported=no; set -- a b; export exported"]
    command = 'cat made; pwd; echo "${exported-none} $#"'
    agent.run(RUN, command, setup=steps, environment={"WHO": "world"})
    assert agent.exit_of(RUN)["exit_code"] == 0
    work = str(agent.path(RUN, "work"))
    assert log(agent) == [BEGINS, work, ENDS, "world", work, "none 0"]


def test_a_single_program_still_takes_the_place_of_the_shell_after_its_setup(
    agent: LocalAgent,
) -> None:
    agent.run(RUN, "sleep 6500", setup=["true"])
    wait_for(lambda: agent.path(RUN, "log").exists() and ENDS in log(agent), "the set-up")
    pid = agent.look(RUN)["pid"]
    process = Path(f"/proc/{pid}")
    wait_for(lambda: (process / "comm").read_text() == "sleep\n", "the command")
    assert (process / "task" / process.name / "children").read_text() == "", "nothing else runs"


@pytest.mark.parametrize(
    ("step", "code"),
    [("exit 7", 7), ("false && true", 1), ("set -e; false; true", 1), ('echo "', 2), (")", 2)],
)
def test_a_step_that_fails_is_the_reason_and_nothing_runs_after_it(
    agent: LocalAgent, step: str, code: int
) -> None:
    agent.run(RUN, "echo never", setup=["echo one", step, "echo never"])
    found = agent.exit_of(RUN)
    assert (found["reason"], found["exit_code"]) == ("setup", code)
    assert found["message"].startswith(f"environment.setup failed: exit code {code};")
    assert "never" not in log(agent)
    assert log(agent)[:2] == [BEGINS, "one"]
    assert log(agent)[-1] == f"baseload: set-up failed with exit code {code}"


@pytest.mark.parametrize("whom", ["step", "shell"])
def test_a_step_that_is_killed_is_the_reason_with_its_signal(agent: LocalAgent, whom: str) -> None:
    agent.run(RUN, "echo never", setup=["sleep 6501; true"])
    wait_for(lambda: len(processes_of(RUN)) == 3, "the step sleeps")
    first = agent.look(RUN)["pid"]
    (child,) = Path(f"/proc/{first}/task/{first}/children").read_text().split()
    os.kill(int(child) if whom == "step" else first, signal.SIGKILL)
    found = agent.exit_of(RUN)
    assert (found["reason"], found["signal"]) == ("setup", 9)
    assert "it was killed by SIGKILL" in found["message"]
    assert "never" not in log(agent)
    assert processes_of(RUN) == []


def test_a_run_that_is_ended_during_its_setup_is_ended_and_not_failed(agent: LocalAgent) -> None:
    agent.run(RUN, "echo never", setup=["sleep 6502"])
    wait_for(lambda: BEGINS in (log(agent) if agent.path(RUN, "log").exists() else []), "it")
    assert agent.call("end", run_id=RUN, grace_s=1)["exit"]["reason"] == "ended"
    assert processes_of(RUN) == []


def test_a_start_that_is_repeated_sets_up_once(agent: LocalAgent) -> None:
    agent.stage(RUN, "echo command", setup=["echo once", "sleep 0.5"])
    starting = [agent.begin("start", run_id=RUN) for _ in range(3)]
    for process in starting:
        agent.answer(process)
    agent.call("start", run_id=RUN)
    agent.exit_of(RUN)
    agent.call("start", run_id=RUN)
    assert log(agent) == [BEGINS, "once", ENDS, "command"]


def test_a_setup_whose_supervisor_was_lost_is_not_repeated(agent: LocalAgent) -> None:
    agent.run(RUN, "echo never", setup=["echo once", "sleep 6503"])
    wait_for(lambda: "once" in (log(agent) if agent.path(RUN, "log").exists() else []), "it")
    os.kill(agent.document(RUN, "process.json")["supervisor_pid"], signal.SIGKILL)
    wait_for(lambda: agent.look(RUN)["state"] == "lost", "it is lost")
    agent.call("start", run_id=RUN)
    assert agent.call("end", run_id=RUN)["state"] == "exited"
    assert log(agent).count("once") == 1
    assert processes_of(RUN) == []


def test_no_step_is_on_a_command_line(agent: LocalAgent) -> None:
    agent.run(RUN, "true", setup=["token=sesame-6504; sleep 6504; true"])
    wait_for(lambda: len(processes_of(RUN)) == 3, "the step sleeps")
    shown = subprocess.run(["ps", "-eo", "args"], capture_output=True, check=True).stdout.decode()
    assert "sleep 6504" in shown
    assert "sesame-6504" not in shown


def test_a_failing_command_after_a_good_setup_is_the_commands_own_failure(
    agent: LocalAgent,
) -> None:
    agent.run(RUN, "exit 5", setup=["true"])
    found = agent.exit_of(RUN)
    assert (found["reason"], found["exit_code"]) == ("exited", 5)
