"""The confinement of a federated run, from inside: what it tries, and what alone it reaches."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from activities.agent.errors import RefusedError
from activities.agent.federated import egress
from tests.activities.agent.agent_process import LocalAgent, Refused, spec
from tests.activities.waiting import wait_for

pytestmark = [
    pytest.mark.usefixtures("staged_before"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can confine a run: run as root"),
    pytest.mark.skipif(shutil.which("ip") is None, reason="needs the program ip"),
]
MACHINE, FAR, BEHIND, METADATA = "192.0.2.1", "192.0.2.7", "192.0.2.130", "169.254.169.254"
MACHINE6, FAR6 = "2001:db8::1", "2001:db8::7"
ALLOWED, CLOSED, NAMED = 8443, 8444, "store.example"
PROBE = Path(__file__).with_name("federated_probe.py")
SERVE = """
import select, socket, sys
tcp, udp = [], []
for port in map(int, sys.argv[2:]):
    for family, every in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        one = socket.socket(family, socket.SOCK_STREAM)
        other = socket.socket(family, socket.SOCK_DGRAM)
        for each, kind in ((one, tcp), (other, udp)):
            if family == socket.AF_INET6:
                each.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            each.bind((every, port))
            kind.append(each)
        one.listen(16)
for path in ("\\0baseload-service", sys.argv[1] + ".socket"):
    one = socket.socket(socket.AF_UNIX)
    one.bind(path)
    one.listen(4)
    tcp.append(one)
import os
os.chmod(sys.argv[1] + ".socket", 0o777)
open(sys.argv[1], "w").close()
while True:
    for one in select.select(tcp + udp, [], [])[0]:
        if one in udp:
            content, at = one.recvfrom(99)
            one.sendto(b"hello", at)
        else:
            peer = one.accept()[0]
            peer.sendall(b"hello")
            peer.close()
"""


class Confining(LocalAgent):
    """An agent on a machine of a test, which has a network and names of its own."""

    machine = 0

    def command(self, verb: str) -> list[str]:
        return [*self.entering(), *super().command(verb)] if self.machine else super().command(verb)

    def entering(self) -> list[str]:
        """What starts a program on that machine."""
        return [
            "nsenter",
            f"--net=/proc/{self.machine}/ns/net",
            f"--mount=/proc/{self.machine}/ns/mnt",
        ]

    def inside(self, *command: str) -> str:
        """What a program of root's prints on that machine."""
        done = [*self.entering(), *command]
        return subprocess.run(done, capture_output=True, check=True, text=True).stdout


def serving(folder: Path, name: str, before: str, *ports: int) -> subprocess.Popen[bytes]:
    """A network namespace in which a program answers `hello` at these ports."""
    ready = folder / name
    process = subprocess.Popen(
        [
            "unshare",
            "--net",
            "--mount",
            "sh",
            "-ec",
            before + ' exec "$@"',
            "sh",
            sys.executable,
            "-c",
            SERVE,
            str(ready),
            *map(str, ports),
        ]
    )
    wait_for(ready.exists, f"the services of {name}")
    return process


@pytest.fixture
def confining(agent: LocalAgent) -> Iterator[Confining]:
    """The agent on a machine with services, beside another machine with services."""
    folder = agent.root / "services"
    folder.mkdir()
    folder.chmod(0o755)
    (folder / "hosts").write_text(f"127.0.0.1 localhost\n{FAR} {NAMED}\n127.0.0.1 inner.example\n")
    up = "ip link set lo up; "
    mine = f"mount --bind {folder}/hosts /etc/hosts; ip addr add {METADATA}/32 dev lo; "
    machine = serving(folder, "machine", up + mine, ALLOWED, CLOSED, 53)
    far = serving(folder, "far", up, ALLOWED, CLOSED, 53)
    agent.__class__ = Confining
    assert isinstance(agent, Confining)
    agent.machine = machine.pid
    joined = (
        f"ip link add near type veth peer name far netns {far.pid}; ip link set near up; "
        f"ip addr add {MACHINE}/25 dev near; ip addr add {MACHINE6}/64 dev near nodad; "
        f"ip route add {BEHIND}/32 via {FAR}"
    )
    subprocess.run([*agent.entering(), "sh", "-ec", joined], check=True)
    theirs = (
        f"ip link set far up; ip addr add {FAR}/25 dev far; ip addr add {BEHIND}/32 dev lo; "
        f"ip addr add {FAR6}/64 dev far nodad"
    )
    subprocess.run(["nsenter", f"--net=/proc/{far.pid}/ns/net", "sh", "-ec", theirs], check=True)
    agent.call("prepare", peers=[], network_wall={"networks": [], "ports": []})
    yield agent
    agent.end_all()
    agent.call("release")
    agent.machine = 0
    for process in (machine, far):
        process.kill()
        process.wait()


