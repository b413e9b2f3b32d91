"""The guide: pages of this repository, served without anything of another site."""

import re

import pytest
from starlette.routing import Mount

from activities.settings import settings
from api.guide import BUILT
from tests.api.http_server import Person

ELSEWHERE = re.compile(r"""<(?:script|link|img|iframe)[^>]*(?:src|href)=["']?(?:https?:)?//""")


async def test_a_browser_gets_the_guide_whole_without_a_key_or_another_site(ada: Person) -> None:
    pages = sorted(BUILT.glob("*.html"))
    assert BUILT / "index.html" in pages, "make setup builds the guide"
    for page in pages:
        answer = await ada.get(f"/guide/{page.name}")
        assert (answer.status_code, answer.headers["Content-Type"][:9]) == (200, "text/html")
        assert ELSEWHERE.findall(answer.text) == []
        assert "'self'" in answer.headers["Content-Security-Policy"]
    assert "baseload" in (await ada.get("/guide/")).text


async def test_an_address_without_a_page_leads_to_the_first_page(ada: Person) -> None:
    answer = await ada.get("/guide/jobs")
    assert (answer.status_code, "<a href=/guide/>" in answer.text) == (404, True)


async def test_the_guide_leads_to_no_file_outside_of_it(ada: Person) -> None:
    for path in (
        "/guide/../settings.py",
        "/guide/%2e%2e/%2e%2e/pyproject.toml",
        "/guide//etc/passwd",
    ):
        assert (await ada.get(path)).status_code == 404


async def test_where_no_guide_is_built_the_page_says_how(
    ada: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = [route for route in ada.site.app.routes if isinstance(route, Mount)]
    guide = next(mount.app for mount in mounts if mount.name == "guide")
    monkeypatch.setattr(guide, "directory", settings().home / "no-guide")
    answer = await ada.get("/guide/")
    assert answer.status_code == 404
    assert "make setup" in answer.text
