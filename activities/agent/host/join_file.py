"""The join file of this machine: the regions that its owner has let in, by running join.sh.

One line for each platform: the URL of its API, the region, the join token, and the file in which
join.sh has authorised the region's key. Only the account of this session, or root, may write the
join file. A file that others can write says nothing.
"""

from __future__ import annotations

import os
import stat
from typing import Any

from ..errors import RefusedError
from ..folders import Folders, default_root
from . import logins

OF_ROOT = "/etc/baseload/join"
NAME = "join"


def check_request(request: dict[str, Any]) -> None:
    """Check that the owner of this machine has let the request's region in.

    A host key is public, so another account may have added this machine as its own.
    Raises: RefusedError `not-joined`.
    """
    region_id, folders = str(request["region_id"]), Folders(request.get("root", ""))
    if not any(_is_of(line, region_id) for path in paths(folders) for line in _lines(path)):
        raise RefusedError(
            "not-joined",
            "the machine has not joined this region: run join.sh on it, with a join token of the "
            "region",
        )


def leave(region_id: str, folders: Folders, authorized_key: str) -> list[str]:
    """Undo join.sh: the machine has not joined this region any more, nor lets this key in.

    A repeat changes nothing. Open sessions go on.
    Returns: the changed files.
    """
    changed = []
    for path in paths(folders):
        lines = _lines(path)
        joined = [line for line in lines if _is_of(line, region_id)]
        for line in joined:
            words = line.rstrip("\n").split(" ", 3)
            if len(words) == 4 and _withdraw(words[3], authorized_key):
                changed.append(words[3])
        if joined:
            _rewrite(path, [line for line in lines if not _is_of(line, region_id)])
            changed.append(path)
    return changed


def _withdraw(path: str, authorized_key: str) -> bool:
    """Delete the lines with this key from a file of authorised keys."""
    blob = next(word for word in authorized_key.split() if word.startswith("AAAA"))
    path = os.path.realpath(path)
    try:
        with open(path) as file:
            lines = file.readlines()
    except OSError:
        return False
    kept = [line for line in lines if blob not in line.split()]
    if kept != lines:
        _rewrite(path, kept)
    return kept != lines


def _rewrite(path: str, lines: list[str]) -> None:
    logins.write(path, "".join(lines), stat.S_IMODE(os.stat(path).st_mode))


def _is_of(line: str, region_id: str) -> bool:
    return line.split()[1:2] == [region_id]


def paths(folders: Folders) -> list[str]:
    """Where the join files of this machine may be."""
    usual = OF_ROOT if os.geteuid() == 0 else os.path.join(default_root(), NAME)
    return list(dict.fromkeys((usual, os.path.join(folders.root, NAME))))


def _lines(path: str) -> list[str]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return []
    with os.fdopen(descriptor, errors="replace") as file:
        found = os.fstat(descriptor)
        is_ours = found.st_uid in (0, os.geteuid()) and not found.st_mode & 0o022
        return file.readlines() if stat.S_ISREG(found.st_mode) and is_ours else []
