"""What federated jobs may reach: hosts and networks with a port, and never the machine itself."""

import pytest

from workflows.rules.accounts.projects import egress


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("API.example.com:443", "api.example.com:443"),
        (" nas:22 ", "nas:22"),
        ("10.1.0.0/16:22", "10.1.0.0/16:22"),
        ("203.0.113.7:65535", "203.0.113.7:65535"),
        ("203.0.113.7/32:1", "203.0.113.7:1"),
        ("[2001:DB8::/32]:443", "[2001:db8::/32]:443"),
        ("[2001:db8::1]:443", "[2001:db8::1]:443"),
    ],
)
def test_an_address_is_stored_in_one_form(given: str, stored: str) -> None:
    assert egress(given) == stored
    assert egress(stored) == stored


@pytest.mark.parametrize(
    "given",
    [
        *("", "nas", "nas:", ":443", "nas:0", "nas:65536", "nas:443:x", "nas:-1", "nas:٣"),
        *("http://nas:80", "-nas:80", "nas-:80", "a..b:80", "a_b:80", f"{'a' * 64}:80", "n as:80"),
        *("10.1.0.1/16:22", "10.1.0.0/33:22", "2001:db8::1:443", "[10.1.0.0/16]:22", "[nas]:22"),
        *("2130706433:80", "127.1:80", "0x7f000001:80", f"{'a.' * 130}a:80"),
        *("127.0.0.1:80", "169.254.169.254:80", "0.0.0.0/0:443", "[::/0]:443", "[fe80::1]:1"),
        *("224.0.0.1:1", "[::1]:80", "[::ffff:127.0.0.1]:80", "localhost:80", "a.localhost:80"),
    ],
)
def test_what_has_another_form_or_is_the_machine_itself_is_refused(given: str) -> None:
    with pytest.raises(ValueError, match=r"is host:port|leaves out|another machine"):
        egress(given)
