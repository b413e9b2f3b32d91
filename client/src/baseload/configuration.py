"""The address of the API and its key, from the environment, a home folder or a settings file."""

from __future__ import annotations

import ipaddress
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from baseload.errors import ConfigurationError
from baseload.profiles import VARIABLE, Profile, Profiles, read_profiles

DEFAULT_URL = "http://127.0.0.1:8700"
KEY_FILE = "admin.key"
PLACES = ("BASELOAD_API", "BASELOAD_API_KEY", "BASELOAD_HOME")
"""The variables that say where the API is or who calls it, and so beat the current profile."""
PLAIN_HTTP = "BASELOAD_ALLOW_PLAIN_HTTP"


@dataclass(frozen=True)
class Configuration:
    """The address and key of an API; `account_id` is an account that an administrator acts for."""

    url: str = DEFAULT_URL
    key: str | None = None
    account_id: str | None = None
    allow_plain_http: bool = False
    """Whether the key may be sent unencrypted to another machine, as in a network of one's own."""

    @property
    def is_loopback(self) -> bool:
        """Whether the API is on this machine, so that no proxy is used."""
        host = urlsplit(self.url).hostname or ""
        if host == "localhost":
            return True
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return False
        # An API that listens at 0.0.0.0 is reached at that address on its own machine alone.
        return address.is_loopback or address.is_unspecified

    @property
    def headers(self) -> dict[str, str]:
        """The headers of every request.

        Raises: ConfigurationError, when the key would be sent to another machine unencrypted.
        """
        headers = {"Accept": "application/json"}
        if self.key:
            self._check_encryption()
            headers["Authorization"] = f"Bearer {self.key}"
        if self.account_id:
            headers["X-Baseload-Account"] = self.account_id
        return headers

    def _check_encryption(self) -> None:
        if self.is_loopback or self.allow_plain_http or urlsplit(self.url).scheme == "https":
            return
        raise ConfigurationError(
            f"{self.url}: the key is not sent over plain HTTP to another machine; use https, or "
            f"set {PLAIN_HTTP}=1 where nobody else can listen"
        )


def load_configuration(
    url: str | None = None,
    *,
    account_id: str | None = None,
    profile: str | None = None,
    environment: Mapping[str, str] | None = None,
    working_directory: Path | None = None,
) -> Configuration:
    """The configuration from `url`, else the environment, the settings file, or this machine.

    A profile that is asked for, by `profile` or `$BASELOAD_PROFILE`, gives the address and the key;
    so does the current profile, where neither `url` nor a variable gives one of them.
    Else the key is `$BASELOAD_API_KEY`, else `admin.key` in `$BASELOAD_HOME`, else in `.baseload/`
    of the working directory, else the settings file's, else `~/.baseload/admin.key`. A key that
    neither a variable nor the settings file names is an administrator's key, so it is sent only
    to an API on this machine.
    Raises: ConfigurationError, when a file exists and cannot be used, no profile has the name, or a
    profile is asked for together with another address, to which its key is not sent.
    """
    found = os.environ if environment is None else environment
    chosen = _profile(profile or found.get(VARIABLE), url, found)
    if chosen is not None:
        plain = found.get(PLAIN_HTTP) == "1" or chosen.allow_plain_http
        return Configuration(with_scheme(chosen.url), chosen.key, account_id, plain)
    settings = _settings(found)
    address = url or found.get("BASELOAD_API") or settings.get("url") or DEFAULT_URL
    unsigned = Configuration(with_scheme(str(address)), account_id=account_id)
    key = found.get("BASELOAD_API_KEY") or _key_of_home(found)
    if not key and unsigned.is_loopback:
        key = _key_in((working_directory or Path.cwd()) / ".baseload")
    key = key or settings.get("key")
    if not key and unsigned.is_loopback:
        key = _key_in(_user_folder(found) / ".baseload")
    plain = found.get(PLAIN_HTTP) == "1" or settings.get("allow_plain_http") is True
    return Configuration(unsigned.url, str(key) if key else None, account_id, plain)


def beaten_by(profile: str, environment: Mapping[str, str] | None = None) -> str:
    """What is added where variables beat the profile that is in use from now on; else nothing."""
    found = os.environ if environment is None else environment
    if found.get(VARIABLE) == profile:
        return ""
    given = [VARIABLE] if found.get(VARIABLE) else [each for each in PLACES if found.get(each)]
    return f"; in this shell it is beaten by {' and '.join(given)}: unset that" if given else ""


def settings_folder(environment: Mapping[str, str] | None = None) -> Path:
    """The folder of the settings file and of the profiles: `~/.config/baseload`."""
    found = os.environ if environment is None else environment
    base = found.get("XDG_CONFIG_HOME")
    return (Path(base) if base else _user_folder(found) / ".config") / "baseload"


def load_profiles(environment: Mapping[str, str] | None = None) -> Profiles:
    """The profiles of this person. Raises: ConfigurationError, see `read_profiles`."""
    return read_profiles(settings_folder(environment))


def _profile(asked: str | None, url: str | None, environment: Mapping[str, str]) -> Profile | None:
    """The profile that was asked for, else the current one, unless something names a place."""
    if asked:
        found = load_profiles(environment).named(asked)
        if url and with_scheme(url) != with_scheme(found.url):
            raise ConfigurationError(
                f"profile {asked}: its key is for {found.url} alone; say --api or --profile"
            )
        return found
    if url or any(environment.get(name) for name in PLACES):
        return None
    profiles = load_profiles(environment)
    return profiles.named(profiles.current) if profiles.current else None


def with_scheme(address: str) -> str:
    """An address with plain HTTP where it has no scheme."""
    return (address if "://" in address else f"http://{address}").rstrip("/")


def _user_folder(environment: Mapping[str, str]) -> Path:
    return Path(environment["HOME"]) if environment.get("HOME") else Path.home()


def _settings(environment: Mapping[str, str]) -> dict[str, Any]:
    path = settings_folder(environment) / "config.toml"
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as cause:
        raise ConfigurationError(f"settings file {path}: {cause}") from cause


def _key_of_home(environment: Mapping[str, str]) -> str | None:
    home = environment.get("BASELOAD_HOME")
    return _key_in(Path(home)) if home else None


def _key_in(folder: Path) -> str | None:
    path = folder / KEY_FILE
    try:
        return path.read_text().strip() or None
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as cause:
        raise ConfigurationError(f"key file {path}: {cause.strerror or cause}") from cause
