"""The agent's modules unpacked and compiled beside its archive: each verb starts twice as fast.

Python keeps no compiled form of what it imports out of a zip. The archive's own first lines look
for this folder, see `activities/transport/agent_archive.py`.
"""

from __future__ import annotations

import compileall
import os
import shutil
import sys
import tempfile
import zipfile


def keep_compiled() -> None:
    """Make the folder for this interpreter, whole or not at all; silent where that cannot be."""
    archive = os.path.abspath(sys.argv[0])
    place = "%s.%s" % (archive, sys.implementation.cache_tag)
    if os.path.isdir(place) or not zipfile.is_zipfile(archive):
        return
    part = ""
    try:
        part = tempfile.mkdtemp(prefix="part-", dir=os.path.dirname(archive))
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(part)
        compileall.compile_dir(part, quiet=2)
        os.rename(part, place)
    except OSError:  # A full disk, or another watch was first: the archive does as well.
        shutil.rmtree(part, ignore_errors=True)
