"""The wall around jobs, by the real nft in a network of its own: what they reach and what not."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from activities.agent.host.job_accounts import ACCOUNTS
from activities.agent.host.spawn import DEFAULT_PATH
from tests.activities.agent.agent_process import LocalAgent, Refused, spec
from tests.activities.agent.podman import IMAGE
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
        return [*self.entering(), *plain] if self.network else plain

    def entering(self) -> list[str]:
        """What starts a program in that network."""
        return ["nsenter", f"--net=/proc/{self.network}/ns/net"]

    def inside(self, *command: str) -> str:
        """What a program of root's prints in that network."""
        done = [*self.entering(), *command]
        return subprocess.run(done, capture_output=True, check=True, text=True).stdout


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


def asked(agent: LocalAgent, run_id: str, *places: str, **more: object) -> dict[str, str]:
    """What a job hears at each place."""
    agent.run(run_id, python(ASK, *places), user="baseload-job", **more)
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
    places = [f"127.0.0.1:{OTHERS}", f"127.0.0.1:{TEMPORAL}"]
    answers = walled.inside(sys.executable, "-c", ASK, *places)
    assert answers.count("hello") == 2  # whoever may reach a job's port, and root its services


def test_the_workers_of_one_job_reach_each_other_and_no_other_job_does(walled: Walled) -> None:
    walled.call("prepare", peers=[], network_wall={"networks": [], "ports": []})
    first, second = {"BASELOAD_JOB_ID": "job-of-two"}, {"BASELOAD_JOB_ID": "job-alone"}
    listen = python(LISTEN, OTHERS)
    walled.run("job-of-two-0-1", listen, user="baseload-job", environment=first)
    wait_for(walled.path("job-of-two-0-1", "work/ready").exists, "the first worker's port")
    place = f"127.0.0.1:{OTHERS}"
    assert asked(walled, "job-of-two-1-1", place, environment=first) == {place: "hello"}
    assert asked(walled, "job-alone-0-1", place, environment=second) == {place: "no"}
    walled.call("end", run_id="job-of-two-1-1", grace_s=0)
    walled.call("clean", run_id="job-of-two-1-1")
    # The account of the worker that is gone serves another job now.
    assert asked(walled, "job-alone-1-1", place, environment=second) == {place: "no"}


def hears(agent: Walled, port: int) -> bool:
    """Whether somebody else on the machine is answered at a port."""
    return "hello" in agent.inside(sys.executable, "-c", ASK, f"127.0.0.1:{port}")


def test_at_the_port_of_a_run_nobody_else_answers(walled: Walled) -> None:
    walled.call("prepare", peers=[], network_wall={"networks": [], "ports": []})
    holder, thief = "job-holder-0-1", "job-thief-0-1"
    late = "while ! [ -e go ]; do sleep 0.02; done; "
    walled.run(holder, late + python(LISTEN, OWN), user="baseload-job", port=OWN)
    walled.run(thief, python(LISTEN, OWN, OTHERS), user="baseload-job", port=OTHERS)
    wait_for(walled.path(thief, "work/ready").exists, "who has come first")
    assert (hears(walled, OWN), hears(walled, OTHERS)) == (False, True)
    walled.call("end", run_id=thief, grace_s=0)
    walled.path(holder, "work/go").touch()
    wait_for(walled.path(holder, "work/ready").exists, "whose port it is")
    assert hears(walled, OWN)


def test_a_run_at_the_port_of_a_service_says_so_and_keeps_nobody_off_the_service(
    walled: Walled,
) -> None:
    walled.call("prepare", peers=[], network_wall={"networks": [], "ports": []})
    taken = spec("true", user="baseload-job", port=TEMPORAL, is_port_private=True)
    with pytest.raises(Refused, match=str(TEMPORAL)) as caught:
        walled.call("stage", run_id="job-taken-port-0-1", spec=taken)
    assert caught.value.code == "port-taken"
    assert walled.look("job-taken-port-0-1")["state"] == "unknown"
    as_another = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    as_another += ["/usr/bin/python3", "-c", ASK, f"127.0.0.1:{TEMPORAL}"]
    assert "hello" in walled.inside(*as_another)


def test_a_run_whose_port_is_taken_before_its_start_says_so_and_does_not_start(
    walled: Walled,
) -> None:
    walled.call("prepare", peers=[], network_wall={"networks": [], "ports": []})
    walled.run("job-port-squatter-0-1", python(LISTEN, OTHERS), user="baseload-job")
    wait_for(walled.path("job-port-squatter-0-1", "work/ready").exists, "who has come first")
    walled.stage("job-taken-port-0-1", "true", user="baseload-job", port=OTHERS)
    with pytest.raises(Refused, match=str(OTHERS)) as caught:
        walled.call("start", run_id="job-taken-port-0-1")
    assert caught.value.code == "port-taken"
    assert walled.look("job-taken-port-0-1")["state"] == "staged"


