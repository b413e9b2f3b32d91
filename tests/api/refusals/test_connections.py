"""The connections to jobs, which no document lists, to the running job of another account."""

import pytest
from starlette.routing import Route as HttpRoute

from api.app import ROUTERS
from tests.api.http_server import Person, Site
from tests.api.refusals.holdings import Holdings, holdings, rows_of_others
from tests.api.sessions.test_access import OF_PEOPLE, http_status, socket_status

UNLISTED = {"/v1/jobs/{job_id}/endpoint/{path:path}"}
"""Routes over HTTP that the OpenAPI document leaves out."""


@pytest.fixture
async def hers(ada: Person) -> Holdings:
    return await holdings(ada, "ada-lovelace")


@pytest.fixture
async def his(bob: Person) -> Holdings:
    return await holdings(bob, "bob-taylor")


def test_no_unlisted_route_is_unknown() -> None:
    routes = (route for module in ROUTERS for route in module.router.routes)
    unlisted = {
        route.path
        for route in routes
        if isinstance(route, HttpRoute) and not route.include_in_schema
    }
    assert unlisted == UNLISTED


async def test_the_running_job_of_another_account_is_not_reached(
    site: Site, hers: Holdings, his: Holdings
) -> None:
    job_id, bob = hers.named["job"], his.person
    before = rows_of_others(site.database, his)
    for path in OF_PEOPLE.values():
        assert await socket_status(site, path.format(job=job_id), bob.secret) == 404, path
    for path in UNLISTED:
        asked = path.replace("{job_id}", job_id).replace("{path:path}", "lab")
        assert await http_status(bob, asked) == 404, path
    assert rows_of_others(site.database, his) == before


async def test_the_line_of_a_site_is_not_served_by_a_person(site: Site, hers: Holdings) -> None:
    """Not with the key of the job's own account, at the name of its run."""
    run_id = f"{hers.named['job']}-0-1"
    for path in (f"/v1/trunks/{run_id}", f"/v1/trunks/{run_id}/sessions/ses-1"):
        assert await socket_status(site, path, hers.person.secret) == 401, path
