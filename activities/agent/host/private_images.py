"""Repositories of images that were pulled by the login of a project.

<root>/images/by-login/<hash>   the name of a repository; its time of change is that of its last use

It is written before the pull, so that not even a power cut right after it leaves an image that
another project's run could take as it is here.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from hashlib import sha256

from ..folders import Folders, read_json, write_json


def mark(folders: Folders, image: str) -> None:
    """Note that images of this repository are private, also if the pull then fails."""
    path = _path(folders, image)
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    write_json(path, {"repository": repository_of(image)})


def is_marked(folders: Folders, image: str) -> bool:
    return os.path.exists(_path(folders, image))


def prune(folders: Folders, oldest: float, names: Callable[[], set[str]]) -> None:
    """Forget repositories without use since `oldest` of which no image is here.

    names: those of all images here; asked only where there is something to forget.
    """
    try:
        paths = [entry.path for entry in os.scandir(_folder(folders))]
    except FileNotFoundError:
        return
    unused = [path for path in paths if os.stat(path).st_mtime < oldest]
    here = {repository_of(name) for name in names()} if unused else set()
    for path in unused:
        if (read_json(path) or {}).get("repository") not in here:
            os.unlink(path)


def repository_of(image: str) -> str:
    """An image's name without tag and digest."""
    name = image.partition("@")[0]
    folder, slash, last = name.rpartition("/")
    return folder + slash + last.partition(":")[0]


def _folder(folders: Folders) -> str:
    return os.path.join(folders.root, "images", "by-login")


def _path(folders: Folders, image: str) -> str:
    return os.path.join(_folder(folders), sha256(repository_of(image).encode()).hexdigest())
