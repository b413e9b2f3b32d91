"""The agent's modules unpacked and compiled beside its archive: each verb starts twice as fast.

Python keeps no compiled form of what it imports out of a zip. The archive's own first lines look
for this folder, see `activities/transport/agent_archive.py`.
"""

from __future__ import annotations

import compileall
import os
import shutil
import sys
import zipfile

from .folders import sync_folder, take_lock


def keep_compiled() -> None:
    """Make the folder for this interpreter, whole or not at all; silent where that cannot be."""
    archive = os.path.abspath(sys.argv[0])
    place = "%s.%s" % (archive, sys.implementation.cache_tag)
    if os.path.isdir(place) or not zipfile.is_zipfile(archive):
        return
    part = place + ".part"
    lock = None
    try:
        lock = take_lock(place + ".lock", wait=False)
        if lock is None or os.path.isdir(place):  # Another watch makes it, or has made it.
            return
        shutil.rmtree(part, ignore_errors=True)  # Of one that was cut off.
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(part)
        compileall.compile_dir(part, quiet=2)
        _sync(part)
        os.rename(part, place)
    except OSError:  # A full disk: the archive does as well.
        shutil.rmtree(part, ignore_errors=True)
    finally:
        if lock is not None:
            os.close(lock)


def _sync(path: str) -> None:
    """All of it survives a power cut: half a module would break every verb from then on."""
    for folder, _, names in os.walk(path):
        for name in names:
            descriptor = os.open(os.path.join(folder, name), os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        sync_folder(folder)