def found(agent: LocalAgent, run_id: str, *places: str, **more: Any) -> dict[str, Any]:
    """What a federated run finds from inside, at these places and around it."""
    terms = {"federated_id": "fed-1", "egress": [], "logs": "none", "model": None, **more}
    code = PROBE.read_text().replace("'", "'\\''")
    output = '"$BASELOAD_OUTPUT/found.json"'
    command = f"/usr/bin/python3 -c '{code}' {output} {' '.join(places)}"
    agent.run(run_id, command, user="baseload-job", federated=terms)
    document = agent.exit_of(run_id)
    assert document["exit_code"] == 0, document
    answer: dict[str, Any] = json.loads(agent.path(run_id, "output/found.json").read_text())
    return answer


PLACES = [f"{host}:{port}" for host in (MACHINE, FAR, BEHIND, METADATA, "127.0.0.1")
          for port in (ALLOWED, CLOSED)]  # fmt: skip
PLACES += [f"[{FAR6}]:{ALLOWED}", f"[{MACHINE6}]:{ALLOWED}", f"[::1]:{ALLOWED}"]
PLACES += [f"{NAMED}:{ALLOWED}", f"{NAMED}:{CLOSED}", f"inner.example:{ALLOWED}"]


def test_a_federated_run_without_egress_reaches_nothing_at_all(confining: Confining) -> None:
    heard = found(confining, "job-fedalone-0-1", *PLACES)
    assert set(heard["tcp"]) == set(PLACES)
    assert [place for place, words in heard["tcp"].items() if words == "hello"] == []
    assert [place for place, words in heard["udp"].items() if words == "hello"] == []
    assert heard["icmp"] == []
    assert heard["names"] == []
    assert heard["devices"] == ["lo"]
    assert heard["abstract"] == "no"
    assert heard["sockets"] == []
    assert heard["processes"] == []


def test_what_the_egress_allows_works_and_nothing_else(confining: Confining) -> None:
    allowed = [f"{FAR}:{ALLOWED}", f"192.0.2.128/25:{CLOSED}", f"[2001:db8::/64]:{ALLOWED}",
               f"{NAMED}:{ALLOWED}", f"inner.example:{ALLOWED}", f"{MACHINE}:{ALLOWED}",
               f"{METADATA}:{ALLOWED}", f"127.0.0.1:{ALLOWED}"]  # fmt: skip
    heard = found(confining, "job-fedegress-0-1", *PLACES, egress=allowed)
    reached = {place for place, words in heard["tcp"].items() if words == "hello"}
    assert reached == {
        *(f"{FAR}:{ALLOWED}", f"{BEHIND}:{CLOSED}", f"[{FAR6}]:{ALLOWED}", f"{NAMED}:{ALLOWED}"),
    }
    assert [place for place, words in heard["udp"].items() if words == "hello"] == []


def test_a_federated_run_shares_no_memory_and_shows_none_and_writes_to_none_of_the_disk(
    confining: Confining,
) -> None:
    segment = confining.inside("ipcmk", "--shmem", "4096", "--mode", "0666").split()[-1]
    shared = Path("/dev/shm/baseload-federated-test")
    shared.write_text("of another run")
    shared.chmod(0o666)
    try:
        heard = found(confining, "job-fedmemory-0-1")
    finally:
        confining.inside("ipcrm", "--shmem-id", segment)
        shared.unlink()
    assert heard["shared"] == []
    assert heard["segments"] == []
    assert heard["ptrace"] == [-1, 1]
    assert [line.split()[1] for line in heard["filter"]] == ["2"]
    cores = next(line for line in heard["limits"].splitlines() if "core file" in line)
    assert cores.split()[4:6] == ["1", "1"]
    assert heard["writable"] == []
    assert {"shm", "null", "pts"} <= set(heard["dev"])
    assert not {"fuse", "net", "infiniband", "log", "kmsg", "mem"} & set(heard["dev"])
    assert {"boot", "baseload"}.isdisjoint(heard["root"])


@pytest.mark.parametrize("text", ["example.com", "x:0", "x:99999", "a b:1", "10.0.0.0/40:1", ":1"])
def test_an_egress_that_is_no_place_is_refused_when_the_run_is_staged(
    agent: LocalAgent, text: str
) -> None:
    with pytest.raises(RefusedError) as refused:
        egress.places([text])
    assert refused.value.code == "bad-egress"
    if text != ":1":
        return
    agent.call("prepare", peers=[])
    terms = {"federated_id": "fed-1", "egress": [text], "logs": "none", "model": None}
    more = spec("true", user="baseload-job", federated=terms)
    with pytest.raises(Refused) as said:
        agent.call("stage", run_id="job-fedodd-0-1", spec=more)
    assert said.value.code == "bad-egress"
