"""Links and cookies to the pages of jobs: of one job, of one kind, for a while."""

import asyncio
import time

import httpx
import pytest
from starlette.applications import Starlette
from starlette.datastructures import State

from activities.db import tables
from activities.settings import settings
from api.audit_notes import Reads
from api.sessions import links
from api.sessions.pages import create_pages_app
from tests.api.http_server import Person, Site
from tests.api.running_jobs import running_job

pytestmark = [
    pytest.mark.usefixtures("stores"),
    pytest.mark.parametrize("dialect", ["sqlite", "postgresql"], indirect=True),
]


def test_a_link_is_of_its_job_and_is_no_cookie_and_no_longer_good_than_it_says() -> None:
    text, until = links.new_link("key-1", "acc-1", "job-1", 0)
    assert until <= time.time() + links.LINK_S + 1
    found = links.opened(text, "link", "job-1")
    assert found is not None
    assert (found.key_id, found.account_id) == ("key-1", "acc-1")
    assert links.opened(text, "link", "job-2") is None
    assert links.opened(text, "cookie", "job-1") is None
    assert links.opened(text[:-4] + "AAAA", "link", "job-1") is None
    assert links.opened("what is no link", "link", "job-1") is None
    past = links.seal(links.Pass("key-1", "acc-1", "job-1", 0, int(time.time()) - 1), "link")
    assert links.opened(past, "link", "job-1") is None


def test_a_cookie_holds_no_longer_than_its_key() -> None:
    text, _ = links.new_link("key-1", "acc-1", "job-1", 0)
    found = links.opened(text, "link", "job-1")
    assert found is not None
    cookie, holds_s = links.cookie_of(found, time.time() + 60)
    assert 50 < holds_s <= 60
    assert links.opened(cookie, "cookie", "job-1") is not None
    assert links.cookie_of(found, None)[1] > 3600


def test_a_link_is_good_once_however_it_is_written() -> None:
    text, _ = links.new_link("key-1", "acc-1", "job-1", 0)
    other, _ = links.new_link("key-1", "acc-1", "job-1", 0)
    again = f"{text[:9]}!!!!{text[9:]}"
    link = links.opened(again, "link", "job-1")
    assert link is not None, "base64 does not mind"
    used = [links.use(each, link) for each in (text, text, again, other)]
    assert used == [True, False, False, True]


async def test_a_link_is_good_once_in_all_processes_of_the_api_together(
    site: Site, ada: Person
) -> None:
    node_id = await ada.node(await ada.region())
    job_id = await running_job(ada, node_id, type="notebook", port=8888)
    (key,) = site.rows(tables.ApiKey, account_id=ada.account_id)
    apps = [_pages_app(), _pages_app()]
    for _ in range(5):
        text, _ = links.new_link(key.id, ada.account_id, job_id, 0)
        answers = await asyncio.gather(*(_enter(app, job_id, text) for app in apps * 3))
        assert sorted(each.status_code for each in answers) == [303, *[401] * 5]
        (entered,) = (each for each in answers if each.status_code == 303)
        assert "baseload-page=" in entered.headers["set-cookie"]
        refused = next(each for each in answers if each.status_code == 401)
        assert "this link was used before" in refused.text
        assert "set-cookie" not in refused.headers
    assert len(site.rows(tables.UsedLink)) == 5


def _pages_app() -> Starlette:
    """The pages as another process serves them, which shares the database alone."""
    return create_pages_app(State({"reads": Reads()}))


async def _enter(app: Starlette, job_id: str, text: str) -> httpx.Response:
    origin = str(settings().endpoint_origin(job_id))
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url=origin, trust_env=False) as browser:
        return await browser.get("/.baseload/enter", params={"link": text})
