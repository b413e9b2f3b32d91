"""What a member may do with each noun of another account's project: every cell of the matrix.

The matrix is noun × route × permission × role. Its routes are those of the OpenAPI document, so
that a new route of such a noun is tested, or fails here until this module says what it is.
"""

import itertools
from typing import Any

import pytest

from activities.db import tables
from tests.api.http_server import JOB, Person, Site
from tests.api.test_access import ARTIFACT, ROUTES, Route, ask, path_of
from workflows.contracts.lifecycles import ARTIFACT_NOUNS
from workflows.rules.accounts.memberships import LEVELS, SHARED_NOUNS
from workflows.rules.accounts.permissions import ROLES, Role

NOUNS = {"job": "jobs", **{noun.name: noun.plural for noun in ARTIFACT_NOUNS}}
"""What a membership has a permission for, and its plural in paths and scopes."""
LISTS = {f"list_{plural}" for plural in NOUNS.values()}
CREATIONS = {"submit_job", "submit_job_array", *(f"create_{noun.name}" for noun in ARTIFACT_NOUNS)}
OF_THE_ACCOUNT = {"kill_all_jobs", "get_utilisation", "list_data_progress"}
"""Routes that concern the account of the key, or what its lists show."""
OF_A_DOCUMENT = {"preview_job", "list_offers"}
"""Routes that write nothing and take the project from a document or the query."""
NOUNS_AND_LEVELS = [*itertools.product(NOUNS, (None, *LEVELS))]
ROLES_AND_NOUNS = [*itertools.product(ROLES, NOUNS)]


def _routes_of(noun: str) -> list[Route]:
    return [route for route in ROUTES if route.scope.partition(":")[0] == NOUNS[noun]]


def _of_one(noun: str) -> list[Route]:
    return [route for route in _routes_of(noun) if "{" in route.path]


def _permissions(noun: str, level: str | None) -> dict[str, str]:
    """This permission for the noun, and all for every other one, which must not matter."""
    others = {each: "all" for each in SHARED_NOUNS if each != noun}
    return others if level is None else others | {noun: level}


async def _shared(site: Site, owner: Person, member: Person, noun: str, level: str | None) -> str:
    """A project of the owner in which the other person has this permission for the noun."""
    project_id: str = (await owner.made("/v1/projects", {"name": f"{noun} {level}"}))["id"]
    site.write(
        tables.ProjectMember(
            project_id=project_id,
            user_id=member.user_id,
            permissions=_permissions(noun, level),
            created_at=site.rows(tables.Project, id=project_id)[0].created_at,
        )
    )
    return project_id


async def _made(owner: Person, noun: str, project_id: str, number: int = 0) -> str:
    """The id of a new resource of the noun in the project."""
    body = JOB if noun == "job" else ARTIFACT | {"name": f"cats-{number}"}
    made = await owner.made(f"/v1/{NOUNS[noun]}", body | {"project_id": project_id})
    return str(made["id"])


def test_every_route_of_a_shared_noun_is_in_the_matrix() -> None:
    for noun in NOUNS:
        others = {route.name for route in _routes_of(noun) if "{" not in route.path}
        assert others <= LISTS | CREATIONS | OF_THE_ACCOUNT | OF_A_DOCUMENT, noun
        assert len(_of_one(noun)) >= 8
    every = {route.name for route in ROUTES}
    assert every >= LISTS | CREATIONS | OF_THE_ACCOUNT | OF_A_DOCUMENT


def _expected(route: Route, level: str | None) -> tuple[int, str] | None:
    """The refusal that the permission brings; None: the answer is the owner's."""
    if level is None:
        return 404, "not-found"
    if level == "read" and route.method != "GET":
        return 403, "forbidden"
    return None


@pytest.mark.parametrize(("noun", "level"), NOUNS_AND_LEVELS)
async def test_a_member_is_answered_as_the_permission_says(
    site: Site, ada: Person, bob: Person, noun: str, level: str | None
) -> None:
    """With the permission the answer is the one that the owner gets in the same situation."""
    project_id = await _shared(site, ada, bob, noun, level)
    for number, route in enumerate(_of_one(noun)):
        theirs = await _made(ada, noun, project_id, number)
        refused = _expected(route, level)
        if refused is not None:
            before = _state(site, theirs)
            assert await ask(route, bob, path_of(route, theirs)) == refused, route.name
            assert _state(site, theirs) == before, route.name
            continue
        twin = await _made(ada, noun, ada.project_id, number)
        of_owner = await ask(route, ada, path_of(route, twin))
        assert of_owner[0] != 403, route.name
        assert await ask(route, bob, path_of(route, theirs)) == of_owner, route.name


