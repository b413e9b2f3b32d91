"""The wall around jobs, by the real nft in a network of its own: what they reach and what not."""

import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from activities.agent.host.spawn import DEFAULT_PATH
from tests.activities.agent.agent_process import LocalAgent
from tests.activities.waiting import wait_for

pytestmark = [
    pytest.mark.usefixtures("staged_before"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may have a network: run as root"),
    pytest.mark.skipif(shutil.which("nft", path=DEFAULT_PATH) is None, reason="needs nftables"),
]
TEMPORAL, OWN, OTHERS = 7233, 6501, 6502
METADATA, CLOSED, FAR = "169.254.169.254", "10.99.0.1", "192.0.2.7"
LISTEN = """
import socket, sys
listening = [socket.create_server(("0.0.0.0", int(port))) for port in sys.argv[1:]]
open("ready", "w").close()
while True:
    for one in listening:
        one.settimeout(0.05)
        try:
            one.accept()[0].sendall(b"hello")
        except TimeoutError:
            pass
"""
ASK = """
import socket, sys
for place in sys.argv[1:]:
    host, _, port = place.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), 1) as one:
            print(place, one.recv(9).decode(), flush=True)
    except OSError as error:
        print(place, "no", flush=True)
print("asked", flush=True)
"""


class Walled(LocalAgent):
    """An agent whose calls and runs are in a network namespace of its own."""

    network = 0

    def command(self, verb: str) -> list[str]:
        plain = super().command(verb)
        inside = ["nsenter", f"--net=/proc/{self.network}/ns/net", *plain]
        return inside if self.network else plain


@pytest.fixture
def walled(agent: LocalAgent) -> Iterator[Walled]:
    """The agent, and services of root's on all addresses of its machine."""
    services = (
        f"ip link set lo up; for a in {METADATA} {CLOSED} {FAR}; do ip addr add $a/32 dev lo; done"
    )
    listen = [sys.executable, "-c", LISTEN, str(TEMPORAL)]
    folder = agent.root / "services"
    folder.mkdir()
    machine = subprocess.Popen(
        ["unshare", "--net", "sh", "-c", services + '; exec "$@"', "sh", *listen], cwd=folder
    )
    agent.__class__ = Walled
    assert isinstance(agent, Walled)
    agent.network = machine.pid
    wait_for((folder / "ready").exists, "the services")
    yield agent
    agent.end_all()
    agent.call("release")
    agent.network = 0  # What the fixtures below still call has no network to enter any more.
    machine.kill()
    machine.wait()


def python(program: str, *arguments: object) -> str:
    quoted = "'" + textwrap.dedent(program).replace("'", "'\\''") + "'"
    return f"python3 -c {quoted} {' '.join(map(str, arguments))}"


def asked(agent: LocalAgent, run_id: str, *places: str) -> dict[str, str]:
    """What a job hears at each place."""
    agent.run(run_id, python(ASK, *places), user="baseload-job")
    agent.exit_of(run_id)
    lines = agent.path(run_id, "log").read_text().splitlines()
    assert lines[-1] == "asked", lines
    return dict(line.split(" ", 1) for line in lines[:-1])


def test_a_job_reaches_its_own_port_and_no_service_of_its_machine(walled: Walled) -> None:
    wall = {"networks": [CLOSED], "ports": [[FAR, TEMPORAL]]}
    prepared = walled.call("prepare", peers=[], network_wall=wall)
    assert prepared["no_wall_reason"] is None
    walled.run("job-beside-0-1", python(LISTEN, OTHERS), user="baseload-job")
    wait_for(walled.path("job-beside-0-1", "work/ready").exists, "another job's port")
    own = f"({python(LISTEN, OWN)} &) ; while ! [ -e ready ]; do sleep 0.02; done; "
    places = [f"127.0.0.1:{TEMPORAL}", f"127.0.0.1:{OWN}", f"127.0.0.1:{OTHERS}",
              f"{CLOSED}:{TEMPORAL}", f"{METADATA}:{TEMPORAL}", f"{FAR}:{TEMPORAL}"]  # fmt: skip
    walled.run("job-walled-0-1", own + python(ASK, *places), user="baseload-job")
    walled.exit_of("job-walled-0-1")
    heard = dict(
        line.split(" ", 1)
        for line in walled.path("job-walled-0-1", "log").read_text().splitlines()
        if " " in line
    )
    assert [place for place, words in heard.items() if words == "hello"] == [f"127.0.0.1:{OWN}"]
    assert len(heard) == len(places)
    client = [sys.executable, "-c", ASK, f"127.0.0.1:{OTHERS}", f"127.0.0.1:{TEMPORAL}"]
    entered = ["nsenter", f"--net=/proc/{walled.network}/ns/net", *client]
    answers = subprocess.run(entered, capture_output=True, check=True, text=True).stdout
    assert answers.count("hello") == 2  # whoever may reach a job's port, and root its services


def test_the_wall_stands_again_after_the_machine_has_forgotten_it(walled: Walled) -> None:
    walled.call("prepare", peers=[], network_wall={"networks": [], "ports": []})
    place = f"127.0.0.1:{TEMPORAL}"
    flush = ["nsenter", f"--net=/proc/{walled.network}/ns/net", "nft", "flush", "ruleset"]
    walled.stage("job-walled-0-1", python(ASK, place), user="baseload-job")
    subprocess.run(flush, check=True)
    walled.call("start", run_id="job-walled-0-1")
    walled.exit_of("job-walled-0-1")
    assert walled.path("job-walled-0-1", "log").read_text() == f"{place} no\nasked\n"


def test_a_machine_that_cannot_have_a_wall_says_why(walled: Walled, tmp_path: Path) -> None:
    nft = tmp_path / "nft"
    nft.write_text("#!/bin/sh\necho no such netlink family >&2; exit 1\n")
    nft.chmod(0o755)
    walled.environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    wall: dict[str, list[str]] = {"networks": [], "ports": []}
    reason = walled.call("prepare", peers=[], network_wall=wall)["no_wall_reason"]
    assert "no such netlink family" in reason
    walled.environment = None
    temporal = f"127.0.0.1:{TEMPORAL}"
    assert asked(walled, "job-walled-0-1", temporal) == {temporal: "hello"}
