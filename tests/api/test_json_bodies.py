"""Bodies that a parser takes and nothing can keep: refused with their fields, on both databases."""

import json
import math
import tracemalloc
from typing import Any

import pytest

from activities.db import tables
from tests.api.http_server import JOB, Person, Site

HALF = "a\ud800"


@pytest.fixture(params=["sqlite", "postgresql"])
def dialect(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _with(**changes: Any) -> str:
    return json.dumps({**JOB, **changes})


def _memory(gib: float) -> str:
    return _with(resources={"gpus": "cpu", "cpu_count": 1, "memory_gib": gib})


UNKEEPABLE = {
    "nan": (_memory(math.nan), "resources.memory_gib"),
    "infinity": (_memory(math.inf), "resources.memory_gib"),
    "too large": (_memory(math.inf).replace("Infinity", "1e999"), "resources.memory_gib"),
    "name": (_with(name=HALF), "name"),
    "command": (_with(workers=[{"command": HALF}]), "workers.0.command"),
    "variable": (_with(environment={"variables": {"A": HALF}}), "environment.variables.A"),
    "field": (_with(**{HALF: 1}), "body"),
}


@pytest.mark.parametrize("name", UNKEEPABLE)
async def test_what_cannot_be_kept_is_refused_and_named(site: Site, ada: Person, name: str) -> None:
    body, field = UNKEEPABLE[name]
    headers = {"Content-Type": "application/json"}
    response = await ada.call("POST", "/v1/jobs", content=body, headers=headers)
    assert response.status_code == 422, response.text
    assert [error["field"] for error in response.json()["errors"]] == [field]
    assert site.rows(tables.Job) == []
    assert (await ada.get("/v1/jobs")).status_code == 200


async def test_whoever_has_no_key_is_held_to_it_as_well(site: Site) -> None:
    async with site.client() as client:
        body = json.dumps({"minion_id": HALF, "host_public_key": "k", "address": "h", "port": 22})
        response = await client.post("/v1/announcements", content=body)
    assert response.status_code == 422
    assert response.json()["errors"][0]["field"] == "minion_id"


@pytest.mark.parametrize(
    "path", ["/v1/jobs/job-%00", "/v1/nodes/%00", "/v1/jobs?after=%00", "/v1/jobs?project_id=%00"]
)
async def test_a_name_with_a_nul_names_nothing(ada: Person, path: str) -> None:
    response = await ada.get(path)
    assert response.status_code < 500, response.text


@pytest.mark.parametrize(
    "changes",
    [
        {"project_id": "prj-\0"},
        {"code": {"upload_id": "upl-\0"}},
        {"placement": {"region_id": "reg-\0"}},
        {"safety": {"price_cap_microcredits_per_hour": 10**30}},
        {"priority": 10**30},
    ],
)
async def test_a_job_that_names_what_no_database_holds_is_refused(
    site: Site, ada: Person, changes: dict[str, Any]
) -> None:
    response = await ada.post("/v1/jobs", {**JOB, **changes})
    assert response.status_code in (404, 422), response.text
    assert site.rows(tables.Job) == []


async def test_a_small_body_with_long_paths_takes_little_memory(site: Site) -> None:
    body = json.dumps({"k" * 50_000: [0] * 2000})
    async with site.client() as client:
        tracemalloc.start()
        try:
            response = await client.post("/v1/announcements", content=body)
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert response.status_code == 422
    assert most < 10_000_000


async def test_the_mistakes_of_a_body_are_told_in_short(site: Site) -> None:
    body = json.dumps({"k" * 50_000: [HALF] * 2000})
    async with site.client() as client:
        response = await client.post("/v1/announcements", content=body)
    assert response.status_code == 422
    assert len(response.content) < 100_000