@pytest.mark.parametrize(("noun", "level"), NOUNS_AND_LEVELS)
async def test_a_list_has_what_a_member_may_read_and_a_creation_needs_all(
    site: Site, ada: Person, bob: Person, noun: str, level: str | None
) -> None:
    project_id = await _shared(site, ada, bob, noun, level)
    theirs = await _made(ada, noun, project_id)
    listed = (await bob.get(f"/v1/{NOUNS[noun]}")).json()["items"]
    assert [each["id"] for each in listed] == ([theirs] if level else [])
    wanted = {None: 404, "read": 403, "all": 202}[level]
    body: dict[str, Any] = {"project_id": project_id}
    body |= JOB if noun == "job" else ARTIFACT | {"name": "more"}
    created = await bob.post(f"/v1/{NOUNS[noun]}", body)
    assert created.status_code == wanted, created.text
    if noun == "job":
        array = await bob.post("/v1/jobs/arrays", body | {"array": 2})
        assert array.status_code == wanted
        preview = await bob.post("/v1/jobs/preview", body)
        assert preview.status_code == (200 if wanted == 202 else wanted)
        assert (await bob.post("/v1/jobs/kill-all")).json()["job_ids"] == []
    owners = {row.account_id for row in site.rows(_table(theirs), project_id=project_id)}
    assert owners == {ada.account_id}, "what is made in a project is its owner's"


@pytest.mark.parametrize(("role", "noun"), ROLES_AND_NOUNS)
async def test_the_own_role_counts_beside_the_permission(
    site: Site, ada: Person, bob: Person, role: Role, noun: str
) -> None:
    """Billing reaches the money alone, whatever somebody has shared with the person."""
    project_id = await _shared(site, ada, bob, noun, "all")
    theirs = await _made(ada, noun, project_id)
    site.set(tables.User, bob.user_id, role=role)
    reading = [route for route in _routes_of(noun) if route.method == "GET"]
    for route in reading:
        answer = await ask(route, bob, path_of(route, theirs))
        assert (answer == (403, "forbidden")) is (role is Role.BILLING), (route.name, answer)
    if role is Role.BILLING:
        for route in _of_one(noun):
            assert await ask(route, bob, path_of(route, theirs)) == (403, "forbidden"), route.name


@pytest.mark.parametrize(("role", "noun"), ROLES_AND_NOUNS)
async def test_an_invited_user_of_the_account_has_the_role_and_no_permission(
    site: Site, ada: Person, bob: Person, role: Role, noun: str
) -> None:
    """In an account the role counts, not what a project of it gives to people of others."""
    now = site.rows(tables.User, id=bob.user_id)[0].created_at
    site.write(
        tables.AccountMember(
            account_id=ada.account_id, user_id=bob.user_id, role=role, created_at=now
        )
    )
    there = Person(site, ada.account_id, bob.user_id, ada.project_id, "").with_key()
    theirs = await _made(ada, noun, ada.project_id)
    for route in _of_one(noun):
        if route.method == "GET" or role is Role.BILLING:
            answer = await ask(route, there, path_of(route, theirs))
            assert (answer[0] == 403) is (role is Role.BILLING), (route.name, answer)
    body = JOB if noun == "job" else ARTIFACT | {"name": "more"}
    made = await there.post(f"/v1/{NOUNS[noun]}", body)
    assert made.status_code == (403 if role is Role.BILLING else 202)


def _table(resource_id: str) -> type[Any]:
    return tables.Job if resource_id.startswith("job-") else tables.table_of_artifact(resource_id)


def _state(site: Site, resource_id: str) -> tuple[str, list[tuple[str, Any]]]:
    """The row of a resource and what its workflow was asked."""
    (row,) = site.rows(_table(resource_id), id=resource_id)
    return repr(row), site.asked_of(resource_id)
