"""The pages of the API itself, which need nothing of another site."""

import re
import subprocess
from pathlib import Path

import pytest

from api.documentation import KEEPER, get_join_script
from tests.api.http_server import Site

BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


async def test_a_browser_gets_a_page_that_leads_on_and_others_get_json(site: Site) -> None:
    async with site.client() as client:
        page = await client.get("/", headers=BROWSER)
        found = await client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert {"/docs", "/guide/", "/openapi.json"} <= set(re.findall(r"href=(\S+?)>", page.text))
    assert found.json()["name"] == "baseload"
    assert (found.json()["documentation"], found.json()["api"]) == ("/docs", "/v1")
    assert page.headers["vary"] == found.headers["vary"] == "Accept"


@pytest.mark.parametrize("path", ["/", "/docs"])
async def test_a_page_loads_nothing_from_elsewhere_and_runs_no_script(
    site: Site, path: str
) -> None:
    async with site.client(BROWSER) as client:
        page = (await client.get(path)).text
    assert "://" not in re.sub(r"<code>.*?</code>", "", page)
    assert "<script" not in page
    assert not re.search(r"<(link|img|iframe)\b", page)


def test_the_join_script_is_one_file_with_the_keeper_in_it(tmp_path: Path) -> None:
    served = bytes(get_join_script().body).decode()
    written = served[served.index("write_keeper() {") : served.index("keep() {")]
    subprocess.run(["sh", "-c", f"{written}\nwrite_keeper {tmp_path}"], check=True)
    found = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert found == {path.name: path.read_text() for path in KEEPER.glob("*.py")}


async def test_every_way_that_the_first_page_shows_leads_somewhere(site: Site) -> None:
    async with site.client(BROWSER) as client:
        page = await client.get("/")
        for path in re.findall(r"href=(\S+?)>", page.text):
            if not path.startswith("/guide"):  # Built by the setup alone.
                assert (await client.get(path)).status_code == 200, path
