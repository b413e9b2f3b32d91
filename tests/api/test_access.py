"""Who may use each route: a table of all of them, so that none is added without a rule."""

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest

from activities.billing.ledger import add_credits
from activities.db import tables
from api.authorization import SCOPES
from tests.api.device_rows import edge_things
from tests.api.federated_rows import federated_job
from tests.api.http_server import JOB, Person, Site
from tests.api.openapi_document import DOCUMENT
from tests.api.test_boot_drive_requests import DECISIONS, boot_drive_request
from tests.api.test_datastores import datastore
from tests.api.test_leases import lease
from tests.api.test_reservations import reservation
from workflows.contracts.lifecycles import ARTIFACT_NOUNS

FREE = {
    *("get_health", "get_readiness", "get_metrics"),
    *("announce_machine", "announce_colab_endpoint"),
}
"""They need no key; the first three tell nothing of an account."""
WRITING = {"get_colab_bootstrap"}
"""What is asked with GET although something is made for each."""
ADMINISTRATORS = {
    *(
        "list_accounts",
        "create_account",
        "get_account",
        "change_account",
        "grant_credits",
        "record_purchase",
    ),
    *("verify_audit", "reverse_transaction", "audit_ledger"),
    "remove_account",
    "reconcile",
    *(f"{verb}_boot_drive_request" for verb in DECISIONS),
}
OWNERS = {
    *("create_user", "change_user", "remove_user", "change_own_account"),
    *("create_invitation", "withdraw_invitation", "change_member", "remove_member"),
    *("set_third_party_key", "remove_third_party_key", "set_credential", "remove_credential"),
}
NOUN_OF: dict[str, str] = {
    "create_join_token": "nodes",
    "accept_invitation": "memberships",
    "leave_project": "memberships",
    **dict.fromkeys(("list_members", "change_member", "remove_member"), "members"),
    "list_third_party_keys": "credentials",
    "set_third_party_key": "credentials",
    "remove_third_party_key": "credentials",
    "get_platform": "account",
    "get_own_account": "account",
    "change_own_account": "account",
    "list_quotas": "providers",
    "get_colab_bootstrap": "providers",
    "list_region_quotas": "regions",
    "list_offers": "jobs",
    "list_provider_machines": "leases",
    "end_provider_machine": "leases",
    "reconcile": "leases",
    "list_transactions": "billing",
    "get_transaction": "billing",
    "reverse_transaction": "billing",
    "get_statement": "billing",
    "get_tco": "billing",
    "audit_ledger": "billing",
    "get_usage": "billing",
    "get_costs": "billing",
    "get_utilisation": "jobs",
    "list_data_progress": "jobs",
}
"""The noun whose scope a route needs, where it is not the first of its path."""
ARTIFACT = {"name": "cats", "source": {"type": "upload"}}
BODIES: dict[str, Any] = {
    **{f"complete_{noun.name}": {"part_count": 1} for noun in ARTIFACT_NOUNS},
    "change_provider": {"credentials": "store://providers/gcp/x"},
    "change_region": {"own_worker": True},
    "replace_node": {"name": "another", "minion_id": f"SHA256:{'C' * 43}"},
    "change_device": {"configuration_id": None},
    "store_project_secret": {"name": "token", "value": "hidden"},
    "set_third_party_key": {"type": "ngc", "value": "nvapi-hidden"},
    "set_credential": {"value": "hidden"},
    "reverse_transaction": {"reason": "a mistake"},
    "change_user": {"role": "member"},
    "change_member": {"permissions": {"job": "read"}},
    "accept_invitation": {"token": "inv_none"},
    **{f"{verb}_boot_drive_request": body for verb, body in DECISIONS.items() if body},
}
"""The sound bodies of routes that change one resource."""
UNOWNED = {"list_quotas", "get_colab_bootstrap"}
"""Routes with a resource in the query; their own tests ask for that of another account."""


