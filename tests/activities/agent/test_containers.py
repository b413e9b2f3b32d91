"""Runs in a container image, by the podman of this machine."""

import os
import subprocess
from pathlib import Path

import pytest

from activities.agent.sessions import frames
from tests.activities.agent.agent_process import LocalAgent, Refused, spec
from tests.activities.agent.podman import IMAGE, WITH_VOLUME
from tests.activities.agent.session_client import AgentSession
from tests.activities.archives import file, packed
from tests.activities.waiting import wait_for

RUN = "job-p-0-1"


def run(agent: LocalAgent, command: str, image: str = IMAGE, **more: object) -> None:
    staged = spec(command, runtime="podman", **more)
    agent.call("stage", run_id=RUN, owned=True, image=image, spec=staged)
    agent.call("start", run_id=RUN)


def containers(environment: dict[str, str]) -> str:
    done = subprocess.run(["podman", "ps", "-aq"], env=environment, check=True, capture_output=True)
    return done.stdout.decode()


def test_podman_is_found_where_it_works(podman_agent: LocalAgent) -> None:
    assert "podman" in podman_agent.call("inspect")["hardware"]["runtimes"]


def test_a_command_runs_in_its_image_and_its_exit_is_told(
    podman_agent: LocalAgent, podman_environment: dict[str, str]
) -> None:
    variables = {"TOKEN": "one line", "LINES": "two\nlines"}
    command = 'echo "$TOKEN" "$LINES"; echo made > $BASELOAD_OUTPUT/made; pwd; exit 3'
    run(podman_agent, command, environment=variables)
    found = podman_agent.exit_of(RUN)
    assert (found["exit_code"], found["reason"]) == (3, "exited")
    log = podman_agent.path(RUN, "log").read_text()
    assert log == "one line two\nlines\n/baseload/work\n"
    assert podman_agent.path(RUN, "output/made").read_text() == "made\n"
    assert containers(podman_environment) == ""
    assert not podman_agent.path(RUN, "variables").exists()


def test_a_container_is_set_up_where_its_command_runs(podman_agent: LocalAgent) -> None:
    run(
        podman_agent,
        "cat /tmp/made; cat made; pwd",
        setup=["echo one >/tmp/made", "echo two >made"],
    )
    podman_agent.exit_of(RUN)
    log = podman_agent.path(RUN, "log").read_text().splitlines()
    assert log == [
        "baseload: set-up begins", "baseload: set-up ends", "one", "two", "/baseload/work",
    ]  # fmt: skip
    assert not podman_agent.path(RUN, "venv").exists()


def test_a_container_whose_setup_fails_says_so(podman_agent: LocalAgent) -> None:
    run(podman_agent, "echo never", setup=["exit 9"])
    found = podman_agent.exit_of(RUN)
    assert (found["reason"], found["exit_code"]) == ("setup", 9)
    assert "never" not in podman_agent.path(RUN, "log").read_text()


NAMES = ("/dev/stderr", "/dev/stdout", "/proc/self/fd/1")


@pytest.mark.parametrize("user", [None, "baseload-job"])
def test_output_that_is_opened_again_in_a_container_is_in_the_log(
    podman_agent: LocalAgent, user: str | None
) -> None:
    if user and os.geteuid() != 0:
        pytest.skip("only root has accounts of jobs: run as root")
    said = [f"echo said > {name}" for name in NAMES]
    run(podman_agent, "; ".join(("echo first", *said, "echo last")), user=user)
    assert podman_agent.exit_of(RUN)["exit_code"] == 0
    log = podman_agent.path(RUN, "log").read_text().splitlines()
    assert sorted(log) == sorted(["first", *["said"] * 3, "last"])


def test_ending_a_container_leaves_nothing_of_it(
    podman_agent: LocalAgent, podman_environment: dict[str, str]
) -> None:
    run(podman_agent, "trap '' TERM; setsid sleep 6200 & touch ready; sleep 6201")
    wait_for(podman_agent.path(RUN, "work/ready").exists, "the container")
    ended = podman_agent.call("end", run_id=RUN, grace_s=1)
    assert ended["exit"]["reason"] == "ended"
    assert containers(podman_environment) == ""
    assert living("sleep 6200") == living("sleep 6201") == []


