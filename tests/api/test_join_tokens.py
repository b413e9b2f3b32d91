"""Join tokens: which account a machine belongs to, over HTTP."""

from datetime import UTC, datetime, timedelta
from typing import Any

from activities.db import tables
from activities.nodes.addresses import find_announcement
from api.authorization import hash_of
from tests.api.http_server import Person, Site, host_key
from workflows.contracts.hosts import Announcement
from workflows.effects.nodes import FindAnnouncement


def announcement(minion_id: str, region_id: str) -> Announcement | None:
    """What the node of a region finds of its machine."""
    question = FindAnnouncement(minion_id=minion_id, region_id=region_id)
    return find_announcement(question).announcement


async def added(person: Person, region_id: str, minion_id: str) -> dict[str, Any]:
    """A node that the person adds, without an address."""
    body = {"region_id": region_id, "name": "n1", "minion_id": minion_id}
    return await person.made("/v1/nodes", body)


async def test_a_machine_may_announce_itself_after_it_was_added(site: Site, ada: Person) -> None:
    key, minion_id = host_key()
    region_id = await ada.region()
    node = await added(ada, region_id, minion_id)
    response = await site.announce(await ada.join_token(region_id), key, minion_id, user="pi")
    assert response.status_code == 202
    assert response.json()["added"] is True
    assert site.asked_of(node["id"])[-1] == ("wake", None)
    found = announcement(minion_id, region_id)
    assert found is not None
    assert (found.host, found.port, found.user) == ("10.1.2.3", 2222, "pi")


async def test_a_machine_may_announce_itself_before_it_is_added(site: Site, ada: Person) -> None:
    key, minion_id = host_key()
    region_id = await ada.region()
    response = await site.announce(await ada.join_token(region_id), key, minion_id)
    assert response.json()["added"] is False
    node = await added(ada, region_id, minion_id)
    assert (node["address"], node["port"], node["user"]) == ("10.1.2.3", 2222, "root")


async def test_a_machine_hears_that_its_node_was_added_without_upnp(
    site: Site, ada: Person, bob: Person
) -> None:
    key, minion_id = host_key()
    region_id, strangers_id = await ada.region(), await bob.region()
    token = await ada.join_token(region_id)
    before = await site.announce(token, key, minion_id)
    assert before.json()["upnp"] is True
    for person, region in ((bob, strangers_id), (ada, region_id)):
        assert (await site.announce(token, key, minion_id)).json()["upnp"] is True
        body = {"region_id": region, "name": "n1", "minion_id": minion_id, "upnp": False}
        await person.made("/v1/nodes", body)
    assert (await site.announce(token, key, minion_id)).json()["upnp"] is False


async def test_a_stranger_who_knows_the_minion_id_neither_gets_the_machine_nor_blocks_its_owner(
    site: Site, ada: Person, bob: Person
) -> None:
    key, minion_id = host_key()
    region_id, strangers_id = await ada.region(), await bob.region()
    token = await ada.join_token(region_id)
    assert (await site.announce(token, key, minion_id, address="10.0.0.7")).status_code == 202

    stolen = await added(bob, strangers_id, minion_id)
    assert stolen["address"] is None
    elsewhere = await site.announce(
        await bob.join_token(strangers_id), key, minion_id, address="203.0.113.9"
    )
    assert elsewhere.status_code == 202

    node = await added(ada, region_id, minion_id)
    assert (node["address"], node["port"]) == ("10.0.0.7", 2222)
    assert [verb for verb, _ in site.asked_of(node["id"])] == ["start"]
    found = announcement(minion_id, region_id)
    assert found is not None
    assert found.host == "10.0.0.7"


