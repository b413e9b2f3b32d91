"""What a `pyproject.toml` or a `pylock.toml` asks for, in lines of pip's format."""

from __future__ import annotations

import importlib
import re
from typing import Any

from ..errors import RefusedError

NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?\Z")
VERSION = re.compile(r"[A-Za-z0-9.!+_-]+\Z")
HASH = re.compile(r"[0-9a-f]{32,128}\Z")
MOST_DOTS = 200
"""Of what may be one key; the time to read a key grows by the square of its parts."""
GROUPS = re.compile(r"\b(extras|dependency_groups)\b")


def parse(name: str, text: str) -> dict[str, Any]:
    """A TOML document. Raises: RefusedError `requirements`."""
    try:
        module = importlib.import_module("tomllib")
    except ImportError as error:
        words = "needs Python 3.11 on the node; a requirements.txt does not"
        raise _refused(name, words) from error
    if any(part.count(".") > MOST_DOTS for line in text.split("\n") for part in line.split("=")):
        raise _refused(name, "has a line with more than %d dots" % MOST_DOTS)
    try:
        document: dict[str, Any] = module.loads(text)
    except (ValueError, RecursionError) as error:
        raise _refused(name, "is not TOML: %s" % error) from error
    return document


def dependencies(document: dict[str, Any], name: str) -> list[str]:
    """The dependencies of a project, without its extras. Raises: RefusedError."""
    project = document.get("project")
    if not isinstance(project, dict):
        raise _refused(name, "has no table [project] with dependencies")
    if "dependencies" in (project.get("dynamic") or []):
        raise _refused(
            name, "its dependencies are dynamic: write a lock, or `pip install .` as setup"
        )
    lines = project.get("dependencies", [])
    if not isinstance(lines, list) or not all(_is_line(one) for one in lines):
        raise _refused(name, "project.dependencies is not a list of requirements")
    return list(lines)


def locked(document: dict[str, Any], name: str) -> list[str]:
    """The packages of a lock (PEP 751), each with version, marker and hashes of its files.

    Raises: RefusedError.
    """
    if not str(document.get("lock-version", "")).startswith("1."):
        raise _refused(name, "is not a lock of version 1")
    packages = document.get("packages", [])
    if not isinstance(packages, list):
        raise _refused(name, "has no list of packages")
    return [_line_of(package, name) for package in packages if not _is_optional(package)]


def _is_optional(package: Any) -> bool:
    """Whether a package belongs to an extra or a group, which are not installed."""
    return isinstance(package, dict) and bool(GROUPS.search(str(package.get("marker", ""))))


def _line_of(package: Any, name: str) -> str:
    if not isinstance(package, dict):
        raise _refused(name, "has a package that is no table")
    own, version = str(package.get("name", "")), str(package.get("version", ""))
    hashes = sorted({"%s:%s" % pair for file in _files(package) for pair in _hashes(file)})
    if not NAME.match(own) or not VERSION.match(version) or not hashes:
        raise _refused(
            name, "%s has no version with hashes; only packages of an index can be used" % own
        )
    marker = str(package.get("marker", ""))
    line = "%s==%s" % (own, version) + (" ; %s" % marker if marker else "")
    if not _is_line(line):
        raise _refused(name, "%s has a marker that is no line" % own)
    return " ".join([line, *("--hash=%s" % one for one in hashes)])


def _files(package: dict[str, Any]) -> list[Any]:
    wheels = package.get("wheels") or []
    sdist = package.get("sdist")
    return [*(wheels if isinstance(wheels, list) else []), *([sdist] if sdist else [])]


def _hashes(file: Any) -> list[tuple[str, str]]:
    hashes = file.get("hashes") if isinstance(file, dict) else None
    found = hashes.items() if isinstance(hashes, dict) else []
    known = ("sha256", "sha384", "sha512")
    return [(kind, value) for kind, value in found if kind in known and HASH.match(str(value))]


def _is_line(text: Any) -> bool:
    return isinstance(text, str) and text.isprintable() and not text.startswith("-")


def _refused(name: str, words: str) -> RefusedError:
    return RefusedError("requirements", "environment.requirements: %s: %s" % (name, words))