def test_all_programs_of_a_container_are_told_that_it_ends(podman_agent: LocalAgent) -> None:
    inside = "trap 'echo told; exit 5' TERM; touch ready; while :; do sleep 0.05; done"
    run(podman_agent, f'sh -c "{inside}"; exit $?')
    wait_for(podman_agent.path(RUN, "work/ready").exists, "the container")
    ended = podman_agent.call("end", run_id=RUN, grace_s=20)
    assert (ended["exit"]["reason"], ended["exit"]["exit_code"]) == ("ended", 5)
    assert "told" in podman_agent.path(RUN, "log").read_text().split()


def test_a_container_has_as_many_processes_as_its_run_may(podman_agent: LocalAgent) -> None:
    run(podman_agent, "cat /sys/fs/cgroup/pids/pids.max /sys/fs/cgroup/pids.max", most_tasks=77)
    podman_agent.exit_of(RUN)
    assert "77" in podman_agent.path(RUN, "log").read_text().split()


def test_what_a_container_writes_elsewhere_counts_and_goes_with_it(
    podman_agent: LocalAgent, podman_environment: dict[str, str]
) -> None:
    writes = "for i in 1 2 3 4 5 6 7 8 9; do cat /bin/* > /data/big$i; done; sleep 600"
    run(podman_agent, writes, WITH_VOLUME, disk_size_gb=0.002, grace_s=0.1)
    assert podman_agent.exit_of(RUN)["reason"] == "disk-full"
    assert containers(podman_environment) == ""
    command = ["podman", "volume", "ls", "-q"]
    left = subprocess.run(command, env=podman_environment, check=True, capture_output=True)
    assert left.stdout == b""


def test_a_container_whose_supervisor_was_killed_can_be_ended(
    podman_agent: LocalAgent, podman_environment: dict[str, str]
) -> None:
    run(podman_agent, "touch ready; sleep 6202")
    wait_for(podman_agent.path(RUN, "work/ready").exists, "the container")
    os.kill(podman_agent.document(RUN, "process.json")["supervisor_pid"], 9)
    wait_for(lambda: podman_agent.look(RUN)["state"] == "lost", "the loss to show")
    ended = podman_agent.call("end", run_id=RUN, grace_s=0)
    assert ended["exit"]["reason"] == "ended-after-supervisor-loss"
    assert containers(podman_environment) == ""
    assert living("sleep 6202") == []


def test_the_command_and_variables_of_a_container_are_on_no_command_line(
    podman_agent: LocalAgent,
) -> None:
    secret = "s3cret-in-no-container-line"
    more = {"TOKEN": secret, "KEY": f"-----\n{secret}\n-----"}
    run(podman_agent, f"GIVEN={secret}; touch ready; sleep 6203", environment=more)
    wait_for(podman_agent.path(RUN, "work/ready").exists, "the container")
    assert living("podman") != []
    assert living(secret) == []


def test_no_variable_of_a_job_reaches_podman_itself(podman_agent: LocalAgent) -> None:
    """podman runs as our user: what it loads, and whose settings it follows, is no job's to say."""
    hostile = {
        "LD_PRELOAD": "./evil.so:\n",
        "CONTAINER_HOST": "tcp://127.0.0.1:9\n",
        "CONTAINERS_STORAGE_CONF": "./storage.conf\n",
        "REGISTRY_AUTH_FILE": "./auth.json\r",
        "TMPDIR": "./\n",
    }
    run(podman_agent, "touch ready; sleep 6204", environment=hostile)
    wait_for(podman_agent.path(RUN, "work/ready").exists, "the container")
    process = Path(f"/proc/{podman_agent.document(RUN, 'process.json')['pid']}")
    assert (process / "comm").read_text() == "podman\n"
    variables = (process / "environ").read_bytes()
    assert [value for value in hostile.values() if value.encode() in variables] == []
    assert (process / "cwd").resolve() == podman_agent.path(RUN)


