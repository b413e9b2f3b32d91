"""The key of one request on every other route, another query, another key and another account."""

from dataclasses import replace
from typing import Any

import httpx
import pytest

from tests.api.http_server import Person, Site
from tests.api.refusals.document import operation
from tests.api.refusals.holdings import Holdings, all_rows, holdings, rows_of_others
from tests.api.test_access import ADMINISTRATORS, ROUTES, Route
from workflows.contracts.lifecycles import ARTIFACT_NOUNS

KEY = "Idempotency-Key"
REPLAYED = "Idempotent-Replayed"
WITHOUT = {"preview_job", "create_job_link", "audit_ledger"}
"""They change nothing that lasts, so they take no such key."""
NOT_NOW = {
    *("add_device", "resume_deployment", "create_invitation", "accept_invitation"),
    *("enable_provider", "reboot_node", "replace_node", "stop_job", "start_job"),
    *(f"{verb}_{noun.name}" for verb in ("retry", "complete") for noun in ARTIFACT_NOUNS),
    "create_federated_job",
    *("refuse_boot_drive_request", "withdraw_boot_drive_request"),  # It is approved by then.
}
"""What the holder's things are not ready for; a refused request does not use up its key."""
POSTS = [route for route in ROUTES if route.method == "POST" and route.name not in WITHOUT]


@pytest.fixture
async def own(admin: Person) -> Holdings:
    """What an administrator holds, who may call every route."""
    return await holdings(admin, "own")


async def _sent(holder: Holdings, route: Route, key: str, **changes: Any) -> httpx.Response:
    return await holder.person.call(**holder.request(route) | changes, headers={KEY: key})


def _is_conflict(answer: httpx.Response) -> bool:
    told = (answer.status_code, answer.json().get("code"))
    return told == (409, "idempotency-conflict") and REPLAYED not in answer.headers


def test_every_route_that_makes_something_takes_a_key() -> None:
    for route in ROUTES:
        if route.method == "POST":
            names = {each["name"] for each in operation(route).get("parameters", ())}
            assert (KEY in names) != (route.name in WITHOUT), route.name


async def test_a_request_sent_again_is_answered_as_before_and_changes_nothing(
    site: Site, own: Holdings
) -> None:
    refused = set()
    for route in POSTS:
        first = await _sent(own, route, route.name)
        before = all_rows(site.database)
        again = await _sent(own, route, route.name)
        if first.status_code >= 300:
            refused.add(route.name)
            continue
        assert (again.status_code, again.text) == (first.status_code, first.text), route.name
        assert again.headers[REPLAYED] == "true"
        assert all_rows(site.database) == before, route.name
    assert refused == NOT_NOW


async def test_a_key_that_one_route_has_used_is_refused_on_every_other(
    site: Site, own: Holdings
) -> None:
    (first,) = (route for route in POSTS if route.name == "kill_all_jobs")
    assert (await _sent(own, first, "once")).status_code == 202
    before = all_rows(site.database)
    for route in POSTS:
        if route != first:
            assert _is_conflict(await _sent(own, route, "once")), route.name
    assert all_rows(site.database) == before


async def test_a_key_is_refused_with_another_query_or_thing_or_by_another_api_key(
    site: Site, own: Holdings
) -> None:
    (cancel,) = (route for route in POSTS if route.name == "cancel_job")
    other = await own.person.job()
    of_another_job = {"path": f"/v1/jobs/{other}/cancel"}
    assert (await _sent(own, cancel, "once")).status_code == 202
    before = all_rows(site.database)
    for changes in ({"params": {"discard": True}}, of_another_job):
        assert _is_conflict(await _sent(own, cancel, "once", **changes)), changes
    assert all_rows(site.database) == before
    another_key = replace(own, person=own.person.with_key())
    assert _is_conflict(await _sent(another_key, cancel, "once"))


async def test_the_key_of_another_account_is_neither_replayed_nor_used_up(
    site: Site, own: Holdings, bob: Person
) -> None:
    his = await holdings(bob, "bob-taylor")
    for route in POSTS:
        await _sent(own, route, "once-" + route.name)
    before = rows_of_others(site.database, his)
    for route in POSTS:
        if route.name not in ADMINISTRATORS:
            answer = await _sent(his, route, "once-" + route.name)
            assert REPLAYED not in answer.headers, route.name
            assert "idempotency" not in answer.text, route.name
            assert own.person.account_id not in answer.text, route.name
    assert rows_of_others(site.database, his) == before
