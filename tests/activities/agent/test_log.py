"""The log of a run: everything that its command prints, by whatever name it opens its output."""

import contextlib
import errno
import os
import signal
import subprocess
from pathlib import Path

import pytest

from activities.agent.folders import Folders
from activities.agent.runs.log import Log
from activities.agent.sessions import frames
from tests.activities.agent.agent_process import LocalAgent, processes_of
from tests.activities.agent.session_client import AgentSession
from tests.activities.waiting import wait_for

pytestmark = pytest.mark.usefixtures("staged_before")
ROOT = os.geteuid() == 0
needs_root = pytest.mark.skipif(not ROOT, reason="only root has accounts of jobs: run as root")
RUN = "job-log-0-1"
NAMES = ("/dev/stderr", "/dev/stdout", "/proc/self/fd/1", "/dev/fd/2")


@pytest.fixture
def user() -> str | None:
    return "baseload-job" if ROOT else None


@pytest.mark.parametrize("name", NAMES)
def test_output_that_is_opened_again_is_in_the_log_and_cuts_nothing_off(
    agent: LocalAgent, user: str | None, name: str
) -> None:
    agent.run(RUN, f"echo first; echo second > {name}; echo third >> {name}; echo last", user=user)
    assert agent.exit_of(RUN)["exit_code"] == 0
    assert agent.path(RUN, "log").read_text() == "first\nsecond\nthird\nlast\n"


def test_an_agent_that_is_not_root_has_whole_logs_too(agent: LocalAgent) -> None:
    agent.become_ordinary()
    agent.run(RUN, "echo first; echo second > /dev/stdout; echo third")
    agent.exit_of(RUN)
    assert agent.path(RUN, "log").read_text() == "first\nsecond\nthird\n"


def test_the_last_bytes_of_a_flood_are_in_the_log(agent: LocalAgent, user: str | None) -> None:
    agent.run(RUN, "head -c 30000000 /dev/zero; echo over", user=user)
    assert agent.exit_of(RUN)["log_bytes"] == 30_000_005
    assert agent.path(RUN, "log").read_bytes() == bytes(30_000_000) + b"over\n"


@needs_root
def test_a_command_can_neither_read_nor_change_the_file_of_its_log(agent: LocalAgent) -> None:
    tries = ("cat ../log", "true > ../log", "rm -f ../log", "ln -sf /etc/passwd ../log")
    agent.run(RUN, "; ".join(("echo first", *tries, "echo last")), user="baseload-job")
    agent.exit_of(RUN)
    log = agent.path(RUN, "log").read_text()
    assert (log.count("first\n"), log.count("last\n")) == (1, 1)
    assert "root:" not in log
    assert agent.path(RUN, "log").stat().st_uid == 0


def test_an_end_of_the_pipe_in_other_hands_does_not_keep_a_run_from_ending(
    agent: LocalAgent, user: str | None
) -> None:
    command = "echo first; touch ready; while [ ! -e go ]; do sleep 0.05; done"
    pid = agent.run(RUN, command, user=user)["pid"]
    wait_for(agent.path(RUN, "work/ready").exists, "the command")
    with Path(f"/proc/{pid}/fd/1").open("wb", buffering=0) as held:
        agent.path(RUN, "work/go").touch()
        held.write(b"of another\n")
        assert agent.exit_of(RUN)["exit_code"] == 0
    assert agent.path(RUN, "log").read_text() == "first\nof another\n"


