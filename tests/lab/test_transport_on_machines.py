"""The product's connections to whole machines: black holes, restarts of sshd, false keys."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

import pytest

from activities.transport.endpoint import NodeEndpoint
from activities.transport.errors import HostKeyMismatch, NodeUnreachable, OutcomeUnknown
from activities.transport.ssh import NodeConnections
from tests.lab.fixtures import BootMachine
from tests.lab.machine import Machine
from tests.lab.machines import Lab


def endpoint(machine: Machine) -> NodeEndpoint:
    return NodeEndpoint(machine.address, machine.port, "root", machine.minion_id)


@pytest.fixture
async def connections(lab: Lab) -> AsyncIterator[NodeConnections]:
    opened = NodeConnections(lab.client_key)
    yield opened
    await opened.close()


async def hostname(connections: NodeConnections, machine: Machine) -> str:
    found = await connections.call(endpoint(machine), "inspect", {}, limit_s=10)
    return str(json.loads(found)["hardware"]["hostname"])


async def test_a_command_into_a_black_hole_ends_at_its_limit_and_the_next_one_works(
    connections: NodeConnections, boot_machine: BootMachine
) -> None:
    machine, other, off = boot_machine(), boot_machine(), boot_machine()
    off.power_cut()
    assert await hostname(connections, machine) == machine.name
    machine.cut_network()
    lost = asyncio.create_task(connections.call(endpoint(machine), "inspect", {}, limit_s=30))
    assert await hostname(connections, other) == other.name, "others go on meanwhile"
    with pytest.raises(NodeUnreachable, match=off.address):
        await connections.call(endpoint(off), "inspect", {}, limit_s=30)
    # On a slow host its link is found to be dead first; then nothing was sent, and that is said.
    with pytest.raises((OutcomeUnknown, NodeUnreachable)):
        await lost
    machine.heal_network()
    machine.wait_for_ssh()
    with contextlib.suppress(NodeUnreachable):  # an attempt from before may still be under way
        await hostname(connections, machine)
    assert await hostname(connections, machine) == machine.name


async def test_the_pool_connects_anew_after_sshd_was_killed(
    connections: NodeConnections, boot_machine: BootMachine
) -> None:
    machine = boot_machine("systemd")
    assert await hostname(connections, machine) == machine.name
    machine.restart_sshd(drop_sessions=True)
    with contextlib.suppress(OutcomeUnknown):  # the loop may not have heard of the end yet
        await hostname(connections, machine)
    assert await hostname(connections, machine) == machine.name


async def test_another_machine_at_the_address_is_refused_before_anything_is_said_to_it(
    connections: NodeConnections, boot_machine: BootMachine
) -> None:
    machine = boot_machine()
    pinned = endpoint(machine)
    shown = machine.change_host_key()
    with pytest.raises(HostKeyMismatch) as caught:
        await connections.call(pinned, "inspect", {}, limit_s=10)
    assert shown not in str(caught.value)
    assert not (machine.disk / "var/lib/baseload/agent").exists()
