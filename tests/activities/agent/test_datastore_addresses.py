"""The addresses at which a datastore may be, as a node sees them."""

import pytest

from activities.agent.datastores.addresses import is_permitted


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.8.9.1", "::1", "0.0.0.0", "::", "::127.0.0.1", "::ffff:127.0.0.1",
        "169.254.169.254", "::ffff:169.254.169.254", "fe80::1%eth0", "fd00:ec2::254",
        "100.100.100.200", "224.0.0.251", "255.255.255.255", "ff02::1", "64:ff9b::7f00:1",
        "2002:7f00:1::", "192.0.0.192", "168.63.129.16",
    ],
)  # fmt: skip
def test_addresses_of_the_machine_and_of_its_cloud_are_closed_until_they_are_opened(
    address: str,
) -> None:
    assert not is_permitted(address, {})
    assert is_permitted(address, {"open": ["0.0.0.0/0", "::/0"]})


@pytest.mark.parametrize("address", ["10.0.0.4", "192.168.1.9", "fd00::4", "100.64.0.9"])
def test_private_addresses_are_those_of_whoever_owns_the_machine(address: str) -> None:
    assert is_permitted(address, {})
    assert not is_permitted(address, {"is_public_only": True})
    assert is_permitted(address, {"is_public_only": True, "open": [address]})


def test_the_control_plane_is_closed_and_others_are_not() -> None:
    networks = {"closed": ["10.1.0.0/16", "203.0.113.9"]}
    assert not is_permitted("10.1.2.3", networks)
    assert not is_permitted("203.0.113.9", networks)
    assert is_permitted("10.2.0.1", networks)
    assert is_permitted("203.0.113.10", {"is_public_only": False, **networks})
