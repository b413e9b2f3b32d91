"""The unpacked uploads of a node, each under its hash: taken for runs, forgotten when unused.

Both happen under the lock under which `code_archive.py` unpacks, so that what has been taken stays.
"""

from __future__ import annotations

import os

from ..folders import SHA256, Folders, take_lock
from ..host import file_tree


def take(folders: Folders, sha256: str) -> str | None:
    """The folder of an unpacked upload, which counts as used just now; None: it is not here.

    Raises: RefusedError `bad-hash`.
    """
    path = folders.code_of(sha256)
    if not os.path.isdir(path):
        return None
    lock = take_lock(path + ".lock", wait=True)
    try:
        if not os.path.isdir(path):  # It has been forgotten meanwhile.
            return None
        os.utime(path)
        return path
    finally:
        os.close(lock or 0)


def forget(folders: Folders, name: str, oldest: float) -> bool:
    """Remove an unpacked upload that nobody has taken since `oldest`; whether it is gone."""
    path = os.path.join(folders.code, name)
    if not os.path.isdir(path) or os.stat(path).st_mtime >= oldest:
        return False
    aside = path
    if SHA256.match(name):  # Else it is what an interrupted unpacking or removal has left.
        lock = take_lock(path + ".lock", wait=False)
        if lock is None:
            return False
        try:
            if os.stat(path).st_mtime >= oldest:  # Somebody has taken it meanwhile.
                return False
            aside = os.path.join(folders.code, ".part-" + os.urandom(8).hex())
            os.rename(path, aside)
        finally:
            os.close(lock)
    file_tree.remove(aside)
    return True