def test_a_container_reaches_no_more_than_any_other_run(
    walled: Walled, podman_environment: dict[str, str]
) -> None:
    walled.environment = podman_environment
    wall = {"networks": [CLOSED], "ports": [[FAR, TEMPORAL]]}
    walled.call("prepare", peers=[], network_wall=wall)
    walled.run("job-plain-0-1", python(LISTEN, OTHERS), user="baseload-job")
    wait_for(walled.path("job-plain-0-1", "work/ready").exists, "another job's port")
    places = [(one, TEMPORAL) for one in ("127.0.0.1", CLOSED, METADATA, FAR)]
    asks = "".join(
        f"./timeout 1 ./bash -c ': < /dev/tcp/{host}/{port}' && echo {host} {port}; echo asked\n"
        for host, port in [*places, ("127.0.0.1", OTHERS)]
    )
    boxed = "job-boxed-0-1"
    more = {"user": "baseload-job", "environment": {"LD_LIBRARY_PATH": "."}}
    staged = spec(asks, runtime="podman", **more)
    walled.call("stage", run_id=boxed, image=IMAGE, owned=True, spec=staged)
    for path in (shutil.which("bash"), shutil.which("timeout"), *libraries_of("bash")):
        shutil.copy(str(path), walled.path(boxed, "work"))
    walled.call("start", run_id=boxed)
    walled.exit_of(boxed)
    said = walled.path(boxed, "log").read_text()
    assert "not found" not in said
    assert said.count("asked") == len(places) + 1, said
    assert [line for line in said.splitlines() if line[:1].isdigit()] == []


BACKEND = """
import os, socket, zipfile
def build_wheel(folder, config_settings=None, metadata_directory=None):
    heard = ["/proc/1 " + str(os.path.exists("/proc/1"))]
    for host in HOSTS:
        try:
            socket.create_connection((host, PORT), 1).close()
            heard.append(host + " hello")
        except OSError:
            heard.append(host + " no")
    with zipfile.ZipFile(os.path.join(folder, "asker-1.0-py3-none-any.whl"), "w") as wheel:
        info = "asker-1.0.dist-info/"
        wheel.writestr("heard", "\\n".join(heard))
        wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\\nName: asker\\nVersion: 1.0\\n")
        kind = "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
        wheel.writestr(info + "WHEEL", kind)
        wheel.writestr(info + "RECORD", "")
    return "asker-1.0-py3-none-any.whl"
"""


@pytest.mark.parametrize("owned", [False, True])
def test_what_a_package_runs_to_be_built_reaches_no_more_than_a_run(
    walled: Walled, wheels: Path, owned: bool
) -> None:
    wall = {"networks": [CLOSED], "ports": [[FAR, TEMPORAL]]}
    walled.call("prepare", peers=[], network_wall=wall)
    hosts = ("127.0.0.1", CLOSED, METADATA, FAR)
    project = "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n"
    backend = f"HOSTS, PORT = {hosts!r}, {TEMPORAL}\n{BACKEND}"
    package = wheels / "asker-1.0.zip"
    with zipfile.ZipFile(package, "w") as source:
        source.writestr("asker-1.0/pyproject.toml", project)
        source.writestr("asker-1.0/backend.py", backend)
    asked = {"python_packages": [str(package)], "spec": spec("true", user="baseload-job")}
    walled.call("stage", run_id="job-built-0-1", owned=owned, **asked)
    environment = Path(walled.document("job-built-0-1", "spec.json")["packages_path"])
    (heard,) = environment.glob("lib/python*/site-packages/heard")
    assert heard.read_text().splitlines() == ["/proc/1 False", *(f"{host} no" for host in hosts)]


def libraries_of(program: str) -> list[str]:
    done = subprocess.run(["ldd", str(shutil.which(program))], check=True, capture_output=True)
    return re.findall(r"/\S+\.so\S*", done.stdout.decode())


def rests(agent: Walled) -> bool:
    """Take the wall away, as the end of a control plane on this machine does; whether it is."""
    program = "from activities.agent.host import network_wall; print(network_wall.rest())"
    # With the note of this root alone: other tests have runs on this machine.
    notes = agent.root / "notes"
    shutil.rmtree(notes, ignore_errors=True)
    notes.mkdir()
    for note in Path(ACCOUNTS).glob("wall-*"):
        with contextlib.suppress(FileNotFoundError):  # Another test has ended meanwhile.
            if str(agent.root) in (said := note.read_text()):
                (notes / note.name).write_text(said)
    alone = f'mount --bind {notes} {ACCOUNTS}; exec "$@"'
    said = agent.inside(
        "unshare", "--mount", "sh", "-ec", alone, "sh", sys.executable, "-c", program
    )
    is_there = "inet baseload" in agent.inside("nft", "list", "tables")
    assert is_there == (said == "False\n"), said
    return not is_there


