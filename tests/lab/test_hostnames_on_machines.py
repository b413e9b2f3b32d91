"""Hostnames of runs on whole machines, asked for by python-zeroconf and avahi from other ones."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import time
from collections.abc import Iterator

import pytest

from tests.lab.agent import ROOT, Agent, agent_on
from tests.lab.fixtures import BootMachine
from tests.lab.link import Link
from tests.lab.machine import Kind, Machine
from tests.lab.machines import Lab
from tests.lab.waiting import wait_until

RUN = "job-hostname-0-1"
FOLLOWS_S = 5.0
# Names as long and as winding as they can be: 200 of 126 labels, each but the first a pointer.
FLOOD = (
    struct.pack(">HHHHHH", 0, 0, 200, 0, 0, 0)
    + b"\1a" * 126
    + b"\0\0\1\0\1"
    + b"\xc0\x0c\0\1\0\1" * 199
)
AVAHI = """
[server]
host-name={name}
use-ipv6=no
allow-interfaces=eth0
[publish]
publish-hinfo=no
publish-workstation=no
"""


@pytest.fixture
def link(lab: Lab) -> Iterator[Link]:
    made = Link(lab.network, "web.local.")
    yield made
    made.close()


async def publish(agent: Agent, machine: Machine, order: int = 1, runtime: str = "process") -> None:
    """Begin a run whose hostname the node publishes."""
    hostname = {"reservation_id": "rsv-1", "hostname": "web", "order": order}
    await agent.begin(
        RUN, "exec sleep 6001", runtime, hostname={**hostname, "address": machine.address}
    )


def said(machine: Machine) -> dict[str, object]:
    """What the node says of the hostname; empty: nothing yet."""
    text = machine.run("cat", f"{ROOT}/runs/{RUN}/hostname.json", check=False)
    with contextlib.suppress(ValueError):
        found: dict[str, object] = json.loads(text)
        return found
    return {}


def until_said(machine: Machine, state: str, limit_s: float = 20.0) -> dict[str, object]:
    wait_until(lambda: said(machine).get("state") == state, f"{machine.name} says {state}", limit_s)
    return said(machine)


def cpu_s(machine: Machine) -> float:
    """The CPU seconds of the process that publishes the hostname."""
    pid = machine.run("pgrep", "-x", "publish").strip()
    fields = machine.run("cat", f"/proc/{pid}/stat").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def start_avahi(machine: Machine, name: str) -> None:
    machine.run("mkdir", "-p", "/run/dbus", "/run/avahi-daemon")
    if "dbus-daemon" not in " ".join(machine.command_lines()):
        machine.run("dbus-daemon", "--system", "--fork")
    machine.run("tee", "/etc/avahi/avahi-daemon.conf", input_text=AVAHI.format(name=name))
    machine.run("avahi-daemon", "--daemonize", "--no-rlimits", "--no-drop-root", "--no-chroot")


def avahi_resolves(machine: Machine, name: str) -> str:
    return machine.run("avahi-resolve", "-4", "-n", name, check=False).rpartition("\t")[2].strip()


def until_avahi_resolves(machine: Machine, name: str, address: str) -> None:
    resolved = lambda: avahi_resolves(machine, name) == address  # noqa: E731
    wait_until(resolved, f"{name} is {address} for avahi of {machine.name}", 20.0)


@pytest.mark.parametrize(("kind", "runtime"), [("sshd", "process"), ("systemd", "systemd")])
async def test_the_hostname_of_a_run_comes_with_it_and_goes_with_it(
    lab: Lab, boot_machine: BootMachine, link: Link, kind: Kind, runtime: str
) -> None:
    machine = boot_machine(kind)
    async with agent_on(lab, machine) as agent:
        await publish(agent, machine, runtime=runtime)
        link.until(machine.address)
        assert until_said(machine, "published")["addresses"] == [machine.address]
        await agent.call("end", run_id=RUN, grace_s=1)
        assert (await agent.exited(RUN))["tree_gone"] is True
        wait_until(lambda: link.believed() == [], "the cache has forgotten the name", FOLLOWS_S)
    assert link.resolve() == []


async def test_a_node_with_ipv6_has_both_addresses_and_follows_their_changes(
    lab: Lab, boot_machine: BootMachine, link: Link
) -> None:
    machine = boot_machine()
    machine.run("ip", "address", "add", "fd77::11/64", "dev", "eth0", "nodad")
    async with agent_on(lab, machine) as agent:
        await publish(agent, machine)
        link.until(machine.address)
        assert link.resolve6() == ["fd77::11"]
        machine.run("ip", "address", "add", "10.77.250.9/24", "dev", "eth0")
        wait_until(lambda: len(link.resolve(200)) == 2, "both addresses", FOLLOWS_S)
    assert set(link.resolve()) == {machine.address, "10.77.250.9"}


async def test_a_flood_on_the_link_takes_no_cpu_from_runs_and_the_name_stays(
    lab: Lab, boot_machine: BootMachine, link: Link
) -> None:
    machine = boot_machine()
    async with agent_on(lab, machine) as agent:
        await publish(agent, machine)
        link.until(machine.address)
        before_s = cpu_s(machine)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
            near = socket.inet_aton(lab.network.host_address)
            one.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, near)
            began_s = time.monotonic()
            while (took_s := time.monotonic() - began_s) < 2.0:
                one.sendto(FLOOD, ("224.0.0.251", 5353))
        assert cpu_s(machine) - before_s < took_s * 0.15
        assert said(machine)["state"] == "published"
        link.until(machine.address)


async def test_avahi_resolves_the_hostname_also_beside_an_avahi_on_the_same_machine(
    lab: Lab, boot_machine: BootMachine, link: Link
) -> None:
    machine, asking = boot_machine(), boot_machine()
    start_avahi(machine, "node-a")
    start_avahi(asking, "node-b")
    async with agent_on(lab, machine) as agent:
        await publish(agent, machine)
        until_said(machine, "published")
        for resolver in (asking, machine):
            until_avahi_resolves(resolver, "web.local", machine.address)
    assert avahi_resolves(asking, "node-a.local") == machine.address


async def test_the_hostname_follows_the_reservation_to_another_node_and_leaves_no_trace(
    lab: Lab, boot_machine: BootMachine, link: Link
) -> None:
    """The first node is alive and nobody reaches it to end its run: it leaves the name itself."""
    first, second = boot_machine(), boot_machine()
    async with agent_on(lab, first) as agent:
        await publish(agent, first, order=1)
    link.until(first.address)
    async with agent_on(lab, second) as agent:
        await publish(agent, second, order=2)
        began_s = time.monotonic()
        link.until(second.address)
        assert time.monotonic() - began_s < FOLLOWS_S
        assert "gone to the node that got it later" in str(until_said(first, "conflict")["message"])
        assert until_said(second, "published")["addresses"] == [second.address]
    async with agent_on(lab, first) as agent:
        await agent.call("end", run_id=RUN, grace_s=1)
        link.until(second.address)  # nothing was said by the first at its end


async def test_a_dead_node_answers_for_nothing_and_its_name_is_taken_over(
    lab: Lab, boot_machine: BootMachine, link: Link
) -> None:
    first, second = boot_machine(), boot_machine()
    async with agent_on(lab, first) as agent:
        await publish(agent, first, order=1)
        link.until(first.address)
        first.power_cut()
    async with agent_on(lab, second) as agent:
        await publish(agent, second, order=2)
        link.until(second.address)
    first.boot()
    first.wait_for_ssh()
    link.until(second.address)
    assert [line for line in first.command_lines() if "publish" in line] == []


async def test_without_its_supervisor_a_run_has_no_hostname(
    lab: Lab, boot_machine: BootMachine, link: Link
) -> None:
    machine = boot_machine()
    async with agent_on(lab, machine) as agent:
        await publish(agent, machine)
        link.until(machine.address)
        machine.run("pkill", "-KILL", "-x", "supervise")
        wait_until(lambda: link.believed() == [], "the name is taken back", FOLLOWS_S)
        assert machine.run("pgrep", "-x", "publish", check=False) == ""


async def test_another_responder_of_the_name_is_seen_and_the_name_taken_when_it_goes(
    lab: Lab, boot_machine: BootMachine, link: Link
) -> None:
    machine = boot_machine()
    async with agent_on(lab, machine) as agent:
        with link.claim() as rival:
            await publish(agent, machine)
            found = until_said(machine, "conflict")
            assert (found["addresses"], link.resolve()) == ([rival], [rival])
        until_said(machine, "published")
        link.until(machine.address)


async def test_a_responder_that_begins_later_and_does_not_yield_is_a_conflict(
    lab: Lab, boot_machine: BootMachine, link: Link
) -> None:
    machine = boot_machine()
    async with agent_on(lab, machine) as agent:
        await publish(agent, machine)
        link.until(machine.address)
        with link.claim() as rival:  # It does not probe for hostnames, as it should.
            assert until_said(machine, "conflict")["addresses"] == [rival]


async def test_a_machine_that_probes_for_the_name_takes_another_one(
    lab: Lab, boot_machine: BootMachine, link: Link
) -> None:
    machine, other = boot_machine(), boot_machine()
    async with agent_on(lab, machine) as agent:
        await publish(agent, machine)
        link.until(machine.address)
        start_avahi(other, "web")
        until_avahi_resolves(other, "web-2.local", other.address)
        assert said(machine)["state"] == "published"
        assert link.resolve() == [machine.address]
