"""Logging in: the address and the key are checked, kept for their owner alone, and used."""

import io
import json
import stat
from pathlib import Path

import pytest
from baseload.configuration import load_configuration
from baseload.errors import ConfigurationError
from baseload.profiles import Profile, Profiles, read_profiles, write_profiles

from tests.client.conftest import Desk


@pytest.fixture
def user_home(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person who has logged in nowhere."""
    for name in ("BASELOAD_API", "BASELOAD_API_KEY", "BASELOAD_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    folder = desk.folder.parent / "person"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    return folder


def _login(desk: Desk, monkeypatch: pytest.MonkeyPatch, key: str, *arguments: str) -> int:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{key}\n"))
    return desk.baseload("login", "--api", desk.url, *arguments).code


def test_a_key_that_works_is_kept_for_its_owner_alone_and_used(
    desk: Desk, user_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _login(desk, monkeypatch, desk.person.secret) == 0
    path = user_home / ".config" / "baseload" / "profiles.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads(path.read_text())["current"] == "default"
    assert desk.json("status")["account"]["id"] == desk.person.account_id
    listed = desk.baseload("profile", "ls")
    assert desk.url in listed.out
    assert desk.person.secret not in listed.out + listed.err


def test_a_key_that_does_not_work_is_not_kept(
    desk: Desk, user_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _login(desk, monkeypatch, "bl_wrong") == 3
    assert _login(desk, monkeypatch, "") == 2
    assert not (user_home / ".config").exists()
    missing = desk.baseload("ps")
    assert (missing.code, "baseload login" in missing.err) == (2, True)


def test_profiles_are_chosen_by_option_variable_and_use(
    desk: Desk, user_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bob = desk.site.account("bob")
    assert _login(desk, monkeypatch, desk.person.secret) == 0
    assert _login(desk, monkeypatch, bob.secret, "--profile", "bob") == 0
    mine, his = desk.person.account_id, bob.account_id
    assert desk.json("status")["account"]["id"] == his, "the last login is in use"
    assert desk.json("status", "--profile", "default")["account"]["id"] == mine
    assert desk.baseload("profile", "use", "default").code == 0
    assert desk.json("status")["account"]["id"] == mine
    with monkeypatch.context() as chosen:
        chosen.setenv("BASELOAD_PROFILE", "bob")
        assert desk.json("status")["account"]["id"] == his
    assert desk.baseload("profile", "rm", "bob").code == 0
    unknown = desk.baseload("ps", "--profile", "bob")
    assert (unknown.code, "no profile is called bob; there are: default" in unknown.err) == (
        2,
        True,
    )


def test_the_key_of_a_profile_goes_to_its_own_address_alone(tmp_path: Path) -> None:
    folder = tmp_path / ".config" / "baseload"
    profiles = Profiles({"work": Profile("https://api.test", "bl_work")}, "work")
    write_profiles(folder, profiles)
    home = {"HOME": str(tmp_path)}
    assert load_configuration(environment=home).key == "bl_work"
    with pytest.raises(ConfigurationError, match=r"is for https://api\.test alone"):
        load_configuration("http://127.0.0.1:1", profile="work", environment=home)
    for name, value in (
        ("BASELOAD_API", "http://127.0.0.1:1"), ("BASELOAD_API_KEY", "bl_1"),
    ):  # fmt: skip
        beaten = load_configuration(environment=home | {name: value}, working_directory=tmp_path)
        assert beaten.key != "bl_work", f"{name} beats the current profile"
        assert beaten.url.startswith("http://127.0.0.1")


def test_profiles_that_others_may_read_or_nobody_can_are_refused(tmp_path: Path) -> None:
    path = write_profiles(tmp_path, Profiles({"a": Profile("http://127.0.0.1", "bl_1")}, "a"))
    path.chmod(0o644)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        read_profiles(tmp_path)
    path.chmod(0o600)
    path.write_text("[1]")
    with pytest.raises(ConfigurationError, match="is no file of profiles"):
        read_profiles(tmp_path)
