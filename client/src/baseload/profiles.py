"""Profiles: addresses and keys of APIs under names, in a file that only its owner may read."""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from baseload.errors import ConfigurationError

FILE = "profiles.json"
DEFAULT = "default"
VARIABLE = "BASELOAD_PROFILE"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class Profile:
    """The address and the key of one API; `allow_plain_http` as in `Configuration`."""

    url: str
    key: str = field(repr=False)
    allow_plain_http: bool = False


@dataclass(frozen=True)
class Profiles:
    """All profiles of a person, and the name of the one that is used where none is asked for."""

    by_name: Mapping[str, Profile] = field(default_factory=dict)
    current: str | None = None

    def named(self, name: str) -> Profile:
        """Raises: ConfigurationError, when there is no profile of this name."""
        found = self.by_name.get(name)
        if found is None:
            known = ", ".join(sorted(self.by_name)) or "none"
            raise ConfigurationError(
                f"no profile is called {name}; there are: {known}. Make it: "
                f"baseload login --profile {name}"
            )
        return found

    def with_profile(self, name: str, profile: Profile) -> Profiles:
        """The profiles with this one, which is the current one from now on."""
        return Profiles({**self.by_name, name: profile}, name)

    def used(self, name: str) -> Profiles:
        """Raises: ConfigurationError, when there is no profile of this name."""
        self.named(name)
        return replace(self, current=name)

    def without(self, name: str) -> Profiles:
        """Raises: ConfigurationError, when there is no profile of this name."""
        self.named(name)
        rest = {each: profile for each, profile in self.by_name.items() if each != name}
        return Profiles(rest, None if self.current == name else self.current)


def is_profile_name(name: str) -> bool:
    """Whether a profile may have this name."""
    return _NAME.fullmatch(name) is not None


def read_profiles(folder: Path) -> Profiles:
    """The profiles in this folder; none, when there is no file.

    Raises: ConfigurationError, when the file cannot be read, or others may read it.
    """
    path = folder / FILE
    try:
        if path.stat().st_mode & 0o077:
            raise ConfigurationError(f"{path}: others may read these keys: chmod 600 {path}")
        found = json.loads(path.read_text())
        by_name = {name: Profile(**profile) for name, profile in found["profiles"].items()}
        return Profiles(by_name, found["current"])
    except FileNotFoundError:
        return Profiles()
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as cause:
        raise ConfigurationError(f"{path}: is no file of profiles: {cause}") from cause


def write_profiles(folder: Path, profiles: Profiles) -> Path:
    """Replace the file of profiles as a whole; nobody but its owner may read it.

    Raises: ConfigurationError, when it cannot be written.
    """
    path = folder / FILE
    document = {
        "current": profiles.current,
        "profiles": {name: vars(profile) for name, profile in sorted(profiles.by_name.items())},
    }
    part = ""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        number, part = tempfile.mkstemp(dir=folder, prefix=f".{FILE}.")  # with mode 0600
        with os.fdopen(number, "w") as file:
            json.dump(document, file, indent=2)
        Path(part).replace(path)
    except OSError as cause:
        with contextlib.suppress(OSError):
            Path(part).unlink()
        raise ConfigurationError(f"{path}: {cause.strerror or cause}") from cause
    return path
