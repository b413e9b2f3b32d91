"""Every route that names a job, a dataset or their project, from a member of another account."""

from typing import Any

import pytest

from activities.db import tables
from tests.api.http_server import Person, Site
from tests.api.refusals.document import Place, named_places
from tests.api.refusals.holdings import Holdings, holdings, rows_of_others
from tests.api.test_access import ROUTES, Route
from tests.api.test_leases import BEGAN
from workflows.contracts.lifecycles import ARTIFACT_NOUNS

SHARED = ("job", *(noun.name for noun in ARTIFACT_NOUNS))
"""The nouns of which a membership says what the member may do."""
OF_THESE = [
    (route, place)
    for route in ROUTES
    for place, kind in named_places(route).items()
    if kind in SHARED and place.where == "path"
]
CREATES = [
    (route, place)
    for route in ROUTES
    for place, kind in named_places(route).items()
    if kind == "project" and place.where == "body" and route.name != "create_invitation"
]
OF_MEMBERS = {"leave_project", "get_project"}
OTHERWISE = [
    (route, place)
    for route in ROUTES
    for place, kind in named_places(route).items()
    if (kind == "project" and place.where == "path" and route.name not in OF_MEMBERS)
    or (route.name == "create_invitation" and kind == "project")
]
"""What a member may not do, whatever a membership says of jobs."""


@pytest.fixture
async def hers(ada: Person) -> Holdings:
    return await holdings(ada, "ada-lovelace")


@pytest.fixture
async def his(bob: Person) -> Holdings:
    return await holdings(bob, "bob-taylor")


async def _wrong(
    hers: Holdings, his: Holdings, asked: list[tuple[Route, Place]], status: int
) -> list[str]:
    """The requests that are not answered so, or change what is hers."""
    site, found = hers.person.site, []
    before = rows_of_others(site.database, his)
    for route, place in asked:
        sent = {place: hers.named[named_places(route)[place]]}
        answer = await his.person.call(**his.request(route, sent))
        if answer.status_code != status:
            found.append(f"{route.name}: {answer.status_code} {answer.text}")
    return found + sorted(before ^ rows_of_others(site.database, his))


def _join(site: Site, hers: Holdings, his: Holdings, **permissions: Any) -> None:
    member = tables.ProjectMember(
        project_id=hers.person.project_id, user_id=his.person.user_id,
        permissions=permissions, created_at=BEGAN,
    )  # fmt: skip
    site.write(member)


async def test_a_member_who_may_read_changes_nothing(
    site: Site, hers: Holdings, his: Holdings
) -> None:
    _join(site, hers, his, **dict.fromkeys(SHARED, "read"))
    changing = [(route, place) for route, place in OF_THESE if route.method != "GET"]
    assert await _wrong(hers, his, [*changing, *CREATES], 403) == []
    assert await _wrong(hers, his, OTHERWISE, 404) == []


async def test_a_member_of_another_kind_finds_nothing(
    site: Site, hers: Holdings, his: Holdings
) -> None:
    _join(site, hers, his, secret="all")
    federated = [each for each in CREATES if each[0].name == "create_federated_job"]
    others = [each for each in CREATES if each not in federated]
    assert await _wrong(hers, his, [*OF_THESE, *others, *OTHERWISE], 404) == []
    # A permission of its own, which says to every member who gives it.
    assert federated
    assert await _wrong(hers, his, federated, 403) == []


async def test_a_member_who_may_do_everything_has_no_secret_of_the_project(
    site: Site, hers: Holdings, his: Holdings
) -> None:
    _join(site, hers, his, **dict.fromkeys(SHARED, "all"))
    assert await _wrong(hers, his, OTHERWISE, 404) == []
