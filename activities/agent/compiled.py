"""The agent's modules, unpacked and compiled beside its archive: each verb starts twice as fast.

Python keeps no compiled form of modules in a zip archive. The first lines of the archive use this
folder if it exists, see `activities/transport/agent_archive.py`.
"""

from __future__ import annotations

import compileall
import os
import shutil
import sys
import zipfile

from .folders import sync_folder, take_lock


def keep_compiled() -> None:
    """Make the folder for this interpreter, whole or not at all; silent when this fails."""
    archive = os.path.abspath(sys.argv[0])
    target = "%s.%s" % (archive, sys.implementation.cache_tag)
    if os.path.isdir(target) or not zipfile.is_zipfile(archive):
        return
    part = target + ".part"
    lock = None
    try:
        lock = take_lock(target + ".lock", wait=False)
        if lock is None or os.path.isdir(target):  # Another watch makes it, or has made it.
            return
        shutil.rmtree(part, ignore_errors=True)  # The rest of an interrupted attempt.
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(part)
        compileall.compile_dir(part, quiet=2)
        _sync(part)
        os.rename(part, target)
    except OSError:  # A full disk: the agent also runs from the archive.
        shutil.rmtree(part, ignore_errors=True)
    finally:
        if lock is not None:
            os.close(lock)


def _sync(path: str) -> None:
    """Make all files survive a power cut, because half a module would break every later verb."""
    for folder, _, names in os.walk(path):
        for name in names:
            descriptor = os.open(os.path.join(folder, name), os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        sync_folder(folder)
