"""Environments of conda: which of its programs this machine has, and files that need none."""

from __future__ import annotations

import os
import re
import shutil

from ..host.spawn import DEFAULT_PATH

PROGRAMS = ("micromamba", "mamba", "conda")
META = "conda-meta"
PYTHON = re.compile(r"python\s*(?:=|==|>=)?\s*(?P<version>[0-9.]*)(?:\.\*|\*)?\Z")
PIP = re.compile(r"pip(\s*[=<>]+\s*[0-9.*]+)?\Z")
ITEM = re.compile(r"(?P<indent> *)- +(?P<text>.*)\Z")
COMMENT = re.compile(r"(^|\s)#.*$")
DEPENDENCIES = "dependencies"
IGNORED = ("name", "channels", "prefix")


def program() -> str | None:
    """The program that makes environments here; None: there is none."""
    path = "%s:%s" % (os.environ.get("PATH", ""), DEFAULT_PATH)
    return next(filter(None, (shutil.which(name, path=path) for name in PROGRAMS)), None)


def command(program: str, prefix: str, file: str) -> list[str]:
    """What installs the packages of a file into a folder that is an environment already."""
    if os.path.basename(program) == "micromamba":
        return [program, "install", "--yes", "--no-rc", "--prefix", prefix, "--file", file]
    return [program, "env", "update", "--quiet", "--prefix", prefix, "--file", file]


def version_of_python(prefix: str) -> str:
    """The version of the Python in an environment, as far as the names of its folders say it."""
    names = sorted(name for name in os.listdir(os.path.join(prefix, "lib")) if "python3." in name)
    return names[-1].replace("python", "", 1) if names else "3"


def only_pip(text: str, python: str) -> list[str] | None:
    """The requirements of a file that names Python and packages of pip alone; None: any other.

    python: the version that the node has, which is the one that is asked for.
    Only the usual way to write such a file is understood; whatever else it may say is for conda.
    """
    lines = (COMMENT.sub("", line).rstrip() for line in text.splitlines())
    reading = _Reading(python)
    for line in lines:
        if line and line != "---" and not reading.takes(line):
            return None
    return reading.found


class _Reading:
    """The reading of an environment.yml, line by line."""

    def __init__(self, python: str) -> None:
        self.python = python
        self.found: list[str] = []
        self._section = ""
        self._in_pip = False
        self._indent: int | None = None
        """That of the items of the section."""

    def takes(self, line: str) -> bool:
        """Take a line; whether it says nothing that needs conda."""
        if not line.startswith((" ", "-")):
            self._section, _, rest = line.partition(":")
            self._in_pip, self._indent = False, None
            return self._section in IGNORED or (self._section == DEPENDENCIES and not rest.strip())
        if self._section != DEPENDENCIES:
            return True
        item = ITEM.match(line)
        return item is not None and self._takes_item(len(item.group("indent")), item.group("text"))

    def _takes_item(self, indent: int, text: str) -> bool:
        word = text.strip().strip("'\"")
        self._indent = indent if self._indent is None else self._indent
        if indent > self._indent:
            self.found.append(word)
            return self._in_pip
        self._in_pip = word == "pip:"
        return self._in_pip or _is_there(word, self.python)


def _is_there(word: str, python: str) -> bool:
    """Whether a package of conda is one that each environment of this node has anyway."""
    asked = PYTHON.match(word)
    if asked is None:
        return PIP.match(word) is not None
    version = asked.group("version").rstrip(".")
    if ">=" in word:
        return _numbers(python) >= _numbers(version)
    return not version or (python + ".").startswith(version + ".")


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".") if part.isdigit()]
