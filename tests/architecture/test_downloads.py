"""What set-up installs has a hash in `uv.lock`, what builds our client too."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
EDITABLE = "editables"
"""What hatchling asks for beside itself, to install a package where its sources are."""


def _toml(name: str) -> dict[str, Any]:
    return tomllib.loads((ROOT / name).read_text())


def _names(requirements: list[str]) -> set[str]:
    return {re.split(r"[^A-Za-z0-9_.-]", each, maxsplit=1)[0] for each in requirements}


def _locked() -> dict[str, dict[str, Any]]:
    return {package["name"]: package for package in _toml("uv.lock")["package"]}


def test_every_file_of_the_lock_has_a_hash() -> None:
    bare = [
        f"{package['name']}: {file.get('url')}"
        for package in _locked().values()
        for file in [*package.get("wheels", []), *filter(None, [package.get("sdist")])]
        if not re.fullmatch(r"sha256:[0-9a-f]{64}", file.get("hash", ""))
    ]
    assert not bare, "\n".join(bare)


def test_nothing_of_the_lock_is_built_but_our_client() -> None:
    built = {name for name, package in _locked().items() if not package.get("wheels")}
    assert built == {"baseload", "baseload-control-plane"}


def test_what_builds_the_client_is_in_the_lock_and_nothing_else_is_fetched_for_it() -> None:
    ours = _toml("pyproject.toml")
    asked = {*_names(_toml("client/pyproject.toml")["build-system"]["requires"]), EDITABLE}
    assert _names(ours["dependency-groups"]["build"]) == asked
    assert ours["tool"]["uv"]["no-build-isolation-package"] == ["baseload"]
    assert "build" in ours["tool"]["uv"]["default-groups"]
    locked, wanted = _locked(), sorted(asked)
    for name in wanted:  # it grows by what each of them needs
        assert name in locked, f"uv.lock has no {name}"
        wanted += [each["name"] for each in locked[name].get("dependencies", [])]
