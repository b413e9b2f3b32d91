"""Machines behind a router: a real miniupnpd, join.sh as the API serves it, and a real sshd."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from activities.transport.endpoint import NodeEndpoint
from activities.transport.ssh import NodeConnections
from api.documentation import get_join_script
from tests.lab.fixtures import BootMachine
from tests.lab.machine import Machine
from tests.lab.machines import Lab
from tests.lab.router import Router, missing_programs
from tests.lab.waiting import wait_until

REGION = "reg-01m83jebwvt2nf9trwd4ckvcrw"
TOKEN = f"join_{REGION}_0123456789abcdefghijABCDEFGHIJ0123456789-_A"
OUTER = "restrict ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPlatform baseload"
TIMER = "baseload-upnp.timer"
IMPOSTOR = """
import select, socket
own = socket.gethostbyname(socket.gethostname())
search = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
search.bind(("", 1900))
group = socket.inet_aton("239.255.255.250") + socket.inet_aton(own)
search.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group)
server = socket.create_server(("", 80))
print("ready", flush=True)
while True:
    if server in select.select([search, server], [], [])[0]:
        print("connected", server.accept()[1], flush=True)
        continue
    packet, source = search.recvfrom(4096)
    answer = "HTTP/1.1 200 OK\\r\\nLocation: http://%s:80/\\r\\n\\r\\n" % own
    search.sendto(answer.encode(), source)
    print("answered", source, flush=True)
"""


class Platform(ThreadingHTTPServer):
    """Takes announcements in front of the router, with its mappings at each of these moments."""

    def __init__(self, router: Router) -> None:
        super().__init__((router.platform_address, 0), _Handler)
        self.router = router
        self.status, self.receipt = 202, {"added": True, "upnp": True}
        self.announced: list[tuple[str, int]] = []
        self.mapped: list[dict[int, str]] = []

    @property
    def url(self) -> str:
        return f"http://{self.router.platform_address}:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Platform

    def do_POST(self) -> None:
        said = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert said["token"] == TOKEN
        self.server.announced.append((said["address"], said["port"]))
        self.server.mapped.append(self.server.router.mappings())
        self.send_response(self.server.status)
        self.end_headers()
        self.wfile.write(json.dumps(self.server.receipt).encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        return None


@pytest.fixture
def router(lab: Lab) -> Iterator[Router]:
    """A router that maps ports. Skips where the host has none; with CI=true it fails."""
    if missing := missing_programs():
        reason = f"run `apt-get install {' '.join(missing)}`"
        pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)
    with Router(lab.network) as made:
        made.start()
        yield made


@pytest.fixture
def platform(router: Router) -> Iterator[Platform]:
    with Platform(router) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


class Joining:
    """Machines behind the router that run join.sh as a person would type it."""

    def __init__(self, platform: Platform, lab: Lab) -> None:
        self.platform, self.key = platform, lab.public_key.strip()

    def __call__(self, machine: Machine, *options: str) -> str:
        """Run it, as it is served; what it says. Raises: RuntimeError, when it fails."""
        self.platform.router.lead(machine)
        arguments = ["--api", self.platform.url, "--token", TOKEN, "--key", self.key, *options]
        script = bytes(get_join_script().body).decode()
        return machine.run("timeout", "60", "sh", "-s", "--", *arguments, input_text=script)


@pytest.fixture
def join(platform: Platform, lab: Lab) -> Joining:
    return Joining(platform, lab)


def renew(machine: Machine) -> str:
    """What the timer does; what the keeper says."""
    keeper, join_file = "/etc/baseload/upnp", "/etc/baseload/join"
    return machine.run("python3", "-I", "-S", keeper, "renew", "--join-file", join_file)


def keeper_files(machine: Machine) -> str:
    found = ("/etc/baseload", "/etc/systemd/system")
    return machine.run("find", *found, "-name", "*upnp*")


@pytest.fixture
async def connections(lab: Lab) -> AsyncIterator[NodeConnections]:
    """The platform's own connections to nodes."""
    opened = NodeConnections(lab.client_key)
    yield opened
    await opened.close()


def at(machine: Machine, place: tuple[str, int]) -> NodeEndpoint:
    """The machine as the platform reaches it, where it was announced."""
    return NodeEndpoint(*place, "root", machine.minion_id)


async def test_a_machine_at_home_is_reached_until_its_node_is_removed(
    connections: NodeConnections, boot_machine: BootMachine, platform: Platform, join: Joining
) -> None:
    machine, router = boot_machine("systemd"), platform.router
    assert "every 10 minutes" in join(machine)
    (address, port), mapped = platform.announced[0], platform.mapped[0]
    assert address == router.external_address
    assert mapped == {port: f"{machine.address}:22"}, "before the platform could connect"
    assert machine.run("systemctl", "is-active", TIMER).strip() == "active"
    # The router forgets everything, and is another one inside.
    router.stop()
    router.start(port=5001)
    wait_until(
        lambda: (
            machine.run("systemctl", "start", "baseload-upnp.service") == ""
            and router.mappings() == mapped
        ),
        "the port is mapped again",
        30.0,
    )
    request = {"leaves": REGION, "authorized_key": join.key}
    # The answer comes by the port that is closed.
    await connections.call(at(machine, (address, port)), "release", request, limit_s=30)
    assert router.mappings() == {}
    assert keeper_files(machine) == ""
    assert TIMER not in machine.run("systemctl", "list-units", "--all", "--no-legend")


