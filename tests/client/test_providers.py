"""Providers of a cloud from the command line: a key, the checks, quotas, and the end of it."""

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from activities.db import tables
from activities.db.ids import new_id
from activities.providers.gcp.session import session_for
from activities.secrets.credentials import credentials_of
from activities.settings import settings
from tests.client.conftest import Desk
from tests.client.served import wait_until
from tests.doubles.gcp.double import GcpDouble, service_account_key
from tests.doubles.gcp.fixtures import gcp

__all__ = ["gcp"]


@pytest.fixture(autouse=True)
def at_google(gcp: GcpDouble) -> Iterator[None]:
    settings.cache_clear()
    session_for.cache_clear()
    yield
    session_for.cache_clear()


@pytest.fixture
def key_file(gcp: GcpDouble, desk: Desk) -> Path:
    path = desk.folder / "key.json"
    path.write_text(json.dumps(service_account_key(gcp)))
    return path


@pytest.fixture
def provider(desk: Desk, key_file: Path) -> str:
    """The id of a provider that is ready."""
    made = desk.json("provider", "enable", "gcp", "--key", str(key_file))
    desk.site.set(tables.Provider, made["id"], status="ready")
    return str(made["id"])


def test_a_provider_is_preferred_while_its_credits_last(desk: Desk, provider: str) -> None:
    given = desk.baseload("provider", "prefer", provider, "--credits", "300")
    assert (given.code, given.out.split("  ")[-1].strip()) == (
        0, "300.00 credits are spent, 300.00 are left",
    )  # fmt: skip
    assert "300.00 are left" in desk.baseload("provider", "show", provider).out
    waived = desk.baseload("provider", "prefer", provider, "--waive-fee")
    assert waived.out.strip().endswith("300.00 are left, without usage fee until then")
    ended = desk.baseload("provider", "prefer", provider, "--end")
    assert (ended.code, ended.out.split("  ")[-1].strip()) == (0, "not preferred")
    for wrong in ((), ("--end", "--credits", "3"), ("--credits", "some")):
        assert desk.baseload("provider", "prefer", provider, *wrong).code == 2


def answers(desk: Desk, provider_id: str, asked: str, **row: Any) -> threading.Thread:
    """The provider's workflow, as far as this: once it is asked, its row and one event."""
    kind = row.pop("event")

    def answer() -> None:
        wait_until(lambda: desk.site.asked_of(provider_id)[-1][0] == asked, f"asked to {asked}")
        desk.site.set(tables.Provider, provider_id, **row)
        event = tables.EventRow(
            id=new_id("evt"),
            account_id=desk.person.account_id,
            resource_id=provider_id,
            sequence=1,
            type=kind,
            message="what was found",
            details={},
            at=datetime.now(UTC),
        )
        desk.site.write(event)

    thread = threading.Thread(target=answer)
    thread.start()
    return thread


def test_a_key_comes_from_a_file_and_is_never_shown(desk: Desk, key_file: Path) -> None:
    ended = desk.baseload("provider", "enable", "gcp", "--name", "burst", "--key", str(key_file))
    assert ended.code == 0
    provider_id = ended.out.split()[0]
    key = json.loads(key_file.read_text())
    assert json.loads(credentials_of(provider_id)) == key
    shown = desk.baseload("provider", "show", "burst").out
    assert key["client_email"] in shown
    assert f"…{key['private_key_id'][-4:]} in store://providers/gcp/{provider_id}" in shown
    assert "PRIVATE" not in shown + ended.out + ended.err


def test_a_key_that_cannot_be_one_is_a_line_with_field_and_rule(desk: Desk) -> None:
    missing = desk.baseload("provider", "enable", "gcp", "--key", "nowhere.json")
    assert (missing.code, "nowhere.json" in missing.err) == (2, True)
    (desk.folder / "key.json").write_text('{"type": "authorized_user"}')
    refused = desk.baseload("provider", "enable", "gcp", "--key", "key.json")
    assert refused.code == 3
    assert "credentials.type: is service_account" in refused.err
    both = desk.baseload("provider", "enable", "gcp", "--key", "key.json", "--reference", "env://K")
    assert both.code == 2


