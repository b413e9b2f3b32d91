"""Regions in a cloud and nodes that are made there, from the command line."""

import json
from collections.abc import Iterator

import pytest

from activities.db import tables
from activities.providers.gcp.session import session_for
from activities.settings import settings
from tests.client.conftest import Desk
from tests.doubles.gcp.double import GcpDouble, service_account_key
from tests.doubles.gcp.fixtures import gcp

__all__ = ["gcp"]


@pytest.fixture(autouse=True)
def provider(desk: Desk, gcp: GcpDouble) -> Iterator[str]:
    """One of Google that is ready, and one of own machines that is ready too."""
    settings.cache_clear()
    session_for.cache_clear()
    key_file = desk.folder / "key.json"
    key_file.write_text(json.dumps(service_account_key(gcp)))
    made = desk.json("provider", "enable", "gcp", "--key", str(key_file))
    own = desk.json("provider", "enable", "physical")
    for each in (made, own):
        desk.site.set(tables.Provider, each["id"], status="ready")
    yield str(made["id"])
    session_for.cache_clear()


def test_a_region_in_a_cloud_and_a_node_there_are_made_by_their_names(
    desk: Desk, provider: str
) -> None:
    made = desk.json("region", "add", "burst", "us-west1", "--storage-class", "micro")
    assert (made["provider_id"], made["cloud_region"]) == (provider, "us-west1")
    assert made["storage_node_class"] == "micro"
    desk.site.set(tables.Region, made["id"], status="healthy")
    assert "us-west1" in desk.baseload("region", "ls").out

    node = desk.json("node", "add", "trainer", "--region", "burst", "--gpus", "T4:1")
    assert node["leased"] is True
    (row,) = desk.site.rows(tables.Node, id=node["id"])
    assert row.machine["offers"][0]["machine_type"] == "n1-standard-8"


def test_a_region_of_no_use_is_refused_with_what_to_raise(desk: Desk, gcp: GcpDouble) -> None:
    gcp.project.limits[""] = {"GPUS_ALL_REGIONS": 0.0}
    refused = desk.baseload("region", "add", "burst", "us-west1")
    assert refused.code == 3
    assert "raise GPUS_ALL_REGIONS" in refused.err
