"""What the settings of a worker do: where it shows metrics, how it logs, which sites it serves."""

import asyncio
import json
from pathlib import Path

import httpx
import pytest
import structlog
from temporalio.client import Client

from activities.settings import Settings
from workers.client import connect, measured
from workers.process import configure_logging
from workers.runner.probes import free_port
from workers.runner.settings import RunnerSettings
from workers.sites import serve_sites, site_queues


async def test_a_worker_shows_its_metrics_where_it_is_told(temporal_server: Client) -> None:
    place = f"127.0.0.1:{free_port()}"
    address = temporal_server.service_client.config.target_host
    chosen = Settings(metrics=place, temporal_address=address)
    client = await connect(chosen, measured(chosen))  # it shows them for as long as it lives
    async with httpx.AsyncClient() as reader:
        shown = await reader.get(f"http://{place}/metrics")
    assert "temporal_request" in shown.text
    assert await client.service_client.check_health()


def test_nothing_is_shown_where_no_place_is_named() -> None:
    assert measured(Settings()) is None


def test_log_lines_have_the_form_and_the_level_that_were_chosen(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure_logging(Settings(log_level="WARNING", log_json=True))
    structlog.get_logger("quiet").info("not shown")
    structlog.get_logger("loud").warning("shown", node="n-1")
    line = json.loads(capsys.readouterr().err)
    assert (line["event"], line["node"], line["level"]) == ("shown", "n-1", "warning")


@pytest.mark.parametrize(
    ("sites", "wanted"),
    [
        ("*", ("site",)),
        ("reg-a,reg-b", ("site/reg-a", "site/reg-b")),
        ("*,reg-b", ("site", "site/reg-b")),
        ("", ()),
    ],
)
def test_a_worker_serves_all_shared_regions_by_one_queue_and_others_by_their_own(
    sites: str, wanted: tuple[str, ...]
) -> None:
    assert site_queues(sites) == wanted


def test_a_site_that_is_neither_all_nor_a_region_is_named() -> None:
    with pytest.raises(ValueError, match="BASELOAD_SITES: -reg-b is neither"):
        site_queues("*,-reg-b")


async def test_a_worker_of_sites_alone_wants_them_named(home: Path) -> None:
    assert await serve_sites(asyncio.Event()) == 1
    assert not (home / "baseload.db").exists()


def test_the_address_that_is_told_to_people_is_one_that_a_browser_opens() -> None:
    assert RunnerSettings(api="0.0.0.0:8701").api_url == "http://127.0.0.1:8701"
    assert RunnerSettings(api="192.168.1.5:8700").api_url == "http://192.168.1.5:8700"
    assert RunnerSettings(api="127.0.0.1:8700").api_url == "http://127.0.0.1:8700"
