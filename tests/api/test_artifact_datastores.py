"""Artifacts from datastores over HTTP: whose datastore, who may read it, which of its folders."""

from typing import Any

import pytest

from activities.db import tables
from tests.api.http_server import Person, Site
from tests.api.test_datastores import datastore


@pytest.fixture
async def sets(site: Site, ada: Person) -> str:
    return datastore(site, ada, await ada.region())


def cats(datastore_id: str, path: str | None = None) -> dict[str, Any]:
    source = {"type": "regional", "datastore_id": datastore_id}
    return {"name": "cats", "source": source if path is None else {**source, "path": path}}


async def test_a_dataset_is_made_of_a_folder_of_a_datastore(ada: Person, sets: str) -> None:
    made = await ada.made("/v1/datasets", cats(sets, "digits/train"))
    source = {"type": "regional", "datastore_id": sets, "path": "digits/train"}
    assert (made["status"], made["source"]) == ("new", source)
    whole = await ada.made("/v1/checkpoints", cats(sets))
    assert whole["source"]["path"] == "/"


@pytest.mark.parametrize("path", ["../x", "/etc", "a//b", "a\\b"])
async def test_a_path_that_leaves_the_root_is_refused(ada: Person, sets: str, path: str) -> None:
    answer = await ada.post("/v1/datasets", cats(sets, path))
    assert [error["field"] for error in answer.json()["errors"]] == ["source.path"]


async def test_a_datastore_of_others_or_one_that_goes_is_not_there(
    site: Site, ada: Person, bob: Person, sets: str
) -> None:
    for person, status in ((bob, "ready"), (ada, "removing"), (ada, "failed")):
        site.set(tables.Datastore, sets, status=status)
        answer = await person.post("/v1/datasets", cats(sets))
        (error,) = answer.json()["errors"]
        assert (error["field"], "not found" in error["rule"]) == ("source.datastore_id", True)


async def test_a_key_that_may_not_read_datastores_copies_nothing_of_them(
    ada: Person, sets: str
) -> None:
    key = ada.with_key(["datasets:write", "datasets:read"])
    answer = await key.post("/v1/datasets", cats(sets))
    assert (answer.status_code, "datastores:read" in answer.json()["detail"]) == (403, True)


async def test_who_may_not_read_datastores_does_not_copy_them_by_trying_again(
    site: Site, ada: Person, sets: str
) -> None:
    made = await ada.made("/v1/datasets", cats(sets))
    site.set(tables.Dataset, made["id"], status="failed")
    again = f"/v1/datasets/{made['id']}/retry"
    refused = await ada.with_key(["datasets:write"]).call("POST", again)
    assert (refused.status_code, "datastores:read" in refused.json()["detail"]) == (403, True)
    able = ada.with_key(["datasets:write", "datastores:read"])
    assert (await able.call("POST", again)).status_code == 202
