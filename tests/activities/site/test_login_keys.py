"""Machines of strangers, each of which is entered with a key of its own, and those of before."""

import base64
from collections.abc import Callable, Iterator
from pathlib import Path

import asyncssh
import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.secrets.login_keys import login_private_key, login_public_key
from activities.secrets.machine_keys import host_key_fingerprint, host_private_key
from activities.secrets.region_keys import openssh, region_private_key, region_public_key
from activities.settings import settings
from activities.site.node_client import close_connections
from activities.site.nodes import reach_node
from tests.doubles.rented.boot import Machine
from tests.doubles.rented.plain_boot import PlainBoot
from workflows.contracts.nodes import NodeAddress
from workflows.effects.nodes import ReachNode

Machines = Callable[..., NodeAddress]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Machines]:
    """Starts a machine that lets in its own key, or that of its region; returns its address."""
    monkeypatch.setenv("BASELOAD_SECRETS_KEY", "11" * 32)
    monkeypatch.setenv("BASELOAD_NODE_NETWORKS", "127.0.0.0/8")
    settings.cache_clear()
    boot = PlainBoot()

    def start(name: str, *, has_own_key: bool = True) -> NodeAddress:
        minion_id = host_key_fingerprint(name)
        own = login_public_key("reg-1", minion_id)
        address = boot.start(
            Machine(
                id=name,
                name=name,
                image="",
                env={"HOST_KEY": base64.b64encode(host_private_key(name)).decode()},
                let_in=[own if has_own_key else region_public_key("reg-1")],
            )
        )
        return NodeAddress(
            node_id=f"nod-{name}",
            region_id="reg-1",
            host=address.host,
            port=address.port,
            minion_id=minion_id,
            root=str(tmp_path / name),
            leased=True,
            has_own_key=has_own_key,
        )

    yield start
    boot.close()
    settings.cache_clear()


async def reached(node: NodeAddress) -> str:
    found = await ActivityEnvironment().run(reach_node, ReachNode(node=node))
    return str(found.boot_id)


async def logs_in(node: NodeAddress, private_key: bytes) -> bool:
    try:
        async with asyncssh.connect(
            node.host, node.port, username="root", known_hosts=None, agent_path=None,
            client_keys=[asyncssh.import_private_key(private_key)], config=None,
        ):  # fmt: skip
            return True
    except asyncssh.PermissionDenied:
        return False


async def test_each_machine_is_entered_with_its_own_key_and_those_of_before_with_the_regions(
    machine: Machines,
) -> None:
    first, second, before = machine("one"), machine("two"), machine("old", has_own_key=False)
    try:
        assert await reached(first) == await reached(second) == await reached(before)
    finally:
        await close_connections()


async def test_what_opens_one_machine_opens_no_other(machine: Machines) -> None:
    first, second, before = machine("one"), machine("two"), machine("old", has_own_key=False)
    own = login_private_key("reg-1", first.minion_id)
    assert [await logs_in(each, own) for each in (first, second, before)] == [True, False, False]
    regions = openssh(region_private_key("reg-1"))
    assert [await logs_in(each, regions) for each in (first, before)] == [False, True]


async def test_a_machine_with_its_own_key_is_never_asked_with_the_regions(
    machine: Machines,
) -> None:
    before = machine("old", has_own_key=False)
    with pytest.raises(ApplicationError) as caught:
        await reached(before.model_copy(update={"has_own_key": True}))
    await close_connections()
    assert caught.value.type == "LoginRefused"
