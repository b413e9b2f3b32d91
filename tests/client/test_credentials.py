"""Keys of providers from the command: never an argument, and shown by their last characters."""

import io
import json
from collections.abc import Callable

import pytest

from activities.db import tables
from activities.secrets.credentials import credentials_of
from tests.client.conftest import Desk

KEY = "rpa_0123456789ABCDEFabcdef"
OTHER = "rpa_0123456789ABCDEF987654"
REFERENCE = "store://providers/runpod/api_key"
VARIABLE = "BASELOAD_STORE_PROVIDERS_RUNPOD_API_KEY"
Stdin = Callable[[str], None]


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> Stdin:
    return lambda text: monkeypatch.setattr("sys.stdin", io.StringIO(text))


def test_a_key_is_stored_used_by_a_provider_listed_and_replaced(desk: Desk, stdin: Stdin) -> None:
    stdin(f"{KEY}\n")
    stored = desk.baseload("credentials", "set", "runpod")
    assert (stored.code, stored.out) == (0, f"runpod  …cdef  {REFERENCE}\n")
    enabled = desk.json("provider", "enable", "runpod", "--reference", REFERENCE)
    assert credentials_of(enabled["id"]) == KEY
    (desk.folder / "key").write_text(OTHER)
    replaced = desk.json("credentials", "set", "runpod", "--from-file", "key")
    assert (replaced["masked"], replaced["provider_ids"]) == ("…7654", [enabled["id"]])
    assert credentials_of(enabled["id"]) == OTHER
    listed = desk.baseload("credentials", "ls")
    head, row = listed.out.splitlines()
    assert head.split()[:4] == ["KIND", "FIELD", "FROM", "KEY"]
    assert row.split()[:6] == ["runpod", "api_key", "store", "…7654", "no", enabled["id"]]
    shown = stored.out + stored.err + json.dumps(replaced) + listed.out
    assert (KEY in shown, OTHER in shown) == (False, False)


def test_a_key_that_is_not_used_is_removed_and_one_that_is_stays(desk: Desk, stdin: Stdin) -> None:
    stdin(KEY)
    assert desk.baseload("credentials", "set", "runpod").code == 0
    enabled = desk.json("provider", "enable", "runpod", "--reference", REFERENCE)
    refused = desk.baseload("credentials", "rm", "runpod", "--yes")
    assert (refused.code != 0, enabled["id"] in refused.err) == (True, True)
    assert len(desk.site.rows(tables.StoredSecret)) == 1
    desk.site.set(tables.Provider, enabled["id"], status="archived")
    assert desk.baseload("credentials", "rm", "runpod").code == 0
    assert desk.site.rows(tables.StoredSecret) == []
    assert desk.json("credentials", "ls") == {"items": []}


def test_a_key_of_the_servers_environment_is_read_only(
    desk: Desk, stdin: Stdin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, OTHER)
    row = desk.baseload("credentials", "ls").out.splitlines()[1].split()
    assert row[:5] == ["runpod", "api_key", "environment", "…7654", "yes"]
    stdin(KEY)
    for arguments in (("set", "runpod"), ("rm", "runpod")):
        refused = desk.baseload("credentials", *arguments)
        assert refused.code != 0
        assert "comes from the server's environment: change it there" in refused.err
    assert desk.site.rows(tables.StoredSecret) == []


def test_the_key_of_a_kind_is_in_the_field_that_the_kind_has(desk: Desk, stdin: Stdin) -> None:
    stdin("no key at all")
    refused = desk.baseload("credentials", "set", "gcp")
    assert (refused.code, "service-account" in refused.err) == (3, True)
    stdin(KEY)
    unknown = desk.baseload("credentials", "set", "runpod", "--field", "token")
    assert (unknown.code != 0, "runpod/token" in unknown.err) == (True, True)
    assert KEY not in refused.err + unknown.err


def test_a_key_is_no_argument(desk: Desk) -> None:
    assert desk.baseload("credentials", "set", "runpod", KEY).code == 2
