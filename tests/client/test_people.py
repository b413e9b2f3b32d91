"""People, projects and accounts from the command: invited, changed, removed, switched."""

import io
from pathlib import Path

import pytest
from baseload.configuration import load_profiles

from activities.db import tables
from tests.api.http_server import Person
from tests.client.conftest import Desk


@pytest.fixture(autouse=True)
def _own_profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def bob(desk: Desk) -> Person:
    return desk.site.account("bob")


def _as(monkeypatch: pytest.MonkeyPatch, person: Person, stdin: str = "") -> None:
    """Who runs the next commands, and what they read."""
    monkeypatch.setenv("BASELOAD_API_KEY", person.secret)
    monkeypatch.setattr("sys.stdin", io.StringIO(stdin))


def test_a_project_is_shared_changed_and_removed(
    desk: Desk, bob: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = desk.json("project", "create", "vision")["id"]
    made = desk.baseload(
        *("invite", "create", "bob@example.test", "--project", "vision"),
        *("--allow", "job:read", "--allow", "dataset:all"),
    )
    assert made.code == 0, made.err
    (row,) = desk.site.rows(tables.Invitation)
    assert (row.project_id, f"invite accept {row.id}" in made.err) == (project, True)
    _as(monkeypatch, bob, made.out)
    accepted = desk.baseload("invite", "accept", row.id)
    assert (accepted.code, accepted.out) == (0, f"{project}  dataset:all, job:read\n")
    again = desk.baseload("invite", "accept", row.id)
    assert again.code == 2, "there is no second line on stdin"
    _as(monkeypatch, desk.person)
    listed = desk.baseload("member", "ls", "--project", "vision").out
    assert "bob@example.test" in listed
    set_ = ("member", "set", "bob@example.test", "--project", "vision", "--allow", "job:all")
    assert desk.json(*set_)["permissions"] == {"job": "all"}
    wrong = desk.baseload(*set_[:-1], "job")
    assert (wrong.code, "--allow job: asked NOUN:read" in wrong.err) == (2, True)
    refused = desk.baseload("project", "rm", "vision")
    assert (refused.code, f"members {bob.user_id}" in refused.err) == (3, True)
    _as(monkeypatch, bob)
    assert desk.json("member", "leave", "vision")["project_id"] == project
    _as(monkeypatch, desk.person)
    assert desk.baseload("project", "rm", "vision", "--yes").out == f"{project}  vision  removed\n"
    assert [each["name"] for each in desk.json("project", "ls")["items"]] == ["Personal"]


def test_the_settings_of_a_project_are_set_and_shown(desk: Desk) -> None:
    desk.json("project", "create", "vision")
    changed = desk.json(
        *("project", "set", "vision", "--only-owned", "--on-quota-exhausted", "fail"),
        *("--federated-egress", "nas:22", "--federated-logs", "all", "--name", "eyes"),
    )
    assert (changed["name"], changed["use_only_owned_resources"]) == ("eyes", True)
    shown = desk.baseload("project", "show", "eyes").out
    assert "federated_egress         nas:22\n" in shown
    assert (
        desk.json("project", "set", "eyes", "--federated-egress", "none")["federated_egress"] == []
    )
    nothing = desk.baseload("project", "set", "eyes")
    assert (nothing.code, "nothing to change" in nothing.err) == (2, True)


def test_a_person_switches_between_accounts(
    desk: Desk, bob: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = desk.json("invite", "create", "bob@example.test", "--role", "member")
    _as(monkeypatch, bob, made["secret"])
    accepted = desk.baseload("invite", "accept", made["id"])
    assert accepted.code == 0, accepted.err
    assert accepted.out == f"{desk.person.account_id}  member  profile ada\n"
    accounts = desk.json("account", "ls")["items"]
    assert [(each["name"], each["is_current"]) for each in accounts] == [
        ("bob", True),
        ("ada", False),
    ]
    assert desk.json("account", "use", desk.person.account_id) == {"profile": "ada"}
    assert load_profiles().current == "ada"
    said = desk.baseload("account", "use", "ada").err
    assert "in use: ada; in this shell it is beaten by BASELOAD_API and BASELOAD_API_KEY" in said
    monkeypatch.delenv("BASELOAD_API_KEY")
    monkeypatch.delenv("BASELOAD_API")
    monkeypatch.delenv("BASELOAD_HOME", raising=False)
    assert desk.json("account", "show", "--profile", "ada")["id"] == desk.person.account_id
    assert desk.baseload("account", "use", "ada").err.endswith("in use: ada\n")
    unknown = desk.baseload("account", "use", "nobody")
    assert (unknown.code, "baseload login --profile nobody" in unknown.err) == (2, True)
    monkeypatch.setenv("BASELOAD_API", desk.url)
    _as(monkeypatch, bob)
    assert desk.json("account", "leave", "ada")["account_id"] == desk.person.account_id
    assert desk.site.rows(tables.AccountMember) == []


def test_users_have_roles_and_an_invitation_is_withdrawn(desk: Desk) -> None:
    made = desk.json("user", "create", "tom@example.test", "--role", "billing")
    assert made["role"] == "billing"
    key = desk.json("key", "create", "ci", "--user", "Tom@example.test", "--scope", "billing:read")
    assert (key["user_id"], key["scopes"]) == (made["id"], ["billing:read"])
    slow = desk.json("key", "create", "slow", "--scope", "jobs:read", "--rate", "60")
    assert slow["requests_per_minute"] == 60
    assert desk.baseload("key", "create", "never", "--rate", "0").code == 2
    nobody = desk.baseload("key", "create", "ci", "--user", "no@example.test")
    assert (nobody.code, "no user has the id or the address" in nobody.err) == (2, True)
    changed = desk.baseload("user", "set", "tom@example.test", "--role", "member")
    assert changed.out == f"{made['id']}  tom@example.test  member\n"
    assert {each["role"] for each in desk.json("user", "ls")["items"]} == {"owner", "member"}
    own = desk.baseload("user", "rm", made["id"])
    assert (own.code, "revoke the user's keys" in own.err) == (3, True)
    invitation = desk.json("invite", "create", "eve@example.test", "--role", "owner")
    assert desk.json("invite", "rm", invitation["id"])["status"] == "withdrawn"
    assert "withdrawn" in desk.baseload("invite", "ls").out


def test_an_administrator_makes_changes_and_removes_accounts(desk: Desk) -> None:
    made = desk.json("account", "create", "acme", "--owner", "eve@example.test", "--plan", "team")
    assert made["plan"] == "team"
    said = desk.baseload("account", "create", "hooli", "--owner", "tom@example.test")
    hooli = said.out.split()[0]
    assert f"baseload key create NAME --user tom@example.test --account {hooli}" in said.err
    changed = desk.json("account", "set", "acme", "--plan", "enterprise", "--payer", "ada")
    assert (changed["plan"], changed["billing_account_id"]) == (
        "enterprise",
        desk.person.account_id,
    )
    assert desk.json("account", "set", "acme", "--payer", "self")["billing_account_id"] is None
    assert "enterprise" in desk.baseload("account", "ls", "--all").out
    assert desk.json("account", "rm", "acme", "--yes")["removed_at"] is not None


@pytest.mark.parametrize(
    ("group", "names"),
    [
        ("invite", ("create", "ls", "accept", "rm")),
        ("member", ("ls", "set", "rm", "leave")),
        ("user", ("ls", "create", "set", "rm")),
        ("account", ("ls", "show", "use", "leave", "create", "set", "rm")),
        ("project", ("ls", "create", "show", "set", "rm")),
    ],
)
def test_each_command_has_help(desk: Desk, group: str, names: tuple[str, ...]) -> None:
    for name in names:
        said = desk.baseload(group, name, "--help")
        assert (said.code, "--json" in said.out) == (0, True), name