class Route(NamedTuple):
    method: str
    path: str
    name: str

    @property
    def scope(self) -> str:
        noun = NOUN_OF.get(self.name, self.path.split("/")[2])
        reads = self.method == "GET" and self.name not in WRITING
        return f"{noun}:{'read' if reads else 'write'}"

    @property
    def sufficient(self) -> set[str]:
        """The scopes of which each allows the route by itself."""
        noun, _, deed = self.scope.partition(":")
        also = {"read", f"{noun}:write"} if deed == "read" else set()
        return {"*", self.scope, *also}


def _routes() -> Iterator[Route]:
    for path, operations in DOCUMENT["paths"].items():
        for method, operation in operations.items():
            yield Route(method.upper(), path, operation["operationId"])


ROUTES = [route for route in _routes() if route.name not in FREE]
OF_ONE_RESOURCE = [
    route for route in ROUTES if "_id}" in route.path and route.name not in ADMINISTRATORS
]
"""Those that name no id, as of a credential by its kind and field, reach the own account alone."""


async def ask(route: Route, person: Person, path: str = "", **headers: str) -> tuple[int, str]:
    """The status and the code of an answer, without a resource that the path could name."""
    path = path or re.sub(r"\{(\w+)\}", "none", route.path.replace("{key_type}", "ngc"))
    takes_body = route.method in ("POST", "PATCH") or route.name == "set_credential"
    body = BODIES.get(route.name, {}) if takes_body else None
    answer = await person.call(route.method, path, headers=headers, json=body)
    problem = answer.headers["content-type"] == "application/problem+json"
    return answer.status_code, answer.json()["code"] if problem else ""


def path_of(route: Route, resource_id: str) -> str:
    """The path of a route for one resource, with the query that the route needs."""
    path = re.sub(r"\{\w+_id\}", resource_id, route.path)
    path = path.replace("{name}", "token").replace("{key_type}", "ngc").replace("{index}", "0")
    path = path.replace("{revision}", "1")
    path += "?from=1&to=1" if path.endswith("/diff") else ""
    path += "?zone=a" if "machines" in path else ""
    path += f"?sha256={'0' * 64}" if route.method == "PUT" and "parts" in path else ""
    return path


def test_every_rule_is_of_a_route_that_is_there() -> None:
    names = {route.name for route in _routes()}
    assert names >= FREE | ADMINISTRATORS | OWNERS | set(NOUN_OF) | set(BODIES) | UNOWNED
    assert {route.scope for route in ROUTES} <= SCOPES


async def test_no_route_answers_without_a_good_key(ada: Person) -> None:
    past = datetime.now(UTC) - timedelta(seconds=1)
    bad = {
        "none": replace(ada, secret=""),
        "unknown": replace(ada, secret="bl_unknown"),
        "expired": ada.with_key(expires_at=past),
        "revoked": ada.with_key(revoked_at=past),
    }
    for route in ROUTES:
        for kind, person in bad.items():
            assert await ask(route, person) == (401, "unauthorized"), (route.name, kind)


async def test_no_route_answers_a_key_with_all_scopes_but_its_own(admin: Person) -> None:
    for route in ROUTES:
        key = admin.with_key(sorted(SCOPES - route.sufficient))
        assert await ask(route, key) == (403, "forbidden"), route.name


async def test_every_route_answers_a_key_with_its_own_scope_alone(admin: Person) -> None:
    keys = {scope: admin.with_key([scope]) for scope in {route.scope for route in ROUTES}}
    for route in ROUTES:
        assert (await ask(route, keys[route.scope]))[0] not in (401, 403), route.name


async def test_only_an_administrator_acts_for_another_account(ada: Person, bob: Person) -> None:
    act_for = {"X-Baseload-Account": bob.account_id}
    for route in ROUTES:
        assert await ask(route, ada, **act_for) == (403, "forbidden"), route.name