def test_another_key_is_taken_and_checked(desk: Desk, provider: str, gcp: GcpDouble) -> None:
    newer = service_account_key(gcp)
    (desk.folder / "newer.json").write_text(json.dumps(newer))
    workflow = answers(desk, provider, "recheck", status="ready", event="provider.ready")
    ended = desk.baseload("provider", "rotate", "gcp", "--key", "newer.json", "--wait")
    workflow.join()
    assert ended.code == 0
    assert "what was found" in ended.err
    assert json.loads(credentials_of(provider)) == newer
    assert desk.baseload("provider", "rotate", "gcp").code == 2


def test_checks_show_what_to_do_and_end_with_1_when_something_failed(
    desk: Desk, provider: str
) -> None:
    found = [
        {"name": "key", "status": "passed", "detail": "gets tokens", "fix": ""},
        {"name": "billing", "status": "failed", "detail": "is off", "fix": "https://billing"},
    ]
    workflow = answers(
        desk, provider, "recheck", status="failed", status_reason="billing: is off",
        checks=found, event="provider.failed",
    )  # fmt: skip
    ended = desk.baseload("provider", "checks", "gcp", "--again")
    workflow.join()
    assert ended.code == 1
    assert "billing: https://billing" in ended.out
    assert "billing: is off" in ended.err
    again = desk.baseload("provider", "checks", "gcp", "--json")
    assert json.loads(again.out)["items"] == found


def test_disabling_waits_until_it_is_gone_and_tells_what_was_left(
    desk: Desk, provider: str
) -> None:
    workflow = answers(desk, provider, "remove", status="archived", event="provider.archived")
    ended = desk.baseload("provider", "disable", "gcp", "--wait")
    workflow.join()
    assert (ended.code, "archived" in ended.out) == (0, True)
    assert "what was found" in ended.err


def test_disabling_that_is_refused_ends_with_1_and_why(desk: Desk, provider: str) -> None:
    workflow = answers(
        desk, provider, "remove", status="failed", status_reason="not removed: network",
        event="provider.removal-refused",
    )  # fmt: skip
    ended = desk.baseload("provider", "disable", "gcp", "--wait")
    workflow.join()
    assert (ended.code, "not removed: network" in ended.err) == (1, True)


def test_quotas_are_a_table_of_jobs_by_gpu_type(desk: Desk, provider: str, gcp: GcpDouble) -> None:
    gcp.project.limits["us-central1"] = {"NVIDIA_T4_GPUS": 3.0}
    ended = desk.baseload("quotas", "gcp", "us-central1", "--limits")
    assert ended.code == 0
    lines = [line.split() for line in ended.out.splitlines()]
    t4 = next(line for line in lines if line[:3] == ["T4", "on", "demand"])
    assert t4[3:6] == ["3", "0.771096", "NVIDIA_T4_GPUS"]
    assert ["NVIDIA_T4_GPUS", "us-central1", "3", "0", "3"] in lines
    assert f"quotas?project={gcp.project.id}" in ended.err

    gcp.project.limits[""] = {"GPUS_ALL_REGIONS": 0.0}
    none = desk.baseload("quotas", "gcp", "us-central1")
    assert (none.code, "GPUS_ALL_REGIONS in all regions to 1" in none.err) == (1, True)


def test_a_notebook_is_enabled_by_whoever_accepts_its_terms_and_gets_its_cell(desk: Desk) -> None:
    refused = desk.baseload("provider", "enable", "colab")
    assert (refused.code, "forbids SSH shells" in refused.err) == (3, True)
    assert desk.baseload("provider", "colab-bootstrap").code == 2
    made = desk.json("provider", "enable", "colab", "--accept-terms")
    desk.site.set(tables.Provider, made["id"], status="ready")
    printed = desk.baseload("provider", "colab-bootstrap")
    assert printed.code == 0
    assert "with your own ngrok token inserted" in printed.err
    compile(printed.out, "cell", "exec")
    named = desk.json("provider", "colab-bootstrap", "colab")
    assert named["token"] in named["cell"]
