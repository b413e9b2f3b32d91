"""The files of a folder that no upload has: by fixed rules, `.gitignore` and `.baseloadignore`.

The rules are those of git: a later one wins, `!` takes something in again, and what lies in a
folder that is left out stays out. `.baseloadignore` comes last, so it may take in again what a
`.gitignore` leaves out; what is always left out stays out.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from baseload.errors import BaseloadError

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

IGNORE_FILE = ".baseloadignore"
GIT_IGNORE_FILE = ".gitignore"
ALWAYS = "always"
ALWAYS_IGNORED = (
    ".git", ".hg", ".svn", ".venv", "__pycache__", "*.pyc", ".mypy_cache", ".pytest_cache",
    ".ruff_cache", ".ipynb_checkpoints", "node_modules", ".DS_Store", ".baseload", IGNORE_FILE,
)  # fmt: skip


class IgnoreFileError(BaseloadError):
    """An ignore file cannot be read, or has a line that is no pattern."""


@dataclass(frozen=True)
class _Rules:
    """The patterns of one file, for the paths below one folder."""

    source: str
    """The file that has them, for people."""
    prefix: str
    """The folder of the file from the packed folder, with a `/` at its end; empty: that folder."""
    spec: GitIgnoreSpec
    above: str = ""
    """The packed folder from the folder of a file above it, with a `/` at its end."""

    def verdict(self, path: str) -> bool | None:
        """True: left out; False: taken in again; None: no pattern matches."""
        return self.spec.check_file(self.above + path[len(self.prefix) :]).include


class IgnoreRules:
    """The rules for one folder that is packed; `enter` each folder inside before its files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._always = _spec(ALWAYS_IGNORED)
        self._levels = _rules_above(folder)
        self._last = _rules_in(folder / IGNORE_FILE, IGNORE_FILE, "")

    def enter(self, prefix: str) -> None:
        """Read the `.gitignore` of a folder; prefix: its path with a `/` at its end, or empty."""
        self._levels = [level for level in self._levels if prefix.startswith(level.prefix)]
        name = f"{prefix}{GIT_IGNORE_FILE}"
        found = _rules_in(self._folder / name, name, prefix)
        if found is not None:
            self._levels.append(found)

    def left_out_by(self, path: str, *, is_folder: bool) -> str | None:
        """The file whose rule leaves out this path, `always`, or None; path: with `/`."""
        path = f"{path}/" if is_folder else path
        if self._always.check_file(path).include:
            return ALWAYS
        decided: str | None = None
        for level in (*self._levels, *((self._last,) if self._last else ())):
            if not path.startswith(level.prefix):
                continue
            verdict = level.verdict(path)
            if verdict is not None:
                decided = level.source if verdict else None
        return decided


def _rules_above(folder: Path) -> list[_Rules]:
    """The rules of the folders above, as far as the git repository that the folder is in.

    A file that leaves out the folder itself has nothing to say of what is in it.
    """
    above: list[_Rules] = []
    for parent in folder.parents if not (folder / ".git").exists() else ():
        inside = f"{folder.relative_to(parent).as_posix()}/"
        path = parent / GIT_IGNORE_FILE
        found = _rules_in(path, str(path), "", inside)
        if found is not None and not found.verdict(""):
            above = [found, *above]
        if (parent / ".git").exists():
            return above
    return []


def _rules_in(path: Path, source: str, prefix: str, above: str = "") -> _Rules | None:
    if not path.is_file():
        return None
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as cause:
        raise IgnoreFileError(f"{path}: {getattr(cause, 'strerror', cause)}") from cause
    try:
        return _Rules(source, prefix, _spec(lines), above)
    except ValueError as cause:
        raise IgnoreFileError(f"{path}: {cause}") from cause


def _spec(lines: list[str] | tuple[str, ...]) -> GitIgnoreSpec:
    from pathspec import GitIgnoreSpec

    return GitIgnoreSpec.from_lines(lines)
