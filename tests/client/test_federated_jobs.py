"""Federated jobs from the command: created, listed, shown and canceled by either party."""

import asyncio
import json
from dataclasses import replace

import pytest

from activities.db import tables
from tests.api.federated_rows import Story, story
from tests.client.conftest import Desk


@pytest.fixture
def parties(desk: Desk) -> Story:
    """The story of both parties, in which whoever sits at the desk is the owner of the model."""
    found = asyncio.run(story(desk.site))
    desk.site.set(
        tables.ApiKey,
        desk.site.rows(tables.ApiKey, account_id=desk.person.account_id)[0].id,
        account_id=found.maker.account_id,
        user_id=found.maker.user_id,
    )
    return replace(found, maker=desk.person)


def written(desk: Desk, parties: Story) -> str:
    """The job file of a federated job; YAML knows JSON."""
    model = {"model": {"id": parties.model_id}}
    path = desk.folder / "reads.yaml"
    path.write_text(json.dumps(parties.changed(data=model)))
    return str(path)


def test_the_owner_of_a_model_creates_lists_shows_and_cancels(desk: Desk, parties: Story) -> None:
    made = desk.json("federated", "create", written(desk, parties))
    federated_id = str(made["id"])
    assert (made["status"], made["role"]) == ("new", "creator")
    for verb in ("ls", "list"):
        assert federated_id in desk.baseload("federated", verb, "--status", "new").out
    by_model = desk.json("federated", "ls", "--model", "lungs", "--project", parties.project_id)
    assert [each["id"] for each in by_model["items"]] == [federated_id]
    assert desk.json("federated", "ls", "--consumer", "acc-none")["items"] == []
    shown = desk.baseload("federated", "show", "reads").out
    for words in (parties.model_id, parties.clinic.account_id, "federated.requested", "nothing"):
        assert words in shown
    assert len(desk.json("federated", "show", federated_id)["events"]) == 1
    assert "is asked to end" in desk.baseload("federated", "cancel", federated_id).out


def test_the_key_of_a_model_is_for_an_attested_machine_where_its_owner_says_so(
    desk: Desk, parties: Story
) -> None:
    plain = desk.json("federated", "create", written(desk, parties))
    assert plain["needs_attestation"] is False
    assert "to the machine" in desk.baseload("federated", "show", str(plain["id"])).out
    made = desk.json("federated", "create", written(desk, parties), "--needs-attestation")
    assert made["needs_attestation"] is True
    assert "an attested machine" in desk.baseload("federated", "show", str(made["id"])).out
    path = desk.folder / "none.yaml"
    path.write_text(json.dumps(parties.changed(data={"model": None})))
    refused = desk.baseload("federated", "create", str(path), "--needs-attestation")
    assert refused.code == 2
    assert "which has none" in refused.err


def test_what_is_refused_is_said_with_the_line_of_the_file(desk: Desk, parties: Story) -> None:
    path = desk.folder / "reads.yaml"
    path.write_text(
        f"name: reads\ntype: inference\nproject_id: {parties.project_id}\n"
        f"resources: {{gpus: cpu, cpu_count: 1}}\ndata: {{model: {{id: {parties.model_id}}}}}\n"
        "workers: [{command: python read.py}]\n"
    )
    refused = desk.baseload("federated", "create", str(path))
    assert refused.code == 3
    assert "data.output.type" in refused.err
    missing = desk.baseload("federated", "create", str(desk.folder / "none.yaml"))
    assert missing.code == 2
