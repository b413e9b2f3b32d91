"""The one pip of this machine that all runs share, read-only and apart from other packages.

It is the machine's own where it has one, else the one that Python brings for virtual environments.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
import subprocess
import time
import zipfile

from ..folders import Folders, take_lock
from ..host import file_tree
from ..host.interpreter import interpreter_for_jobs
from ..loading import load

ASK_AGAIN_S = 3600.0
"""After this time a machine without a pip is inspected again."""
NONE = "none"
FIND = """
import os
try:
    import pip
    print(os.path.dirname(os.path.dirname(pip.__file__)))
except ImportError:
    try:
        import ensurepip
        print(os.path.join(os.path.dirname(ensurepip.__file__), "_bundled"))
    except ImportError:
        print("")
"""
WHEELS = "/usr/share/python-wheels"


def folder(folders: Folders) -> str | None:
    """The folder that has pip and nothing else, made if it is missing; None: there is no pip."""
    python, version = interpreter_for_jobs(folders)
    key = hashlib.sha256(("%s\n%s" % (python, version)).encode()).hexdigest()[:16]
    path = os.path.join(folders.packages, "pip-" + key)
    if os.path.exists(os.path.join(path, "pip", "__init__.py")):
        return path
    with contextlib.suppress(OSError):
        if time.time() - os.stat(os.path.join(path, NONE)).st_mtime < ASK_AGAIN_S:
            return None
    lock = take_lock(path + ".lock", wait=True)
    try:
        if not os.path.exists(os.path.join(path, "pip", "__init__.py")):
            _make(python, path)
    finally:
        os.close(lock or 0)
    return path if os.path.exists(os.path.join(path, "pip", "__init__.py")) else None


def _make(python: str, path: str) -> None:
    part = path + ".part"
    file_tree.remove(part)
    os.mkdir(part)
    source = _find(python)
    wheels = sorted(glob.glob(os.path.join(source or WHEELS, "pip-*.whl")))
    wheels = wheels or sorted(glob.glob(os.path.join(WHEELS, "pip-*.whl")))
    if source and os.path.isdir(os.path.join(source, "pip")):
        names = ["pip", *(name for name in os.listdir(source) if _is_of_pip(name))]
        for name in names:
            os.symlink(os.path.join(source, name), os.path.join(part, name))
    elif wheels:
        with zipfile.ZipFile(wheels[-1]) as wheel:
            wheel.extractall(part)
        subprocess.run(
            [python, "-I", "-m", "compileall", "-q", part],
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    else:
        with open(os.path.join(part, NONE), "x"):
            pass
    os.chmod(part, 0o755)
    load("host.steps:sync")(part)
    file_tree.remove(path)
    os.rename(part, path)


def _is_of_pip(name: str) -> bool:
    return name.startswith("pip-") and name.endswith((".dist-info", ".egg-info"))


def _find(python: str) -> str:
    return (
        subprocess.run(
            [python, "-I", "-c", FIND], check=False, stdin=subprocess.DEVNULL, capture_output=True
        )
        .stdout.decode(errors="replace")
        .strip()
    )