async def test_the_keeper_follows_the_router_to_another_address(
    connections: NodeConnections, boot_machine: BootMachine, platform: Platform, join: Joining
) -> None:
    machine, router = boot_machine(), platform.router
    assert "neither systemd nor cron" in join(machine)
    _, port = platform.announced[0]
    renew(machine)
    there = (router.move(), port)
    renew(machine)
    renew(machine)
    assert platform.announced[1:] == [(platform.announced[0]), there]
    found = await connections.call(at(machine, there), "inspect", {}, limit_s=30)
    assert json.loads(found)["hardware"]["hostname"] == machine.name
    # The node was removed while nobody reached the machine.
    platform.status = 401
    router.move()
    machine.run("sed", "-i", 's/"asked_s": [0-9.]*/"asked_s": 0/', "/etc/baseload/upnp/state.json")
    renew(machine)
    assert router.mappings() == {}
    assert keeper_files(machine) == ""


def test_two_machines_that_want_the_same_port_get_one_each(
    boot_machine: BootMachine, platform: Platform, join: Joining
) -> None:
    first, second = boot_machine(), boot_machine()
    second.use_host_key(first.key)
    for machine in (first, second):
        join(machine)
    (_, port), (_, other) = platform.announced
    assert platform.router.mappings() == {
        port: f"{first.address}:22",
        other: f"{second.address}:22",
    }
    platform.receipt = {"added": True, "upnp": False}
    renew(first)  # Its node has been added without UPnP.
    assert platform.announced[-1] == (first.address, 22)
    join(second, "--no-upnp")
    assert platform.announced[-1] == (second.address, 22)
    assert platform.router.mappings() == {}
    assert keeper_files(first) == keeper_files(second) == ""


def test_a_router_that_says_no_or_nothing_lets_the_machine_join_at_its_own_address(
    boot_machine: BootMachine, platform: Platform, join: Joining
) -> None:
    machine, router = boot_machine(), platform.router
    router.stop()
    said = [join(machine)]
    router.start(rights="")
    said.append(join(machine))
    router.stop()
    router.share_address()
    router.start()
    said.append(join(machine))
    assert "does not answer a search by UPnP" in said[0]
    assert "the router refuses AddPortMapping" in said[1]
    assert "shares one address among customers (CGNAT)" in said[2]
    for each in said:
        assert f"to {machine.address} port 22, and run join.sh again with --address" in each
        assert f"announced as root@{machine.address}:22" in each
    assert platform.announced == [(machine.address, 22)] * 3
    assert router.mappings() == {}
    assert keeper_files(machine) == ""


def test_a_neighbour_that_claims_to_be_the_router_is_not_asked(
    boot_machine: BootMachine, platform: Platform, join: Joining
) -> None:
    machine, neighbour = boot_machine(), boot_machine()
    platform.router.stop()
    neighbour.run("tee", "/root/impostor", input_text=IMPOSTOR)
    neighbour.run("sh", "-c", "python3 /root/impostor </dev/null >/root/log 2>&1 &")
    log = neighbour.disk / "root/log"
    wait_until(lambda: "ready" in log.read_text(), "the impostor listens")
    assert "does not answer a search by UPnP" in join(machine)
    assert platform.announced == [(machine.address, 22)]
    wait_until(lambda: "answered" in log.read_text(), "the impostor has answered")
    assert "connected" not in log.read_text()


def test_a_refused_announcement_leaves_no_port_open(
    boot_machine: BootMachine, platform: Platform, join: Joining
) -> None:
    machine = boot_machine()
    platform.status = 401
    with pytest.raises(RuntimeError, match="refused the announcement"):
        join(machine)
    assert platform.mapped[0] != {}
    assert platform.router.mappings() == {}
    # The script alone, as it lies in a checkout, without the program.
    platform.status = 202
    script = Path("deploy/node/join.sh").read_text()
    options = ("--api", platform.url, "--token", TOKEN, "--key", OUTER)
    said = machine.run("sh", "-s", "--", *options, input_text=script)
    assert f"Take {platform.url}/join.sh instead" in said
    assert platform.announced[-1] == (machine.address, 22)
    assert keeper_files(machine) == ""


def test_a_machine_in_the_platforms_own_network_opens_no_port(
    boot_machine: BootMachine, platform: Platform, lab: Lab
) -> None:
    machine = boot_machine()
    platform.router.lead(machine)
    options = ("--api", f"http://{lab.network.host_address}:9", "--token", TOKEN, "--key", OUTER)
    script = bytes(get_join_script().body).decode()
    said = machine.run("sh", "-s", "--", *options, input_text=script, check=False)
    assert "no port is mapped on a router, since none is needed" in said
    assert platform.router.mappings() == {}
    assert keeper_files(machine) == ""
