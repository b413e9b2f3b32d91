"""Every route that changes something × a thing that is being removed or was: it stays as it is."""

from typing import Any

import pytest

from activities.db import tables
from tests.api.http_server import Person, Site
from tests.api.refusals.document import Place, named_places
from tests.api.refusals.holdings import Holdings, all_rows, holdings, listed_machines
from tests.api.refusals.test_scopes import CHANGING
from tests.api.test_access import Route
from workflows.contracts.lifecycles import ARTIFACT_NOUNS

TABLES: dict[str, type[Any]] = {
    "provider": tables.Provider,
    "cloud": tables.Provider,
    "region": tables.Region,
    "node": tables.Node,
    "device": tables.Device,
    "job": tables.Job,
    **{noun.name: tables.ARTIFACT_TABLES[noun.plural] for noun in ARTIFACT_NOUNS},
}
"""The kinds of things that are removed, and then stay as rows."""
ALLOWED = {
    ("end_provider_machine", "removing"),
    ("resubmit_job", "removing"),
    ("resubmit_job", "archived"),
}
"""A removal of a provider waits until none of its machines is left, and somebody may have to end
them. The document of a job makes another one as long as its row is there."""
STATUSES = ("removing", "archived")


@pytest.fixture
async def own(admin: Person) -> Holdings:
    return await holdings(admin, "own")


def _changed(site: Site, before: set[str]) -> list[str]:
    """The rows that are new or have changed, but for the entries of the audit log."""
    return sorted(row for row in all_rows(site.database) - before if not row.startswith("audit"))


@pytest.mark.parametrize("status", STATUSES)
async def test_nothing_is_asked_of_what_is_gone(site: Site, own: Holdings, status: str) -> None:
    wrong = []
    with listed_machines():
        for route in CHANGING:
            for place, kind in named_places(route).items():
                if kind in TABLES and (route.name, status) not in ALLOWED:
                    wrong += await _asked_of_gone(site, own, route, place, status)
    assert wrong == []


async def _asked_of_gone(
    site: Site, own: Holdings, route: Route, place: Place, status: str
) -> list[str]:
    kind = named_places(route)[place]
    table, row_id = TABLES[kind], own.named[kind]
    (row,) = site.rows(table, id=row_id)
    site.set(table, row_id, status=status)
    before = all_rows(site.database)
    answer = await own.person.call(**own.request(route, {place: row_id}))
    changed = _changed(site, before)
    site.set(table, row_id, status=row.status)
    told = f"{route.name} of a {kind} that is {status}: {answer.status_code} {answer.text}"
    return [f"{told}: {changed}"] * bool(changed or answer.status_code >= 500)
