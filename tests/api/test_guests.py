"""Guests on nodes that their owner removes."""

import pytest

from activities.db import tables
from tests.api.http_server import Person, Site
from tests.api.running_jobs import running_job


@pytest.mark.parametrize("noun", ["nodes", "regions"])
async def test_guests_begin_again_elsewhere_when_the_owner_removes_their_node(
    site: Site, ada: Person, bob: Person, noun: str
) -> None:
    region_id = await ada.region("home", public=True)
    node_id = await ada.node(region_id, "n1")
    own, guest = await running_job(ada, node_id), await running_job(bob, node_id)
    path = f"/v1/{noun}/{node_id if noun == 'nodes' else region_id}"
    refused = await ada.call("DELETE", path)
    assert refused.json()["code"] == "conflict"
    assert (await ada.call("DELETE", f"{path}?force=true")).status_code == 202
    asked = {row.resource_id: row for row in site.rows(tables.OutboxRow, verb="node_ending")}
    assert set(asked) == {guest} != {own}
    assert asked[guest].argument == {"node_id": node_id, "reason": "its owner removes it"}
    removal = max(row.id for row in site.rows(tables.OutboxRow, verb="remove"))
    assert asked[guest].id < removal
