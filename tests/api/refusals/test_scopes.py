"""Every route × every scope one below its own, with sound requests about the caller's own things.

Only the scope refuses them, so a route that does not ask for it would change a row.
"""

from collections.abc import Iterable

import pytest

from api.authorization import NOUNS, SCOPES
from tests.api.http_server import Person, Site
from tests.api.refusals.holdings import Holdings, all_rows, holdings, listed_machines
from tests.api.test_access import ROUTES, Route

READ = sorted({"read", *(f"{noun}:read" for noun in NOUNS)})
CHANGING = [route for route in ROUTES if route.method != "GET"]


@pytest.fixture
async def own(admin: Person) -> Holdings:
    """What an administrator holds, who may call every route."""
    return await holdings(admin, "own")


async def _refused(site: Site, own: Holdings, route: Route, scopes: Iterable[str]) -> list[str]:
    """What is wrong with the refusal of a sound request to a key with these scopes."""
    key = own.person.with_key(sorted(scopes))
    before = all_rows(site.database)
    answer = await key.call(**own.request(route))
    told = f"{route.name} with {sorted(scopes)}: {answer.status_code} {answer.text}"
    is_refused = answer.status_code == 403 and f"lacks the scope {route.scope}" in answer.text
    return [told] * (not is_refused) + sorted(before ^ all_rows(site.database))


async def test_all_scopes_but_that_of_a_route_change_nothing(site: Site, own: Holdings) -> None:
    wrong = []
    for route in ROUTES:
        wrong += await _refused(site, own, route, SCOPES - route.sufficient)
    assert wrong == []


async def test_scopes_to_read_change_nothing(site: Site, own: Holdings) -> None:
    wrong = []
    for route in CHANGING:
        noun = route.scope.partition(":")[0]
        for scopes in (READ, [f"{noun}:read"]):
            wrong += await _refused(site, own, route, scopes)
    assert wrong == []


async def test_the_scope_of_a_route_alone_is_enough(own: Holdings) -> None:
    """The removals are last, so that each of the other requests is about what is there."""
    keys = {scope: own.person.with_key([scope]) for scope in {route.scope for route in ROUTES}}
    with listed_machines():
        for route in sorted(ROUTES, key=lambda route: route.method == "DELETE"):
            answer = await keys[route.scope].call(**own.request(route))
            assert answer.status_code not in (401, 403), (route.name, answer.text)
