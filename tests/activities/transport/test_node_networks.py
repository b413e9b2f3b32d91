"""Where nodes may be: addresses that people give are connected nowhere else."""

import socket
from collections.abc import Iterator

import pytest

from activities.settings import Settings, settings
from activities.transport.node_networks import (
    AddressRefusedError,
    is_permitted,
    permitted_address,
)


@pytest.fixture(autouse=True)
def plain_settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("BASELOAD_PLATFORM_NETWORKS", "10.200.0.0/16, fd00:200::/64")
    monkeypatch.delenv("BASELOAD_NODE_NETWORKS", raising=False)
    settings.cache_clear()
    yield
    settings.cache_clear()


def own_address() -> str:
    """An address of this host that is not the loopback's; the loopback's where it has no other."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("203.0.113.1", 9))
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1", "169.254.169.254", "fe80::1", "0.0.0.0",
     "::", "224.0.0.1", "10.200.3.4", "fd00:200::7", "::ffff:10.200.3.4", own_address()],
)  # fmt: skip
def test_no_node_is_at_the_loopback_beside_the_link_or_at_the_platforms_own(address: str) -> None:
    assert not is_permitted(address)


@pytest.mark.parametrize("address", ["10.0.0.7", "192.168.1.9", "203.0.113.9", "fd00:1::7"])
def test_nodes_are_in_private_and_public_networks(address: str) -> None:
    assert is_permitted(address)


def test_a_setting_opens_what_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BASELOAD_NODE_NETWORKS", "127.0.0.1/32,10.200.7.0/24")
    settings.cache_clear()
    found = {each: is_permitted(each) for each in ("127.0.0.1", "127.0.0.2", "10.200.7.1", "::1")}
    assert found == {"127.0.0.1": True, "127.0.0.2": False, "10.200.7.1": True, "::1": False}


async def test_a_name_is_resolved_to_an_address_that_was_checked() -> None:
    assert await permitted_address("10.0.0.7", 22) == "10.0.0.7"
    with pytest.raises(AddressRefusedError):
        await permitted_address("localhost", 22)


def test_a_setting_that_is_no_network_is_refused_at_the_start() -> None:
    with pytest.raises(ValueError, match="node_networks"):
        Settings(node_networks="127.0.0.1/33")
