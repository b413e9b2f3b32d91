"""Who may open the connections to jobs, which no document of the API lists: all of them."""

import asyncio
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from starlette.routing import WebSocketRoute

from activities.db import tables
from activities.settings import settings
from api.app import ROUTERS
from api.authorization import SCOPES
from api.rate_limits import Rate
from api.sessions import links
from api.sessions.pages import create_pages_app
from api.sessions.proxy import COOKIES
from tests.api.federated_rows import federated_job, join
from tests.api.http_server import Person, Site
from tests.api.running_jobs import running_job

OF_PEOPLE = {
    "open_job_session": "/v1/jobs/{job}/sessions",
    "ask_job_socket": "/v1/jobs/{job}/endpoint/lab",
}
OF_SITES = {
    "serve_trunk": "/v1/trunks/trk-1",
    "serve_session": "/v1/trunks/trk-1/sessions/ses-1",
}


async def socket_status(site: Site, path: str, secret: str, app: Any = None, **headers: str) -> int:
    """The status with which a WebSocket is refused; 101 where it is accepted.

    app: that of the pages of jobs, instead of the API's.
    """
    pairs = {"authorization": f"Bearer {secret}", **headers}
    scope = {
        "type": "websocket", "asgi": {"version": "3.0"}, "scheme": "ws", "path": path,
        "raw_path": path.encode(), "query_string": b"", "subprotocols": [],
        "headers": [(name.encode(), value.encode()) for name, value in pairs.items()],
        "server": ("api", 80), "client": ("192.0.2.7", 999),
        "extensions": {"websocket.http.response": {}},
    }  # fmt: skip
    answers: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    asked = [{"type": "websocket.connect"}]

    async def receive() -> dict[str, Any]:
        return asked.pop() if asked else {"type": "websocket.disconnect", "code": 1001}

    async def send(message: Any) -> None:
        await answers.put(dict(message))

    await asyncio.wait_for((app or site.app)(scope, receive, send), 20)
    first = answers.get_nowait()
    return int(first["status"]) if first["type"] == "websocket.http.response.start" else 101


async def http_status(person: Person, path: str, **headers: str) -> int:
    return (await person.call("POST", path, headers=headers)).status_code


async def statuses(person: Person, job_id: str, **headers: str) -> set[int]:
    """How every connection to the job is answered."""
    found = {
        await socket_status(person.site, path.format(job=job_id), person.secret, **headers)
        for path in OF_PEOPLE.values()
    }
    return found | {await http_status(person, f"/v1/jobs/{job_id}/endpoint/lab", **headers)}


@pytest.fixture
async def job_id(ada: Person) -> str:
    return await ada.job()


def test_no_websocket_is_without_a_rule() -> None:
    routes = (route for module in ROUTERS for route in module.router.routes)
    names = {route.name for route in routes if isinstance(route, WebSocketRoute)}
    assert names == OF_PEOPLE.keys() | OF_SITES.keys()


async def test_no_connection_is_opened_without_a_good_key(ada: Person, job_id: str) -> None:
    past = datetime.now(UTC) - timedelta(seconds=1)
    for key in (
        replace(ada, secret="bl_unknown"),
        ada.with_key(expires_at=past),
        ada.with_key(revoked_at=past),
    ):
        assert await statuses(key, job_id) == {401}


async def test_all_scopes_but_that_of_changing_jobs_open_nothing(ada: Person, job_id: str) -> None:
    scopes = sorted(SCOPES - {"*", "jobs:write"})
    assert await statuses(ada.with_key(scopes), job_id) == {403}


async def test_the_job_of_another_account_is_not_there(bob: Person, job_id: str) -> None:
    assert await statuses(bob, job_id) == {404}


async def test_only_an_administrator_opens_them_for_another_account(
    ada: Person, bob: Person, job_id: str
) -> None:
    acting = {"x-baseload-account": ada.account_id}
    assert await statuses(bob, job_id, **acting) == {403}


async def test_a_job_that_does_not_run_is_refused_to_its_own_account(
    ada: Person, job_id: str
) -> None:
    assert await statuses(ada, job_id) == {409}


async def test_every_connection_counts_for_the_rate_limit_of_its_key(
    ada: Person, job_id: str
) -> None:
    for path in OF_PEOPLE.values():
        ada.site.app.state.own_request_rate = Rate(60, clock=lambda: 0.0)
        service = ada.with_key(requests_per_minute=2)
        address = path.format(job=job_id)
        found = [await socket_status(ada.site, address, service.secret) for _ in range(3)]
        assert found == [409, 409, 429], path
        assert await http_status(service, f"/v1/jobs/{job_id}/endpoint/lab") == 429


async def test_a_connection_of_a_page_counts_for_the_key_that_has_opened_it(ada: Person) -> None:
    site = ada.site
    site.app.state.own_request_rate = Rate(60, clock=lambda: 0.0)
    node_id = await ada.node(await ada.region())
    job_id = await running_job(ada, node_id, type="notebook", port=8888)
    service = ada.with_key(requests_per_minute=1)
    (key,) = site.rows(tables.ApiKey, requests_per_minute=1)
    passed = links.Pass(key.id, ada.account_id, job_id, 0, int(time.time()) + 60)
    origin = settings().endpoint_origin(job_id) or ""
    headers = {
        "host": origin.partition("://")[2],
        "origin": origin,
        "cookie": f"{COOKIES[0]}={links.seal(passed, 'cookie')}",
    }
    assert (await service.get("/v1/jobs")).status_code == 200
    pages = create_pages_app(site.app.state)
    assert await socket_status(site, "/", "", pages, **headers) == 429


async def test_no_key_of_a_person_serves_the_sessions_of_a_site(ada: Person) -> None:
    for path in OF_SITES.values():
        assert await socket_status(ada.site, path, ada.secret) == 401


async def test_the_creator_of_a_federated_job_reaches_no_port_of_it(
    site: Site, ada: Person, bob: Person, job_id: str
) -> None:
    federated_id = federated_job(ada, account_id=bob.account_id, creator_user_id=bob.user_id)
    values = {"creator_account_id": bob.account_id, "federated_id": federated_id}
    site.set(tables.Job, job_id, project_id=await shared(site, ada, bob), **values)
    assert await statuses(bob, job_id) == {403}
    assert await statuses(ada, job_id) == {409}


async def shared(site: Site, owner: Person, member: Person) -> str:
    """A project in which the member may change jobs."""
    project_id = str((await owner.made("/v1/projects", {"name": "reads"}))["id"])
    join(site, member, project_id, {"job": "all"})
    return project_id