async def test_what_is_for_administrators_or_owners_is_refused_to_others(
    site: Site, ada: Person, admin: Person
) -> None:
    site.set(tables.User, admin.user_id, role="member")
    for route in ROUTES:
        if route.name in ADMINISTRATORS:
            assert await ask(route, ada) == (403, "forbidden"), route.name
        if route.name in OWNERS:
            assert await ask(route, admin) == (403, "forbidden"), route.name


@pytest.fixture
async def owned(site: Site, ada: Person) -> dict[str, str]:
    """A resource of each noun, by the first noun of its path."""
    region_id = await ada.region()
    (region,) = site.rows(tables.Region, id=region_id)
    await lease(site, ada)
    key = await ada.made("/v1/api-keys", {"name": "ci"})
    await ada.made(f"/v1/projects/{ada.project_id}/secrets", BODIES["store_project_secret"])
    await ada.made(f"/v1/projects/{ada.project_id}/credentials", BODIES["set_third_party_key"])
    artifacts = {
        noun.plural: (await ada.made(f"/v1/{noun.plural}", ARTIFACT))["id"]
        for noun in ARTIFACT_NOUNS
    }
    edge = await edge_things(ada, region_id, "ada")
    invitation = await ada.made("/v1/invitations", {"email": "x@y.test", "role": "member"})
    return {
        **artifacts,
        "users": ada.user_id,
        "invitations": invitation["id"],
        "memberships": ada.account_id,
        "api-keys": key["id"],
        "projects": ada.project_id,
        "providers": region.provider_id,
        "regions": region_id,
        "nodes": await ada.node(region_id),
        "leases": "lea-1",
        "uploads": (await ada.upload()).json()["id"],
        "jobs": await ada.job(),
        "datastores": datastore(site, ada, region_id),
        "reservations": reservation(site, ada, region_id),
        "devices": edge["device"],
        "device-configurations": edge["device configuration"],
        "device-deployments": edge["device-deployment"],
        "boot-drive-requests": boot_drive_request(site, ada, region_id),
        "federated-jobs": federated_job(ada),
        "transactions": _transaction(site, ada),
    }


def _transaction(site: Site, person: Person) -> str:
    with site.database.write() as session:
        account = session.get_one(tables.Account, person.account_id)
        return add_credits(session, account, 1, person.account_id, datetime.now(UTC)).id


async def test_what_is_another_accounts_is_not_there(
    site: Site, ada: Person, bob: Person, owned: dict[str, str]
) -> None:
    kept = _rows(site)
    for route in OF_ONE_RESOURCE:
        path = path_of(route, owned[route.path.split("/")[2]])
        assert await ask(route, bob, path) == (404, "not-found"), route.name
    assert _rows(site) == kept


async def test_no_list_shows_what_is_another_accounts(
    ada: Person, bob: Person, owned: dict[str, str]
) -> None:
    for route in ROUTES:
        if route.method == "GET" and "{" not in route.path and route.name not in ADMINISTRATORS:
            text = (await bob.get(route.path)).text
            assert not [each for each in (*owned.values(), ada.user_id) if each in text], route


async def test_a_job_of_the_account_is_in_its_own_lists(ada: Person) -> None:
    made = await ada.made("/v1/jobs", JOB)
    assert made["id"] in (await ada.get("/v1/jobs")).text


def _rows(site: Site) -> list[str]:
    """The rows that a stranger could have changed, as text."""
    of = (
        tables.Provider,
        tables.Region,
        tables.Node,
        tables.Job,
        tables.Lease,
        tables.Upload,
        tables.Datastore,
        tables.Reservation,
        tables.Device,
        tables.DeviceConfiguration,
        tables.DeviceDeployment,
        tables.BootDriveRequest,
        tables.FederatedJob,
    )
    rest = (tables.StoredSecret, tables.OutboxRow)
    return sorted(repr(row) for table in (*of, *rest) for row in site.rows(table))
