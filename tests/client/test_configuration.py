"""Where the API is and with which key, by what is set and what lies about."""

from pathlib import Path

import pytest
from baseload.configuration import DEFAULT_URL, Configuration, load_configuration
from baseload.errors import ConfigurationError


@pytest.fixture
def user(tmp_path: Path) -> Path:
    folder = tmp_path / "user"
    folder.mkdir()
    return folder


def _load(user: Path, url: str | None = None, **environment: str) -> Configuration:
    return load_configuration(
        url, environment={"HOME": str(user), **environment}, working_directory=user / "work"
    )


def _key(folder: Path, key: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "admin.key").write_text(f"{key}\n")


def _settings(user: Path, text: str) -> None:
    path = user / ".config" / "baseload" / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_text(text)


def test_nothing_set_means_this_machine_and_no_key(user: Path) -> None:
    assert _load(user) == Configuration(DEFAULT_URL, None)


def test_keys_are_looked_for_from_the_nearest_on(user: Path) -> None:
    _key(user / ".baseload", "of-user")
    assert _load(user).key == "of-user"
    _settings(user, 'key = "of-settings"')
    assert _load(user).key == "of-settings"
    _key(user / "work" / ".baseload", "of-folder")
    assert _load(user).key == "of-folder"
    _key(user / "home", "of-home")
    home = str(user / "home")
    assert _load(user, BASELOAD_HOME=home).key == "of-home"
    assert _load(user, BASELOAD_HOME=home, BASELOAD_API_KEY="of-variable").key == "of-variable"


def test_a_key_that_lies_about_is_not_sent_to_another_machine(user: Path) -> None:
    _key(user / ".baseload", "of-user")
    _key(user / "work" / ".baseload", "of-folder")
    assert _load(user, BASELOAD_API="https://api.example.test").key is None


def test_an_address_without_scheme_is_plain_http(user: Path) -> None:
    assert _load(user, BASELOAD_API="127.0.0.1:9999").url == "http://127.0.0.1:9999"


def test_what_is_asked_for_beats_the_environment_and_that_the_settings(user: Path) -> None:
    _settings(user, 'url = "https://of-settings.test/"')
    assert _load(user).url == "https://of-settings.test"
    assert _load(user, BASELOAD_API="http://of-variable.test").url == "http://of-variable.test"
    asked = _load(user, "http://asked.test", BASELOAD_API="http://of-variable.test")
    assert asked.url == "http://asked.test"


def test_settings_that_cannot_be_read_are_named(user: Path) -> None:
    _settings(user, "url = ")
    with pytest.raises(ConfigurationError, match=r"config\.toml"):
        _load(user)


@pytest.mark.parametrize(
    ("url", "is_loopback"),
    [
        ("http://0.0.0.0:8700", True),
        ("http://127.0.0.1:1", True),
        ("http://localhost", True),
        ("http://[::1]:1", True),
        ("http://127.0.0.1.example.test", False),
        ("http://10.0.0.1", False),
    ],
)
def test_loopback_is_told_from_elsewhere(url: str, is_loopback: bool) -> None:
    assert Configuration(url).is_loopback is is_loopback


@pytest.mark.parametrize(
    ("url", "plain", "sent"),
    [
        ("http://127.0.0.1:8700", False, True),
        ("https://api.test", False, True),
        ("http://api.test", False, False),
        ("http://10.0.0.1", False, False),
        ("http://10.0.0.1", True, True),
    ],
)
def test_a_key_is_not_sent_unencrypted_to_another_machine(
    user: Path, url: str, plain: bool, sent: bool
) -> None:
    told = {"BASELOAD_ALLOW_PLAIN_HTTP": "1"} if plain else {}
    found = _load(user, url, BASELOAD_API_KEY="bl_1", **told)
    if sent:
        assert found.headers["Authorization"] == "Bearer bl_1"
    else:
        with pytest.raises(ConfigurationError, match="BASELOAD_ALLOW_PLAIN_HTTP=1"):
            _ = found.headers
