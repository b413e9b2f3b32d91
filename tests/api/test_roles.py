"""Roles: every route asks the one table, and what it says holds over HTTP."""

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute, APIWebSocketRoute

from activities.db import tables
from api.authorization import SCOPES, Caller, Needs
from api.problems import Problem
from tests.api.http_server import JOB, Person, Site
from tests.api.test_access import ADMINISTRATORS, FREE, ROUTES, ask
from workflows.rules.accounts.permissions import PERMISSIONS, ROLES, Role, Verb, permits

BY_HAND = {"open_job_session", "ask_job_socket", "serve_trunk", "serve_session"}
"""Connections, which ask for their caller themselves; tests/api/sessions has their access."""
CELLS = [(noun, verb) for noun, rules in PERMISSIONS.items() for verb in rules]


def _caller(role: str, scopes: frozenset[str], *, is_administrator: bool = False) -> Caller:
    return Caller(
        "acc-1", "usr-1", "key-1", scopes, is_administrator=is_administrator,
        home_account_id="acc-1", role=role,
    )  # fmt: skip


def _code(needs: Needs, caller: Caller) -> str | None:
    try:
        needs.check(caller)
    except Problem as refused:
        return refused.code
    return None


@pytest.mark.parametrize(("noun", "verb"), CELLS)
@pytest.mark.parametrize("role", ROLES)
def test_a_route_answers_the_roles_of_the_table_and_only_keys_with_its_scope(
    noun: str, verb: Verb, role: Role
) -> None:
    deed = verb if verb in (Verb.READ, Verb.WRITE) else Verb.READ
    needs = Needs(f"{noun}:{deed}", verb)
    for is_administrator in (False, True):
        full = _caller(role, frozenset({"*"}), is_administrator=is_administrator)
        may = permits(noun, verb, role, is_administrator=is_administrator)
        assert _code(needs, full) == (None if may else "forbidden")
        others = SCOPES - {"*", "read", needs.scope, f"{noun}:write"}
        lacking = _caller(role, frozenset(others), is_administrator=is_administrator)
        assert _code(needs, lacking) == "forbidden"


def _needs_of(dependant: Dependant) -> Iterator[Needs]:
    if isinstance(dependant.call, Needs):
        yield dependant.call
    for each in dependant.dependencies:
        yield from _needs_of(each)


def _routes(holder: Any) -> Iterator[APIRoute | APIWebSocketRoute]:
    """The routes of the application and of all routers in it."""
    for route in holder.routes:
        if isinstance(route, APIRoute | APIWebSocketRoute):
            yield route
        elif (included := getattr(route, "original_router", None)) is not None:
            yield from _routes(included)


def test_every_route_has_a_rule(app: FastAPI) -> None:
    without = {
        route.operation_id if isinstance(route, APIRoute) and route.operation_id else route.name
        for route in _routes(app)
        if (not isinstance(route, APIRoute) or route.path.startswith("/v1"))
        and not list(_needs_of(route.dependant))
    }
    assert without - FREE == BY_HAND


def test_a_route_without_a_rule_cannot_be_made() -> None:
    for scope, verb in (("cats:read", None), ("jobs:purr", None), ("jobs:read", Verb.DECIDE)):
        with pytest.raises((LookupError, ValueError)):
            Needs(scope, verb)


@pytest.mark.parametrize("role", ROLES)
async def test_the_routes_over_http_answer_as_the_table_says(
    site: Site, admin: Person, role: Role
) -> None:
    """A refusal of the role comes before anything of the request is read."""
    rules = {
        route.operation_id: needs
        for route in _routes(site.app)
        if isinstance(route, APIRoute) and route.operation_id
        for needs in list(_needs_of(route.dependant))[:1]
    }
    site.set(tables.User, admin.user_id, role=role)
    for route in ROUTES:
        needs = rules[route.name]
        may = permits(needs.noun, needs.verb, role, is_administrator=True)
        status, _ = await ask(route, admin)
        assert (status == 403) is not may, (route.name, status)
    assert rules.keys() >= ADMINISTRATORS


async def test_billing_reads_the_money_and_reaches_no_job_also_by_a_key_of_before(
    site: Site, ada: Person
) -> None:
    job_id = await ada.job()
    site.set(tables.User, ada.user_id, role="billing")
    for path in ("/v1/account", "/v1/transactions", "/v1/statement"):
        assert (await ada.get(path)).status_code == 200, path
    asked: list[Any] = [
        await ada.get(f"/v1/jobs/{job_id}"),
        await ada.post("/v1/jobs", JOB),
        await ada.post("/v1/api-keys", {"name": "more"}),
        await ada.patch("/v1/account", {"name": "mine"}),
        await ada.get("/v1/users"),
    ]
    assert [each.status_code for each in asked] == [403] * len(asked)
    assert "this is for owners and members of the account" in asked[0].json()["detail"]
