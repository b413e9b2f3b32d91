"""The virtual environment of one run, into which its own commands install what they like.

It lies in the run's folder, belongs to the run's account, and goes with the run. It copies nothing:
a `.pth` file leads to the shared environment of the job's packages and to one pip for all runs,
and both stay read-only. What a run installs comes before what it shares.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import time
from typing import Any

from ..folders import OWN_ENVIRONMENT, Folders, Run, take_lock
from ..host import file_tree
from ..host.interpreter import interpreter_for_jobs
from ..loading import load
from .environments import python_of

CONFIGURATION = """home = %s
include-system-site-packages = false
version = %s
"""
# The cache lies here, because the work folder of a service, which is its home, is saved.
PIP_CONFIGURATION = """[global]
cache-dir = %s
disable-pip-version-check = true
"""
# By an import, so that the `.pth` files of what is shared count as well.
PATHS = "import site; site.addsitedir(%r)\n"
PIP = "import sys\nfrom pip._internal.cli.main import main\nsys.exit(main())\n"
LONGEST_FIRST_LINE = 120
"""Of a script, in bytes; older kernels cut longer ones."""
MOST_SCRIPTS = 1000
MOST_SCRIPT_BYTES = 64 << 10
ASK_AGAIN_S = 3600.0
"""After this time a machine without a pip is inspected again."""
NO_PIP = "none"
"""The file that says that this machine has no pip."""


def make(folders: Folders, run: Run, spec: dict[str, Any]) -> None:
    """Make the environment of a run that is not started, on top of `packages_path` of its spec."""
    shared: str = spec["packages_path"]
    python, version = python_of(folders, shared)
    top = run.at(OWN_ENVIRONMENT)
    file_tree.remove(top)  # The rest of a staging that broke off.
    library = _library_of(shared)
    packages = os.path.join(top, library)
    scripts = os.path.join(top, "bin")
    os.makedirs(packages)
    os.mkdir(scripts)
    os.symlink("lib", os.path.join(top, "lib64"))
    _write(os.path.join(top, "pyvenv.cfg"), CONFIGURATION % (os.path.dirname(python), version))
    _write(os.path.join(top, "pip.conf"), PIP_CONFIGURATION % os.path.join(top, ".pip-cache"))
    names = {"python", "python3", os.path.basename(os.path.dirname(library))}
    for name in names:
        os.symlink(python, os.path.join(scripts, name))
    paths = PATHS % os.path.join(shared, library)
    pip = pip_folder(folders)
    if pip is not None:
        paths += pip + "\n"
        for name in ("pip", "pip3"):
            _write_script(os.path.join(scripts, name), os.path.join(scripts, "python"), PIP)
    _write(os.path.join(packages, "baseload.pth"), paths)
    _bring_scripts(shared, scripts)


def pip_folder(folders: Folders) -> str | None:
    """The folder that has pip and nothing else, made if it is missing; None: there is no pip."""
    python, version = interpreter_for_jobs(folders)
    key = hashlib.sha256(("%s\n%s" % (python, version)).encode()).hexdigest()[:16]
    path = os.path.join(folders.packages, "pip-" + key)
    if os.path.exists(os.path.join(path, "pip", "__init__.py")):
        return path
    with contextlib.suppress(OSError):
        if time.time() - os.stat(os.path.join(path, NO_PIP)).st_mtime < ASK_AGAIN_S:
            return None
    lock = take_lock(path + ".lock", wait=True)
    try:
        if not os.path.exists(os.path.join(path, "pip", "__init__.py")):
            load("packages.shared_pip:make")(python, path, NO_PIP)
    finally:
        os.close(lock or 0)
    return path if os.path.exists(os.path.join(path, "pip", "__init__.py")) else None


def _library_of(shared: str) -> str:
    """The folder of packages below an environment, such as `lib/python3.11/site-packages`."""
    for name in sorted(os.listdir(os.path.join(shared, "lib")), reverse=True):
        if name.startswith("python3."):
            return os.path.join("lib", name, "site-packages")
    return "lib/python3/site-packages"


def _bring_scripts(shared: str, scripts: str) -> None:
    """Bring the scripts of the shared environment, so that they find the run's packages as well."""
    theirs = os.path.join(shared, "bin")
    pythons = tuple(os.path.join(theirs, name).encode() for name in ("python3", "python"))
    for name in sorted(os.listdir(theirs))[:MOST_SCRIPTS]:
        content = _read_script(os.path.join(theirs, name))
        begin, newline, rest = content.partition(b"\n")
        if not newline or not begin.startswith(b"#!"):
            continue
        if begin == b"#!/bin/sh" and rest.startswith(b"'''exec'"):  # How a long path is written.
            begin, _, rest = rest.partition(b"\n' '''\n")
        if begin.strip(b"#! '\"").startswith(pythons) or any(one in begin for one in pythons):
            target = os.path.join(scripts, name)
            if not os.path.lexists(target):
                text = rest.decode(errors="surrogateescape")
                _write_script(target, os.path.join(scripts, "python"), text)


def _read_script(path: str) -> bytes:
    """A small plain file of the environment; empty where it is none, or a link to elsewhere."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return b""
    with open(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_size > MOST_SCRIPT_BYTES:
            return b""
        return file.read(MOST_SCRIPT_BYTES)


def _write_script(path: str, python: str, text: str) -> None:
    first = "#!%s\n" % python
    if len(first) > LONGEST_FIRST_LINE or " " in python:
        first = "#!/bin/sh\n'''exec' '%s' \"$0\" \"$@\"\n' '''\n" % python
    _write(path, first + text)
    os.chmod(path, 0o755)


def _write(path: str, text: str) -> None:
    with open(path, "x", errors="surrogateescape") as file:
        file.write(text)
