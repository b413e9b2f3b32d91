"""The one pip of this machine that all runs share, read-only and apart from other packages.

It is the machine's own where it has one, else the one that Python brings for virtual environments.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time

from ..folders import Folders, take_lock
from ..host.interpreter import interpreter_for_jobs
from ..loading import load

ASK_AGAIN_S = 3600.0
"""After this time a machine without a pip is inspected again."""
NONE = "none"
"""The file that says that this machine has no pip."""


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
            load("packages.pip_folder:make")(python, path, NONE)
    finally:
        os.close(lock or 0)
    return path if os.path.exists(os.path.join(path, "pip", "__init__.py")) else None
