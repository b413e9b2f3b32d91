"""The Python for jobs. Asking an interpreter for its version takes as long as a small job."""

from __future__ import annotations

import os
import subprocess
import sys

from ..folders import Folders, read_json, write_json

CANDIDATES = ("/usr/bin/python3", sys.executable)
"""The system's own first, which every user of the node may run."""
KNOWN = "interpreter.json"


def interpreter_for_jobs(folders: Folders) -> tuple[str, str]:
    """The interpreter's path and version, read again only when an interpreter was replaced."""
    there = {path: _stamp(path) for path in CANDIDATES}
    note = os.path.join(folders.packages, KNOWN)
    known = read_json(note)
    if known is not None and known.get("candidates") == there:
        return known["python"], known["version"]
    python = _first_usable()
    version = _said(python, "import sys; print(sys.version)")
    write_json(note, {"candidates": there, "python": python, "version": version}, durable=False)
    return python, version


def _stamp(path: str) -> list[object]:
    """Changes when another interpreter is installed at that path."""
    try:
        found = os.stat(path)
    except OSError:
        return []
    return [os.path.realpath(path), found.st_mtime_ns, found.st_size]


def _first_usable() -> str:
    for candidate in CANDIDATES:
        path = os.path.realpath(candidate)
        test = "import sys, venv; print(sys.version_info >= (3, 8))"
        if os.access(path, os.X_OK) and _said(path, test, "-I") == "True\n":
            return path
    return sys.executable


def _said(python: str, program: str, *options: str) -> str:
    """The output of a Python program, empty if it fails; `options` may add site packages."""
    command = [python, *(options or ("-I", "-S")), "-c", program]
    return subprocess.run(
        command, check=False, stdin=subprocess.DEVNULL, capture_output=True
    ).stdout.decode()
