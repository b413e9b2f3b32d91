"""What the file of `environment.requirements` asks for, read out of the job's code.

Everything that decides what will be installed is read here, before anything is built: files with
equal contents get one environment, which all runs share.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import stat
from typing import Any

from . import conda, toml_files
from .pip_lines import named_files, refused

MOST_FILE_BYTES = 16 << 20
MOST_FILES = 64
PIP, LOCK, UV, CONDA = "pip", "lock", "uv", "conda"
LOCKS = ("uv.lock", "pylock.toml")


class Requirements:
    """The files that say what is installed, by their names in the code, and how to read them.

    kind: `pip` (main is a file of pip's format), `lock` (the same, with everything named: nothing
    else may be installed), `uv` (a uv.lock beside a pyproject.toml) or `conda`.
    """

    def __init__(self, kind: str, main: str, files: dict[str, bytes]) -> None:
        self.kind = kind
        self.main = main
        self.files = files

    def key(self) -> list[str]:
        """Lines that are equal for equal contents alone."""
        hashes = [
            "%s %s" % (hashlib.sha256(content).hexdigest(), name)
            for name, content in sorted(self.files.items())
        ]
        return ["requirements", self.kind, self.main, *hashes]


def read(code: str, name: str, python: str, has_conda: bool) -> Requirements:
    """What a file of the code asks for.

    code: the folder of the unpacked code. python: the version of the node's Python.
    has_conda: whether a program of conda can be used here.
    Raises: RefusedError `requirements`.
    """
    reader = _Reader(code)
    name = posixpath.normpath(name)
    base = posixpath.basename(name)
    content = reader.read(name)
    if base.endswith((".yml", ".yaml")):
        return _conda(reader, name, content, python, has_conda)
    if base == "pyproject.toml":
        beside = [posixpath.join(posixpath.dirname(name), lock) for lock in LOCKS]
        lock = next((one for one in beside if reader.has(one)), None)
        if lock is None:
            return _pip(reader, name, toml_files.dependencies(_toml(name, content), name))
        return read(code, lock, python, has_conda)
    if base == "uv.lock":
        reader.read(posixpath.join(posixpath.dirname(name), "pyproject.toml"))
        return Requirements(UV, name, reader.files)
    if base.startswith("pylock.") and base.endswith(".toml"):
        lines = toml_files.locked(_toml(name, content), name)
        return Requirements(LOCK, name + ".txt", {name + ".txt": _text(lines)})
    reader.follow(name)
    return Requirements(PIP, name, reader.files)


def _toml(name: str, content: bytes) -> dict[str, Any]:
    return toml_files.parse(name, content.decode(errors="replace"))


def _pip(reader: _Reader, name: str, lines: list[str]) -> Requirements:
    """Requirements of lines that were found in a file of another format."""
    main = name + ".txt"
    reader.files = {main: _text(lines)}
    reader.follow(main, name)
    return Requirements(PIP, main, reader.files)


def _text(lines: list[str]) -> bytes:
    return "".join(line + "\n" for line in lines).encode()


def _conda(
    reader: _Reader, name: str, content: bytes, python: str, has_conda: bool
) -> Requirements:
    lines = conda.only_pip(content.decode(errors="replace"), python)
    if lines is not None:
        return _pip(reader, name, lines)
    if not has_conda:
        raise refused(
            "%s names packages of conda, or another Python than %s, and this node has none of %s "
            "on its PATH: install one there, bring an image that has the packages "
            "(environment.image), or name packages of PyPI in a requirements.txt"
            % (name, python, ", ".join(conda.PROGRAMS))
        )
    return Requirements(CONDA, name, reader.files)


class _Reader:
    """The files of the code that were read."""

    def __init__(self, code: str) -> None:
        self.code = os.path.realpath(code)
        self.files: dict[str, bytes] = {}
        self.bytes = 0
        """Of all files together."""

    def has(self, name: str) -> bool:
        return os.path.isfile(os.path.join(self.code, name))

    def read(self, name: str) -> bytes:
        """Read a file, once. Raises: RefusedError `requirements`."""
        if name in self.files:
            return self.files[name]
        if len(self.files) >= MOST_FILES:
            raise refused("%s: names more than %d files" % (name, MOST_FILES))
        path = os.path.realpath(os.path.join(self.code, name))
        is_named_inside = posixpath.normpath(name) == name and not name.startswith(("/", ".."))
        if not is_named_inside or not path.startswith(self.code + os.sep):
            raise refused("%s: is not inside the code" % name)
        try:
            with open(path, "rb") as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise refused("%s: is no file of the code" % name)
                content = file.read(MOST_FILE_BYTES - self.bytes + 1)
        except OSError as error:
            words = "%s: there is no such file in the code (%s)"
            raise refused(words % (name, error.strerror)) from error
        self.bytes += len(content)
        if self.bytes > MOST_FILE_BYTES:
            words = "%s: has more than %d MiB, with all files that are read before it"
            raise refused(words % (name, MOST_FILE_BYTES >> 20))
        self.files[name] = content
        return content

    def follow(self, name: str, shown: str | None = None) -> None:
        """Read all files that a file of pip's format names. Raises: RefusedError.

        shown: the file of the code out of which this one was made, if it was made.
        """
        waiting, seen = [name], set()
        while waiting:
            one = waiting.pop()
            if one in seen:
                continue
            seen.add(one)
            content = self.read(one)
            for named, place in named_files(one, content, shown if one == name else None):
                if not self.has(named):
                    words = "%s: %s: there is no such file in the code"
                    raise refused(words % (place, named))
                waiting.append(named)