@needs_root
def test_a_command_that_prints_on_a_full_disk_waits_for_room(agent: LocalAgent) -> None:
    runs = agent.root / "runs"
    runs.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=80m", "tmpfs", str(runs)], check=True)
    try:
        command = (
            "touch w; while [ -e w ]; do sleep 0.05; done; head -c 3000000 /dev/zero; echo over"
        )
        agent.run(RUN, command)
        waits = agent.path(RUN, "work/w")
        wait_for(waits.exists, "the command")
        with (runs / "filler").open("wb", buffering=0) as filler, contextlib.suppress(OSError):
            while filler.write(bytes(65536)):
                pass
        waits.unlink()
        wait_for(lambda: b"head" in commands_of(RUN), "what prints")
        assert agent.look(RUN)["state"] == "running"
        (runs / "filler").unlink()
        assert agent.exit_of(RUN)["exit_code"] == 0
        assert agent.path(RUN, "log").read_bytes() == bytes(3_000_000) + b"over\n"
    finally:
        agent.end_all()
        subprocess.run(["umount", str(runs)], check=True)


def test_a_disk_that_fails_at_the_end_of_a_log_costs_no_outcome(
    agent: LocalAgent, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fails(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fails)
    run = Folders(str(agent.root)).run(RUN)
    Path(run.path).mkdir(parents=True)
    log = Log(run, {})
    os.write(log.inlet, b"last\n")
    log.begin()
    log.finish()
    assert Path(run.log).read_text() == "last\n"
    assert os.strerror(errno.EIO) in capfd.readouterr().err


def commands_of(run_id: str) -> list[bytes]:
    """The programs of a run's living processes."""
    found = []
    for pid in processes_of(run_id):
        with contextlib.suppress(OSError):
            found.append(Path(f"/proc/{pid}/cmdline").read_bytes().partition(b"\0")[0])
    return found


def test_a_command_that_prints_ends_soon_after_its_supervisor(
    agent: LocalAgent, user: str | None
) -> None:
    agent.run(RUN, "while :; do echo line; sleep 0.05; done", user=user)
    wait_for(lambda: processes_of(RUN), "the command")
    os.kill(agent.document(RUN, "process.json")["supervisor_pid"], signal.SIGKILL)
    wait_for(lambda: not processes_of(RUN), "its end")
    assert agent.call("end", run_id=RUN, grace_s=0)["tree_gone"]


@pytest.mark.parametrize("name", NAMES)
def test_a_session_may_open_its_streams_again(
    agent: LocalAgent, user: str | None, name: str
) -> None:
    agent.run(RUN, "sleep 600", user=user)
    session = AgentSession(
        agent, "run_command", RUN, arguments=["sh", "-c", f"echo said > {name}; cat /dev/stdin"]
    )
    session.send(frames.DATA, b"heard\n")
    session.send(frames.EOF)
    assert session.finish() == {"reason": "exited", "exit_code": 0}
    assert sorted((session.out + session.err).splitlines()) == ["heard", "said"]


def test_whoever_reads_the_streams_of_a_session_does_not_hold_up_the_agent(
    agent: LocalAgent, user: str | None
) -> None:
    """What the run reads is not there for the agent, which then must not wait for it."""
    agent.run(RUN, "sleep 600", user=user)
    session = AgentSession(agent, "run_command", RUN, arguments=["sh", "-c", "echo $$; sleep 600"])
    pid = int(session.until("\n"))
    theirs = {Path(f"/proc/{pid}/fd/{number}").readlink() for number in (1, 2)}
    folder = Path(f"/proc/{session.process.pid}/fd")
    ours = [each.name for each in folder.iterdir() if each.readlink() in theirs]
    notes = [(folder.parent / "fdinfo" / name).read_text() for name in ours]
    flags = [int(note.split("flags:")[1].split()[0], 8) for note in notes]
    assert len(flags) == 2
    assert all(each & os.O_NONBLOCK for each in flags)
    session.leave()


def test_a_terminal_of_a_session_may_be_opened_again(agent: LocalAgent, user: str | None) -> None:
    agent.run(RUN, "sleep 600", user=user)
    said = "; ".join(f"echo said > {name}" for name in NAMES)
    session = AgentSession(
        agent, "run_command", RUN, arguments=["sh", "-c", said], terminal={"rows": 9, "columns": 80}
    )
    assert session.finish() == {"reason": "exited", "exit_code": 0}
    assert session.out == "said\r\n" * len(NAMES)