def test_the_wall_rests_while_no_run_is_left_and_stands_for_the_next(walled: Walled) -> None:
    walled.call("prepare", peers=[], network_wall={"networks": [], "ports": []})
    temporal = f"127.0.0.1:{TEMPORAL}"
    gate = "touch ready; while ! [ -e go ]; do sleep 0.02; done; "
    walled.run("job-on-0-1", gate + python(ASK, temporal), user="baseload-job")
    assert not rests(walled)
    walled.path("job-on-0-1", "work/go").touch()
    walled.exit_of("job-on-0-1")
    assert walled.path("job-on-0-1", "log").read_text() == f"{temporal} no\nasked\n"
    assert rests(walled)
    assert asked(walled, "job-after-0-1", temporal) == {temporal: "no"}


ANSWER = """
import socket, sys
answering = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
answering.bind(("127.0.0.1", int(sys.argv[1])))
open("answers", "w").close()
while True:
    answering.sendto(b"hello", answering.recvfrom(9)[1])
"""
ASK_ONCE = """
import socket, sys
asking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
asking.settimeout(1)
asking.connect(("127.0.0.1", int(sys.argv[1])))
try:
    asking.send(b"hello")
    print(asking.recv(9).decode(), flush=True)
except OSError:
    print("no", flush=True)
"""


def test_a_job_reaches_no_service_of_its_machine_without_a_connection(walled: Walled) -> None:
    walled.call("prepare", peers=[], network_wall={"networks": [], "ports": []})
    enter = ["nsenter", f"--net=/proc/{walled.network}/ns/net", sys.executable, "-c"]
    folder = walled.root / "services"
    service = subprocess.Popen([*enter, ANSWER, str(TEMPORAL)], cwd=folder)
    try:
        wait_for((folder / "answers").exists, "the service")
        client = subprocess.run(
            [*enter, ASK_ONCE, str(TEMPORAL)], capture_output=True, check=True, text=True
        )
        assert client.stdout == "hello\n"
        walled.run("job-walled-0-1", python(ASK_ONCE, TEMPORAL), user="baseload-job")
        walled.exit_of("job-walled-0-1")
        assert walled.path("job-walled-0-1", "log").read_text() == "no\n"
    finally:
        service.kill()
        service.wait()


SAY_AND_CLOSE = """
import socket, threading
server = socket.create_server(("127.0.0.1", 0))
def say():
    one = server.accept()[0]
    one.sendall(b"x" * 3000000)
    one.close()
threading.Thread(target=say).start()
heard = 0
with socket.create_connection(server.getsockname()) as asking:
    while chunk := asking.recv(65536):
        heard += len(chunk)
print("heard", heard)
"""


def test_all_that_a_run_says_to_itself_before_it_hangs_up_arrives(walled: Walled) -> None:
    walled.call("prepare", peers=[], network_wall={"networks": [], "ports": []})
    walled.run("job-own-words-0-1", python(SAY_AND_CLOSE), user="baseload-job")
    assert walled.exit_of("job-own-words-0-1")["exit_code"] == 0
    assert walled.path("job-own-words-0-1", "log").read_text() == "heard 3000000\n"


@pytest.fixture
def beyond(walled: Walled) -> Iterator[list[str]]:
    """Another machine behind a cable, at the addresses that a job may not or may reach: what starts
    a program there."""
    folder = walled.root / "beyond"
    folder.mkdir()
    ours = Path(f"/proc/{os.getpid()}/ns/net").readlink()
    other = subprocess.Popen(["unshare", "--net", "sleep", "600"])
    try:
        wait_for(lambda: Path(f"/proc/{other.pid}/ns/net").readlink() != ours, "its network")
        here, there = (
            ["nsenter", f"--net=/proc/{pid}/ns/net"] for pid in (walled.network, other.pid)
        )
        cable = f"""
            for a in {METADATA} {CLOSED} {FAR}; do ip addr del $a/32 dev lo; done
            ip link add near type veth peer name far netns {other.pid}
            ip addr add 10.98.0.1/24 dev near; ip link set near up
        """
        subprocess.run([*here, "sh", "-ec", cable], check=True)
        addresses = f"""
            ip link set lo up; ip link set far up; ip addr add 10.98.0.2/24 dev far
            for a in {METADATA} {CLOSED} {FAR}; do ip addr add $a/32 dev far; done
        """
        subprocess.run([*there, "sh", "-ec", addresses], check=True)
        route = ["ip", "route", "add", "default", "via", "10.98.0.2"]
        subprocess.run([*here, *route], check=True)
        ports = [str(TEMPORAL), str(OTHERS)]
        service = subprocess.Popen([*there, sys.executable, "-c", LISTEN, *ports], cwd=folder)
        wait_for((folder / "ready").exists, "the services beyond")
        yield there
        service.kill()
        service.wait()
    finally:
        other.kill()
        other.wait()


