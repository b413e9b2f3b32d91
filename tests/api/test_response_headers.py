"""Headers of every answer, and what is told of the process itself, and to whom."""

import re
from dataclasses import dataclass

import httpx
import pytest

from tests.api.http_server import Person, Site
from tests.api.openapi_document import DOCUMENT


@dataclass
class Away:
    """Clients that are not on the API's own machine."""

    site: Site

    def client(self, url: str = "http://api.test", **headers: str) -> httpx.AsyncClient:
        transport = httpx.ASGITransport(
            self.site.app, raise_app_exceptions=False, client=("192.0.2.7", 999)
        )
        return httpx.AsyncClient(transport=transport, base_url=url, headers=headers)


@pytest.fixture
def away(site: Site) -> Away:
    return Away(site)


@pytest.mark.parametrize("path", ["/healthz", "/docs", "/v1/jobs", "/none", "/v1/jobs/none"])
async def test_every_answer_says_what_a_browser_must_not_do(ada: Person, path: str) -> None:
    headers = (await ada.get(path)).headers
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert "Strict-Transport-Security" not in headers
    if path.startswith("/v1/"):
        assert headers["Cache-Control"] == "no-store"


async def test_behind_tls_a_browser_is_held_to_it(away: Away) -> None:
    async with away.client("https://api.test") as client:
        headers = (await client.get("/healthz")).headers
    assert headers["Strict-Transport-Security"].startswith("max-age=")


async def test_a_new_secret_is_not_stored_on_its_way(ada: Person) -> None:
    made = await ada.post("/v1/api-keys", {"name": "ci"})
    assert made.headers["Cache-Control"] == "no-store"


async def test_the_documentation_needs_no_other_site_and_no_script(site: Site) -> None:
    async with site.client() as client:
        page = await client.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "/v1/jobs/{job_id}/logs" in page.text
    assert "<script" not in page.text
    assert "//" not in page.text.replace("store://", "").replace("file:///", "")


async def test_what_concerns_the_process_is_for_administrators_and_its_own_machine(
    site: Site, away: Away, ada: Person, admin: Person
) -> None:
    site.temporal_is_up = False
    async with away.client() as client:
        assert (await client.get("/metrics")).status_code == 403
        ready = await client.get("/readyz")
        assert (ready.status_code, ready.json()["temporal"]) == (503, None)
    for person, allowed in ((ada, False), (admin, True)):
        async with away.client(Authorization=f"Bearer {person.secret}") as client:
            assert (await client.get("/metrics")).is_success is allowed
            assert bool((await client.get("/readyz")).json()["temporal"]) is allowed
    async with site.client() as client:
        assert (await client.get("/metrics")).is_success
        assert "does not answer" in (await client.get("/readyz")).json()["temporal"]
        passed_on = {"X-Forwarded-For": "192.0.2.7"}
        assert (await client.get("/metrics", headers=passed_on)).status_code == 403


METHODS = {"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"}
PATHS = DOCUMENT["paths"]


async def test_a_wrong_method_is_told_all_the_right_ones(ada: Person) -> None:
    """Those of every route of the path: `/v1/jobs/kill-all` is a job of that name for GET."""
    for path in PATHS:
        concrete = re.sub(r"\{\w+\}", "none", path)
        answered = {
            method.upper()
            for template, operations in PATHS.items()
            if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), concrete)
            for method in operations
        }
        for method in METHODS - answered:
            wrong = await ada.call(method, concrete)
            told = (wrong.status_code, wrong.headers.get("Allow"))
            assert told == (405, ", ".join(sorted(answered))), (method, path)
