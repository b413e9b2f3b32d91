"""The join file of this machine: the regions that its owner has let in, by running join.sh.

One line for each platform: the URL of its API, the region, and the join token. Only the account of
this session, or root, may write the file. A file that others can write says nothing.
"""

from __future__ import annotations

import os
import stat
from typing import Any

from ..errors import RefusedError
from ..folders import Folders, default_root

OF_ROOT = "/etc/baseload/join"
NAME = "join"


def check_request(request: dict[str, Any]) -> None:
    """Check that the owner of this machine has let the request's region in.

    A host key is public, so another account may have added this machine as its own.
    Raises: RefusedError `not-joined`.
    """
    region_id, folders = str(request["region_id"]), Folders(request.get("root", ""))
    if not any(region_id in _regions(path) for path in _paths(folders)):
        raise RefusedError(
            "not-joined",
            "the machine has not joined this region: run join.sh on it, with a join token of the "
            "region",
        )


def _paths(folders: Folders) -> list[str]:
    usual = OF_ROOT if os.geteuid() == 0 else os.path.join(default_root(), NAME)
    return list(dict.fromkeys((usual, os.path.join(folders.root, NAME))))


def _regions(path: str) -> set[str]:
    return {words[1] for words in map(str.split, _lines(path)) if len(words) > 1}


def _lines(path: str) -> list[str]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return []
    with os.fdopen(descriptor, errors="replace") as file:
        found = os.fstat(descriptor)
        is_ours = found.st_uid in (0, os.geteuid()) and not found.st_mode & 0o022
        return file.readlines() if stat.S_ISREG(found.st_mode) and is_ours else []
