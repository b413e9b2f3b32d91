"""Keys of other services from the command: from a file, stdin or a person, and never shown."""

import io
import sys

import pytest
from baseload.commands.app import run
from baseload.commands.projects import KeyType as ShownType

from activities.db import tables
from tests.activities.third_party_keys.keys import SECRET, service_account
from tests.client.conftest import Desk
from workflows.contracts.third_party_keys import KeyType


def test_a_key_is_set_from_stdin_or_a_file_listed_and_removed(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"AKIAEXAMPLE:{SECRET}\n"))
    aws = desk.baseload("project", "key", "set", "aws")
    assert (aws.code, aws.out) == (0, "aws  …MPLE\n")
    (desk.folder / "key.json").write_text(service_account())
    assert desk.baseload("project", "key", "set", "gcp", "--from-file", "key.json").code == 0
    listed = desk.baseload("project", "key", "list")
    assert [row.split()[0] for row in sorted(listed.out.splitlines())] == ["TYPE", "aws", "gcp"]
    assert {each["type"] for each in desk.json("project", "key", "list")["items"]} == {"aws", "gcp"}
    assert desk.json("project", "key", "ls") == desk.json("project", "key", "list")
    assert desk.json("project", "key", "remove", "gcp", "--yes")["type"] == "gcp"
    gone = desk.baseload("project", "key", "rm", "gcp", "--yes")
    assert (gone.code, "third-party key gcp: not found" in gone.err) == (3, True)
    (row,) = desk.site.rows(tables.ThirdPartyKey)
    assert (row.type, row.project_id) == ("aws", desk.person.project_id)
    assert SECRET not in aws.err + aws.out + listed.out


def test_a_key_that_breaks_a_rule_is_refused_without_its_value(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(SECRET))
    wrong = desk.baseload("project", "key", "set", "aws")
    assert wrong.code == 3
    assert "value: is ACCESS_KEY_ID:SECRET_ACCESS_KEY" in wrong.err
    assert SECRET not in wrong.err
    assert desk.baseload("project", "key", "set", "aws", SECRET).code == 2, "it is no argument"


@pytest.mark.parametrize("name", ["set", "list", "remove"])
def test_each_command_has_help(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["baseload", "project", "key", name, "--help"])
    with pytest.raises(SystemExit) as leaving:
        run()
    said = capsys.readouterr().out
    assert (leaving.value.code, "--json" in said) == (0, True)


def test_the_client_has_the_types_of_the_platform() -> None:
    assert [each.value for each in ShownType] == [each.value for each in KeyType]