def test_no_variable_of_a_job_asks_for_further_gpus(podman_agent: LocalAgent) -> None:
    asked = {"NVIDIA_VISIBLE_DEVICES": "all"}
    run(podman_agent, "echo found $NVIDIA_VISIBLE_DEVICES", environment=asked)
    podman_agent.exit_of(RUN)
    assert "found void" in podman_agent.path(RUN, "log").read_text()


def test_values_that_fit_on_no_line_arrive_as_they_are(podman_agent: LocalAgent) -> None:
    given = {
        "LINES": "two\r\nlines\n\n",
        "ESCAPES": "\\n\\\\ \\0101 \\c %s\n$HOME `id` 'x' \"y\" é\n",
        "LONG": "é\\" * 40_000,
    }
    command = "".join(f'printf %s "${name}" > $BASELOAD_OUTPUT/{name}; ' for name in given)
    run(podman_agent, command + "set | cat", environment=given)
    assert podman_agent.exit_of(RUN)["exit_code"] == 0
    found = {name: podman_agent.path(RUN, f"output/{name}").read_bytes() for name in given}
    assert found == {name: value.encode() for name, value in given.items()}
    assert "BASELOAD_PART" not in podman_agent.path(RUN, "log").read_text()


def test_a_command_that_the_image_lacks_says_so(podman_agent: LocalAgent) -> None:
    run(podman_agent, "no-such-program")
    assert podman_agent.exit_of(RUN)["reason"] == "command-not-found"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user: run as root")
def test_a_container_runs_as_the_job_user(podman_agent: LocalAgent) -> None:
    podman_agent.call("prepare", exclusive=False, authorized_key="", peers=[])
    podman_agent.put_input(RUN, packed(file("given", b"its input\n")))
    command = "id -u; cat $BASELOAD_INPUT/given; touch $BASELOAD_OUTPUT/mine"
    run(podman_agent, command, user="baseload-job")
    assert podman_agent.exit_of(RUN)["exit_code"] == 0
    found = podman_agent.path(RUN, "output/mine").stat().st_uid
    assert podman_agent.path(RUN, "log").read_text() == f"{found}\nits input\n"
    assert found != 0


def test_an_image_that_cannot_be_had_is_said(podman_agent: LocalAgent) -> None:
    with pytest.raises(Refused, match=r"127\.0\.0\.1:9/none") as caught:
        podman_agent.call(
            "stage", run_id=RUN, image="127.0.0.1:9/none:1", spec=spec("true", runtime="podman")
        )
    assert caught.value.code == "image-away"


def living(part: str) -> list[str]:
    """The command lines of living processes that contain this."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if part in line:
            found.append(line)
    return found


def test_a_session_is_inside_of_the_container_and_leaves_nothing_when_its_peer_is_lost(
    podman_agent: LocalAgent,
) -> None:
    user = "baseload-job" if os.geteuid() == 0 else None
    run(podman_agent, "touch ready; sleep 600", user=user, environment={"TOKEN": "inside"})
    wait_for(podman_agent.path(RUN, "work/ready").exists, "the container")
    script = 'echo "$TOKEN" $PWD > /dev/stdout; id -u; cat; exit 6'
    session = AgentSession(podman_agent, "run_command", RUN, arguments=["sh", "-c", script])
    session.send(frames.DATA, b"sent\n")
    session.send(frames.EOF)
    assert session.finish() == {"reason": "exited", "exit_code": 6}
    own, number, sent = session.out.splitlines()
    assert (own, sent) == ("inside /baseload/work", "sent")
    assert user is None or number != "0"
    lost = AgentSession(podman_agent, "run_command", RUN, arguments=["sleep", "6202"])
    wait_for(lambda: living("sleep 6202"), "the command")
    lost.close()
    assert living("sleep 6202") == []
    assert podman_agent.look(RUN)["state"] == "running"