def test_a_private_port_is_reached_by_its_run_and_root_alone(
    walled: Walled, beyond: list[str]
) -> None:
    walled.call("prepare", peers=[], network_wall={"networks": [], "ports": []})
    run_id = "job-private-0-1"
    ask = f"while ! [ -e ready ]; do sleep 0.02; done; {python(ASK, f'127.0.0.1:{OWN}')}"
    both = f"({python(LISTEN, OWN, OTHERS)} &) ; {ask}; touch asked; sleep 600"
    walled.run(run_id, both, user="baseload-job", port=OWN, is_port_private=True)
    wait_for(walled.path(run_id, "work/asked").exists, "the port")
    assert "hello" in walled.path(run_id, "log").read_text(), "the run itself"
    assert hears(walled, OWN), "root on its machine"
    as_another = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    place = f"127.0.0.1:{OWN}"
    as_another += ["/usr/bin/python3", "-c", ASK]
    assert "asked" in (found_by := walled.inside(*as_another, place))
    assert "hello" not in found_by, "another user of the machine"
    assert asked(walled, "job-beside-0-1", place) == {place: "no"}
    found = subprocess.run(
        [*beyond, sys.executable, "-c", ASK, f"10.98.0.1:{OWN}", f"10.98.0.1:{OTHERS}"],
        capture_output=True, check=True, text=True,
    ).stdout.splitlines()  # fmt: skip
    assert found[:2] == [f"10.98.0.1:{OWN} no", f"10.98.0.1:{OTHERS} hello"]


@pytest.mark.usefixtures("beyond")
def test_a_job_reaches_no_closed_network_port_or_metadata_address_beyond_its_machine(
    walled: Walled,
) -> None:
    wall = {"networks": [CLOSED], "ports": [[FAR, TEMPORAL]]}
    assert walled.call("prepare", peers=[], network_wall=wall)["no_wall_reason"] is None
    places = [f"{CLOSED}:{OTHERS}", f"{METADATA}:{OTHERS}", f"{FAR}:{TEMPORAL}", f"{FAR}:{OTHERS}"]
    client = [sys.executable, "-c", ASK, *places]
    entered = ["nsenter", f"--net=/proc/{walled.network}/ns/net", *client]
    answers = subprocess.run(entered, capture_output=True, check=True, text=True).stdout
    assert answers.count("hello") == len(places)
    heard = asked(walled, "job-walled-0-1", *places)
    assert [place for place in places if heard[place] == "hello"] == [f"{FAR}:{OTHERS}"]


def test_the_wall_stands_again_after_the_machine_has_forgotten_it(walled: Walled) -> None:
    walled.call("prepare", peers=[], network_wall={"networks": [], "ports": []})
    place = f"127.0.0.1:{TEMPORAL}"
    walled.stage("job-walled-0-1", python(ASK, place), user="baseload-job")
    walled.inside("nft", "flush", "ruleset")
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


UPKEEP = """
import os, sys
from activities.agent.folders import Folders
from activities.agent.host import network_rules, network_wall
root, user, resolvers, change = sys.argv[1:]
network_rules.RESOLVERS = network_wall.RESOLVERS = resolvers
network_wall.keep(Folders(root), user)
upkeep = network_wall.Upkeep(Folders(root), user)
if change == "resolvers":
    open(resolvers, "w").write("nameserver 192.0.2.53\\nnameserver none\\n")
else:
    os.system("nft delete table inet baseload")
    network_wall.processes.monotonic_s = lambda: 1e12
upkeep.keep()
os.wait()
"""


@pytest.mark.parametrize("change", ["resolvers", "table"])
def test_the_wall_of_a_run_follows_its_machine(walled: Walled, change: str) -> None:
    """Its name servers come after a boot, and its firewall may be started anew."""
    walled.call("prepare", peers=[], network_wall={"networks": [], "ports": []})
    walled.stage("job-followed-0-1", "true", user="baseload-job")
    user = walled.document("job-followed-0-1", "spec.json")["user"]
    resolvers = walled.root / "resolv.conf"
    act = [sys.executable, "-c", UPKEEP, str(walled.root), user]
    walled.inside(*act, str(resolvers), change)
    said = walled.inside("nft", "list", "set", "inet", "baseload", "resolvers4")
    assert "127.0.0.53" in said
    assert ("192.0.2.53" in said) == (change == "resolvers")
