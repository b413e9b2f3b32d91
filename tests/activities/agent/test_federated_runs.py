"""Runs of federated jobs: what of them is withheld, and who is kept out."""

import json
import os
import socket
import subprocess

import pytest

from activities.agent.sessions import frames
from tests.activities.agent.agent_process import LocalAgent
from tests.activities.agent.session_client import AgentSession
from tests.activities.waiting import wait_for

pytestmark = [
    pytest.mark.usefixtures("staged_before"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can confine a run: run as root"),
]
MARKER = "marker-of-the-model"
SAID = "marker-of-the-$(echo model)"
PRINTS = f"echo {SAID}; echo {SAID} >&2; "


def federated(**more: object) -> dict[str, object]:
    """The part of a spec that makes its run one of a federated job."""
    return {"federated_id": "fed-1", "egress": [], "logs": "none", "model": None, **more}


@pytest.fixture
def prepared(agent: LocalAgent) -> LocalAgent:
    agent.call("prepare", peers=[])
    return agent


def ended(agent: LocalAgent, run_id: str, command: str, **more: object) -> dict[str, object]:
    agent.run(run_id, command, user="baseload-job", **more)
    return agent.exit_of(run_id)


def test_a_federated_run_keeps_no_log_and_its_exit_carries_no_line_of_it(
    prepared: LocalAgent,
) -> None:
    for number, command in enumerate(
        ("true", "exit 37", "kill -9 $$", f"./{SAID}", f"nothing-{SAID}", "exit 126")
    ):
        run_id = f"job-fedwithheld{number}-0-1"
        document = ended(prepared, run_id, PRINTS + command, federated=federated())
        assert MARKER not in json.dumps(document)
        assert document["exit_code"] == (0 if command == "true" else 1), document
        assert document["signal"] is None
        assert document["log_bytes"] == 0
        assert "37" not in str(document["message"])
        found = subprocess.run(
            ["grep", "-rl", MARKER, str(prepared.path(run_id))], capture_output=True, check=False
        )
        assert found.stdout == b"", "what it printed is on the disk"
        assert prepared.look(run_id)["log_bytes"] == 0


def test_exit_codes_are_shown_where_the_project_shows_them_and_lines_are_not(
    prepared: LocalAgent,
) -> None:
    shown = federated(logs="exit_only")
    document = ended(prepared, "job-fedcodes-0-1", PRINTS + "exit 37", federated=shown)
    assert document["exit_code"] == 37
    document = ended(prepared, "job-fedcodes-1-1", PRINTS + "exec ./" + SAID, federated=shown)
    assert MARKER not in json.dumps(document)
    setup = [f"echo {SAID}; exit 3"]
    document = ended(prepared, "job-fedcodes-2-1", "true", setup=setup, federated=shown)
    assert document["reason"] == "setup"
    assert MARKER not in json.dumps(document)
    assert document["log_bytes"] == 0


def test_logs_are_kept_where_the_project_shows_all(prepared: LocalAgent) -> None:
    document = ended(
        prepared, "job-fedall-0-1", PRINTS + "exit 37", federated=federated(logs="all")
    )
    assert document["exit_code"] == 37
    assert MARKER in prepared.path("job-fedall-0-1", "log").read_text()


def test_nobody_runs_commands_in_a_federated_run_nor_takes_its_state(prepared: LocalAgent) -> None:
    run_id = "job-fedclosed-0-1"
    prepared.run(run_id, "sleep 60", user="baseload-job", federated=federated())
    wait_for(lambda: prepared.look(run_id)["state"] == "running", "the run")
    for verb, more in (
        ("run_command", {"arguments": ["id"]}),
        ("pack_state", {"folders": ["state"]}),
        ("pack_output", {}),
    ):
        asked = json.dumps({"root": str(prepared.root), "run_id": run_id, **more}).encode()
        done = subprocess.run(
            prepared.command(verb),
            input=asked + b"\n",
            capture_output=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 3, verb
        assert json.loads(done.stderr.splitlines()[-1])["error"]["code"] == "federated", verb


SERVE = """
import os, socket, time
listening = socket.create_server(("127.0.0.1", 8950))
open(os.environ["BASELOAD_OUTPUT"] + "/ready", "w").close()
while True:
    peer = listening.accept()[0]
    peer.sendall(b"answer")
    peer.close()
"""


def test_the_port_of_a_federated_run_is_reached_by_sessions_alone(prepared: LocalAgent) -> None:
    run_id, command = "job-fedport-0-1", f"exec /usr/bin/python3 -c '{SERVE}'"
    prepared.run(run_id, command, user="baseload-job", federated=federated())
    wait_for(prepared.path(run_id, "output/ready").exists, "the port")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", 8950), 5)
    session = AgentSession(prepared, "connect_port", run_id, port=8950)
    session.until_kind(frames.OUT_EOF)
    assert session.said[frames.OUT] == b"answer"
    session.close()
