"""Sessions on the node: inside the run's isolation, and gone with their peer or their run."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from activities.agent.host import isolation
from activities.agent.sessions import frames
from tests.activities.agent.agent_process import LocalAgent, processes_of
from tests.activities.agent.session_client import AgentSession
from tests.activities.waiting import wait_for
from workers.runner.probes import free_port

pytestmark = pytest.mark.usefixtures("staged_before")
ROOT = os.geteuid() == 0
needs_root = pytest.mark.skipif(not ROOT, reason="only root has accounts of jobs: run as root")
RUN = "job-here-0-1"


@pytest.fixture
def user() -> str | None:
    return "baseload-job" if ROOT else None


def shell(agent: LocalAgent, *words: str, run_id: str = RUN, **more: object) -> AgentSession:
    return AgentSession(agent, "run_command", run_id, arguments=list(words), **more)


def test_a_command_has_the_variables_folder_and_exit_code_of_its_run(
    agent: LocalAgent, user: str | None
) -> None:
    agent.run(RUN, "sleep 600", user=user, environment={"GREETING": "hello"})
    session = shell(agent, "sh", "-c", 'echo "$GREETING from $PWD"; echo wrong >&2; cat; exit 7')
    session.send(frames.DATA, b"what is sent\n")
    session.send(frames.EOF)
    assert session.finish() == {"reason": "exited", "exit_code": 7}
    assert session.out == f"hello from {agent.path(RUN, 'work')}\nwhat is sent\n"
    assert session.err == "wrong\n"


@needs_root
def test_a_command_is_of_the_account_cgroup_and_mounts_of_its_run_and_gains_no_rights(
    agent: LocalAgent,
) -> None:
    own = (
        "id -un; cat /proc/self/cgroup; readlink /proc/self/ns/mnt; ls /dev; "
        "grep NoNewPrivs /proc/self/status"
    )
    agent.run(RUN, f"({own}) > own; touch ready; sleep 600", user="baseload-job")
    wait_for(agent.path(RUN, "work/ready").exists, "what the run sees")
    session = shell(agent, "sh", "-c", own)
    assert session.finish()["exit_code"] == 0
    assert session.out == agent.path(RUN, "work/own").read_text()
    assert session.out.startswith("baseload-job-")
    assert "NoNewPrivs:\t1" in session.out
    assert f"/{RUN}-" in session.out


@needs_root
def test_a_run_that_makes_itself_root_of_other_mounts_makes_no_session_root(
    agent: LocalAgent,
) -> None:
    """In mounts of its own a run writes its own /etc/passwd and its own /proc."""
    forged = (
        'sed "s/^$(id -un):x:[0-9]*:[0-9]*:/$(id -un):x:0:0:/" /etc/passwd > passwd; '
        "exec unshare --user --map-root-user --mount sh -c '"
        "mount --bind passwd /etc/passwd; touch ready; exec sleep 600'"
    )
    agent.run(RUN, forged, user="baseload-job")
    wait_for(agent.path(RUN, "work/ready").exists, "the run with other mounts")
    refused = shell(agent, "sh", "-c", "id -u").refusal()
    assert refused["code"] == "not-running", refused


@needs_root
def test_mounts_that_a_run_has_made_are_known_as_such() -> None:
    made = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", "echo made; sleep 600"]
    with subprocess.Popen(made, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"made\n"
        known = [_is_of_this_machine(pid) for pid in ("self", process.pid)]
        process.kill()
    assert known == [True, False]


def _is_of_this_machine(pid: int | str) -> bool:
    with Path(f"/proc/{pid}/ns/mnt").open() as mounts:
        return isolation.is_of_this_machine(mounts.fileno())


@needs_root
def test_a_run_without_an_account_of_its_own_lets_nobody_in_as_root(agent: LocalAgent) -> None:
    agent.run(RUN, "sleep 600")
    assert shell(agent, "id").refusal()["code"] == "no-account"


def test_a_shell_has_a_terminal_that_resizes_and_passes_interrupts(
    agent: LocalAgent, user: str | None
) -> None:
    agent.run(RUN, "sleep 600", user=user)
    size = {"rows": 33, "columns": 101, "type": "xterm-256color"}
    session = AgentSession(agent, "run_command", RUN, arguments=None, terminal=size)
    session.send(frames.DATA, b"stty size; echo $TERM; tty; true < /dev/tty && echo own\n")
    session.until("33 101")
    session.until("xterm-256color\r\n")
    session.until("/dev/pts/")
    session.until("own\r\n")
    session.resize(40, 120)
    session.send(frames.DATA, b"stty size\n")
    session.until("40 120")
    session.send(frames.DATA, b"sleep 611; echo over=$?\n")
    wait_for(lambda: named("sleep 611"), "the command")
    session.send(frames.DATA, b"\x03")
    session.send(frames.DATA, b"echo int=$?\n")
    session.until("int=130")
    assert not named("sleep 611")
    session.send(frames.DATA, b"exit 5\n")
    assert session.finish() == {"reason": "exited", "exit_code": 5}


def test_a_lost_peer_leaves_no_process_of_its_session(agent: LocalAgent, user: str | None) -> None:
    agent.run(RUN, "sleep 600", user=user)
    session = shell(agent, "sh", "-c", "trap '' HUP TERM; sleep 612 & sleep 613")
    wait_for(lambda: named("sleep 612") and named("sleep 613"), "the commands")
    session.leave()
    assert not named("sleep 612")
    assert not named("sleep 613")
    assert agent.look(RUN)["state"] == "running"


def test_the_end_of_the_run_ends_its_sessions(agent: LocalAgent, user: str | None) -> None:
    agent.run(RUN, "sleep 600", user=user)
    session = shell(agent, "sleep", "614")
    wait_for(lambda: named("sleep 614"), "the command")
    agent.call("end", run_id=RUN, grace_s=0)
    assert session.finish() == {"reason": "run-ended"}
    assert not named("sleep 614")
    assert not processes_of(agent.named(RUN))


def test_a_session_holds_up_no_run_that_ends(agent: LocalAgent, user: str | None) -> None:
    agent.run(RUN, "while ! [ -e go ]; do sleep 0.05; done", user=user)
    session = shell(agent, "sleep", "615")
    wait_for(lambda: named("sleep 615"), "the command")
    agent.path(RUN, "work/go").touch()
    assert agent.exit_of(RUN)["exit_code"] == 0
    assert session.finish() == {"reason": "run-ended"}
    assert not named("sleep 615")


def test_who_asks_for_a_run_that_does_not_run_is_refused(agent: LocalAgent) -> None:
    agent.stage(RUN, "true")
    assert shell(agent, "true").refusal()["code"] == "not-running"
    assert shell(agent, "true", run_id="job-nowhere-0-1").refusal()["code"] == "not-running"
    port = AgentSession(agent, "connect_port", RUN, port=9)
    assert port.refusal()["code"] == "not-running"


def test_all_of_a_long_output_arrives_although_it_is_read_slowly(
    agent: LocalAgent, user: str | None
) -> None:
    agent.run(RUN, "sleep 600", user=user)
    session = shell(agent, "head", "-c", "5000000", "/dev/zero")
    session.until_kind(frames.STARTED)
    wait_for(lambda: not named("head -c 5000000 /dev/zero"), "the command to end")
    assert session.finish()["exit_code"] == 0
    assert len(session.said[frames.OUT]) == 5_000_000


def test_an_unknown_command_and_a_signal_are_told(agent: LocalAgent, user: str | None) -> None:
    agent.run(RUN, "sleep 600", user=user)
    missing = shell(agent, "no-such-program")
    assert missing.finish()["exit_code"] == 127
    assert "no-such-program: not found" in missing.err
    ended = shell(agent, "sleep", "616")
    wait_for(lambda: named("sleep 616"), "the command")
    ended.send(frames.SIGNAL, bytes([signal.SIGTERM]))
    assert ended.finish() == {"reason": "exited", "signal": signal.SIGTERM}


ECHO = """
import socket
server = socket.create_server(("127.0.0.1", %d))
open("ready", "w").close()
while True:
    peer = server.accept()[0]
    content = b""
    while chunk := peer.recv(65536):
        content += chunk
    peer.sendall(content)
    peer.shutdown(socket.SHUT_WR)
    kept = peer
"""


def test_a_port_of_a_run_carries_bytes_both_ways_and_the_end_of_each(
    agent: LocalAgent, user: str | None
) -> None:
    port = free_port()
    agent.run(RUN, f"exec /usr/bin/python3 -c '{ECHO % port}'", user=user)
    wait_for(agent.path(RUN, "work/ready").exists, "the port")
    session = AgentSession(agent, "connect_port", RUN, port=port)
    content = os.urandom(3_000_000)
    for start in range(0, len(content), 60_000):
        session.send(frames.DATA, content[start : start + 60_000])
    session.send(frames.EOF)
    session.until_kind(frames.OUT_EOF)
    assert session.said[frames.OUT] == content
    session.close()
    assert session.process.returncode == 0
    closed = AgentSession(agent, "connect_port", RUN, port=free_port())
    assert closed.refusal()["code"] == "port-closed"


def named(words: str) -> list[int]:
    """The living processes with this command line."""
    wanted = b"\0".join(words.encode().split()) + b"\0"
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                is_it = (folder / "cmdline").read_bytes() == wanted
                state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if is_it and state not in "ZX":
                found.append(int(folder.name))
    return found
