"""Rate limits of those who have no key: who counts as one peer."""

import httpx
import pytest

from api.rate_limits import Rate, peer_of
from tests.api.http_server import Person, Site, host_key


async def _announce(site: Site, address: str, token: str) -> int:
    key, minion_id = host_key()
    body = {"token": token, "minion_id": minion_id, "host_public_key": key}
    transport = httpx.ASGITransport(site.app, client=(address, 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://api.test") as machine:
        answer = await machine.post(
            "/v1/announcements", json={"address": "10.1.2.3", "port": 22, **body}
        )
    return answer.status_code


async def test_all_addresses_of_a_network_of_ipv6_announce_as_one_peer(
    site: Site, ada: Person
) -> None:
    token = "join_reg-1_" + "x" * 43
    site.app.state.announcement_rate = Rate(3, clock=lambda: 0.0)
    network = "2001:db8:1:2"
    told = [await _announce(site, f"{network}:{number:x}::1", token) for number in range(5)]
    assert told == [401, 401, 401, 429, 429]
    assert await _announce(site, "2001:db8:1:3::1", token) == 401
    for last in range(1, 6):
        assert await _announce(site, f"192.0.2.{last}", token) == 401


@pytest.mark.parametrize(
    ("address", "peer"),
    [
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("testclient", "testclient"),
        (None, "unknown"),
    ],
)
def test_a_peer_is_an_address_of_ipv4_or_a_network_of_ipv6(address: str | None, peer: str) -> None:
    assert peer_of(address) == peer
