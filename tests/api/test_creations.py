"""What a creation asks for is what is made: no field of a request is taken and forgotten."""

from typing import Any

import pytest

from activities.db import tables
from api.schemas import accounts, nodes, regions
from api.schemas.base import RequestBody
from tests.api.http_server import Person, host_key

ANOTHER = "acc-…"
"""Stands for the id of an account that pays, which only the test knows."""
CREATIONS: dict[str, tuple[type[RequestBody], dict[str, Any]]] = {
    "/v1/accounts": (
        accounts.AccountCreation,
        {
            "name": "babbage",
            "plan": "team",
            "billing_account_id": ANOTHER,
            "owner_email": "charles@example.test",
        },
    ),
    "/v1/users": (accounts.UserCreation, {"email": "charles@example.test", "role": "owner"}),
    "/v1/api-keys": (
        accounts.ApiKeyCreation,
        {
            "name": "nightly",
            "scopes": ["jobs:read", "nodes:read"],
            "expires_at": "2126-03-01T12:00:00Z",
            "requests_per_minute": 60,
        },
    ),
    "/v1/projects": (
        accounts.ProjectCreation,
        {
            "name": "vision",
            "use_only_owned_resources": True,
            "on_quota_exhausted": "fail",
            "federated_egress": ["10.1.0.0/16:443"],
            "federated_logs": "exit_only",
        },
    ),
    "/v1/regions": (
        regions.RegionCreation,
        {
            "name": "attic",
            "storage_mode": "central",
            "public": True,
            "guest_policy": {
                "accounts": ["acc-umbrella"],
                "projects": ["prj-moon"],
                "from_hour": 22,
                "until_hour": 6,
                "most_gpus": 4,
                "preemption_notice_s": 600,
            },
            "exclusive_nodes": False,
            "node_root": "/srv/baseload",
            "relaxed_requirements": ["all"],
            "own_worker": True,
            "allows_apt_packages": True,
        },
    ),
    "/v1/nodes": (
        nodes.NodeCreation,
        {
            "name": "shelf",
            "services": ["storage"],
            "upnp": False,
            "address": "10.1.2.3",
            "port": 2222,
            "user": "ada",
        },
    ),
}
"""The schema, and a body whose fields all differ from what is taken without them."""
ELSEWHERE = {
    "/v1/api-keys": {"user_id"},
    "/v1/regions": {
        "provider_id", "cloud_region", "storage_node_class", "uses_internal_addresses",
    },
    "/v1/nodes": {"region_id", "minion_id", "gpus", "disk_size_gb", "type", "mining"},
}  # fmt: skip
"""Fields that name other things, are for clouds, or are not available yet."""
HIDDEN = {"owner_email"}


@pytest.mark.parametrize("path", CREATIONS)
def test_every_field_of_a_creation_is_asked_for_here(path: str) -> None:
    schema, body = CREATIONS[path]
    assert set(body) == set(schema.model_fields) - ELSEWHERE.get(path, set())
    defaults = {name: schema.model_fields[name].get_default() for name in body}
    assert not [name for name in body if body[name] == defaults[name]]


@pytest.mark.parametrize("path", CREATIONS)
async def test_what_is_made_is_what_was_asked_for(admin: Person, path: str) -> None:
    _, body = CREATIONS[path]
    central = await admin.region(storage_mode="central")
    needed: dict[str, dict[str, Any]] = {
        "/v1/regions": {"provider_id": await admin.provider()},
        "/v1/nodes": {"region_id": central, "minion_id": host_key()[1]},
        "/v1/accounts": {"billing_account_id": admin.account_id},
    }
    asked = body | needed.get(path, {})
    made = await admin.made(path, asked)
    names = asked.keys() - HIDDEN
    assert {name: made[name] for name in names} == {name: asked[name] for name in names}
    (listed,) = [one for one in (await admin.get(path)).json()["items"] if one["id"] == made["id"]]
    assert listed == {name: made[name] for name in listed}


async def test_the_owner_of_a_new_account_has_the_address_that_was_asked_for(
    admin: Person,
) -> None:
    body = {"name": "babbage", "owner_email": "charles@example.test"}
    made = await admin.made("/v1/accounts", body)
    (owner,) = admin.site.rows(tables.User, account_id=made["id"])
    assert "charles@example.test" in (owner.email, owner.claimed_email)
