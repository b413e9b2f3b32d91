"""Datastores from the command: the password is never an argument, and never shown."""

import asyncio
import io

import pytest

from activities.datastores.checks import password_of
from activities.db import tables
from tests.client.conftest import Desk

PASSWORD = "correct horse, battery"


@pytest.fixture
def region(desk: Desk) -> str:
    """The name of a region with an active node, of an account with the plan team."""

    async def made() -> str:
        region_id = await desk.person.region()
        desk.site.set(tables.Node, await desk.person.node(region_id), status="active")
        return region_id

    region_id = asyncio.run(made())
    desk.site.set(tables.Account, desk.person.account_id, plan="team")
    (row,) = desk.site.rows(tables.Region, id=region_id)
    name: str = row.name
    return name


def test_a_share_is_registered_listed_shown_and_removed(
    desk: Desk, region: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(PASSWORD + "\n"))
    smb = ("--region", region, "--smb", "nas", "--root", "/data", "--user", "ada")
    added = desk.json("datastore", "add", "results", *smb)
    assert (added["type"], added["address"], added["status"]) == ("smb", "nas", "new")
    (row,) = desk.site.rows(tables.Datastore)
    assert password_of(row) == PASSWORD
    nfs = ("--region", region, "--nfs", "nas:2049", "--root", "/srv/sets")
    assert desk.baseload("datastore", "add", "sets", *nfs).code == 0
    shown = desk.baseload("datastore", "show", "results")
    listed = desk.baseload("datastore", "ls")
    assert {"sets", "results"} <= set(listed.out.split())
    assert PASSWORD not in shown.out + listed.out + str(added)
    assert desk.baseload("datastore", "rm", "sets").out.endswith("  sets  removing\n")
    sets = str(desk.json("datastore", "show", "sets")["id"])
    assert [verb for verb, _ in desk.site.asked_of(sets)] == ["start", "remove"]


def test_a_password_may_come_from_a_variable_and_has_to_come(
    desk: Desk, region: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    smb = ("--region", region, "--smb", "nas", "--root", "/data", "--user", "ada")
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    missing = desk.baseload("datastore", "add", "results", *smb)
    assert (missing.code, "password" in missing.err) == (2, True)
    monkeypatch.setenv("BASELOAD_DATASTORE_PASSWORD", PASSWORD)
    assert desk.baseload("datastore", "add", "results", *smb).code == 0
    (row,) = desk.site.rows(tables.Datastore)
    assert password_of(row) == PASSWORD
    neither = desk.baseload("datastore", "add", "x", "--region", region)
    assert (neither.code, "--nfs HOST or --smb HOST" in neither.err) == (2, True)


def test_a_dataset_is_made_of_a_folder_of_a_datastore_by_its_name(desk: Desk, region: str) -> None:
    nfs = ("--region", region, "--nfs", "nas", "--root", "/srv/sets")
    sets = desk.json("datastore", "add", "sets", *nfs)["id"]
    asked = ("dataset", "create", "cats", "--source", "datastore:sets/digits/train", "--no-wait")
    made = desk.json(*asked)
    source = {"type": "regional", "datastore_id": sets, "path": "digits/train"}
    assert made["source"] == source
    assert f"datastore:{sets}/digits/train" in desk.baseload("dataset", "show", "cats").out
    whole = desk.json("checkpoint", "create", "all", "--source", "datastore:sets", "--no-wait")
    assert whole["source"]["path"] == "/"
    assert f"datastore:{sets}\n" in desk.baseload("checkpoint", "show", "all").out


def test_the_events_of_a_datastore_and_of_a_volume_are_shown(desk: Desk, region: str) -> None:
    nfs = ("--region", region, "--nfs", "nas", "--root", "/srv/sets")
    datastore_id = str(desk.json("datastore", "add", "sets", *nfs)["id"])
    volume_id = str(desk.json("volume", "create", "notes", "--no-wait")["id"])
    for reference in (datastore_id, "sets"):
        assert "datastore.requested" in desk.baseload("events", reference).out
    for reference in (volume_id, "notes"):
        assert "volume.requested" in desk.baseload("events", reference).out
    unknown = desk.baseload("events", "cats")
    assert (unknown.code, "no resource has the id or the name 'cats'" in unknown.err) == (2, True)
    # A node of the same name keeps it: whoever has typed it until now gets what they got.
    (node,) = desk.site.rows(tables.Node)
    desk.json("volume", "create", node.name, "--no-wait")
    assert "volume." not in desk.baseload("events", node.name).out