async def test_a_connected_node_is_not_woken_by_announcements(site: Site, ada: Person) -> None:
    key, minion_id = host_key()
    region_id = await ada.region()
    node = await added(ada, region_id, minion_id)
    site.set(tables.Node, node["id"], status="active")
    token = await ada.join_token(region_id)
    for last in range(1, 6):
        answer = await site.announce(token, key, minion_id, address=f"203.0.113.{last}")
        assert answer.status_code == 202
    assert [verb for verb, _ in site.asked_of(node["id"])] == ["start"]


async def test_a_token_is_for_one_machine_which_may_repeat_its_announcement(
    site: Site, ada: Person
) -> None:
    region_id = await ada.region()
    token = await ada.join_token(region_id)
    first, other = host_key(), host_key()
    assert (await site.announce(token, *first)).status_code == 202
    refused = await site.announce(token, *other)
    assert refused.status_code == 401
    assert announcement(other[1], region_id) is None

    [row] = site.rows(tables.JoinToken, secret_sha256=hash_of(token))
    site.set(tables.JoinToken, row.id, expires_at=datetime.now(UTC) - timedelta(days=30))
    moved = await site.announce(token, *first, address="10.9.9.9")
    assert moved.status_code == 202
    found = announcement(first[1], region_id)
    assert found is not None
    assert found.host == "10.9.9.9"


async def test_refused_tokens_are_all_refused_alike(site: Site, ada: Person) -> None:
    region_id = await ada.region()
    expired, used, foreign = [await ada.join_token(region_id) for _ in range(3)]
    [row] = site.rows(tables.JoinToken, secret_sha256=hash_of(expired))
    site.set(tables.JoinToken, row.id, expires_at=datetime.now(UTC) - timedelta(seconds=1))
    await site.announce(used, *host_key())
    answers = [
        await site.announce(token, *host_key()) for token in (expired, used, foreign[:-4] + "AAAA")
    ]
    assert {answer.status_code for answer in answers} == {401}
    assert len({answer.json()["detail"] for answer in answers}) == 1


async def test_a_removed_machine_needs_a_new_token(site: Site, ada: Person) -> None:
    key, minion_id = host_key()
    region_id = await ada.region()
    token = await ada.join_token(region_id)
    await site.announce(token, key, minion_id)
    node = await added(ada, region_id, minion_id)
    after = datetime.now(UTC) + timedelta(seconds=1)
    site.set(tables.Node, node["id"], status="archived", updated_at=after)
    assert (await site.announce(token, key, minion_id)).status_code == 401
    assert (await added(ada, region_id, minion_id))["address"] is None


async def test_a_token_is_kept_as_a_hash_and_made_by_who_may_change_nodes(
    site: Site, ada: Person, bob: Person
) -> None:
    body = {"region_id": await ada.region()}
    made = await ada.made("/v1/join-tokens", body)
    [row] = site.rows(tables.JoinToken)
    assert made["secret"] not in row.model_dump_json()
    assert row.secret_sha256 == hash_of(made["secret"])
    assert (row.expires_at - row.created_at) == timedelta(days=1)
    assert made["ssh_public_key"].startswith("restrict ssh-ed25519 ")
    another = await ada.made("/v1/join-tokens", {"region_id": await ada.region("away")})
    assert made["ssh_public_key"] != another["ssh_public_key"]
    assert (await bob.post("/v1/join-tokens", body)).status_code == 404
    reader = ada.with_key(["nodes:read"])
    assert (await reader.post("/v1/join-tokens", body)).status_code == 403


async def test_an_announcement_must_prove_that_id_and_key_belong_together(
    site: Site, ada: Person
) -> None:
    token = await ada.join_token(await ada.region())
    (key, _), (_, other) = host_key(), host_key()
    response = await site.announce(token, key, other)
    assert response.status_code == 422
    assert response.json()["errors"][0]["field"] == "minion_id"
    broken = await site.announce(token, "ssh-ed25519 AAAA", other)
    assert broken.json()["errors"][0]["field"] == "host_public_key"
    [row] = site.rows(tables.JoinToken)
    assert row.minion_id is None
