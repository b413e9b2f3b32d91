"""Trees of files that a job has made: walked, measured and removed whatever their depth or names.

Everything is opened by descriptors, so that neither a link that replaces a folder leads out of the
tree, nor a path is too long. Nothing recurses, and few descriptors are open at a time.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import stat
from collections.abc import Iterator

KEPT_OPEN = 32
"""How many folders from the top stay open; below, a folder's parent is opened by `..`."""
BATCH = 1000
MOST_LINKED = 100_000
"""How many files with several names are remembered; each name of further ones counts."""
WRITABLE_BY_OTHERS = 0o022
OPEN_TO_OTHERS = 0o077
TRIES = 3
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Descent:
    """The way from the top of a tree to the folder that is open now."""

    def __init__(self, top: str, at: int | None = None) -> None:
        self.parts: list[str] = []
        """The names from the top to the open folder."""
        self._opened: list[int] = [os.open(top, _FLAGS, dir_fd=at)]
        self._below = -1
        self._identities = [_identity(self._opened[0])]

    @property
    def descriptor(self) -> int:
        """The descriptor of the open folder."""
        return self._opened[-1] if self._below < 0 else self._below

    def enter(self, name: str) -> bool:
        """Go into a folder of the open one; return False when it is gone or closed to us."""
        try:
            inner = os.open(name, _FLAGS, dir_fd=self.descriptor)
        except OSError:
            return False
        if len(self._identities) < KEPT_OPEN:
            self._opened.append(inner)
        else:
            if self._below >= 0:
                os.close(self._below)
            self._below = inner
        self._identities.append(_identity(inner))
        self.parts.append(name)
        return True

    def leave(self) -> str | None:
        """Go back to the parent; return the name of the folder that was left, None at the top.

        Raises: OSError `ESTALE`, when the folder was moved elsewhere meanwhile.
        """
        self._identities.pop()
        if not self._identities:
            return None
        if self._below < 0:
            os.close(self._opened.pop())
        else:
            self._leave_below()
        return self.parts.pop()

    def _leave_below(self) -> None:
        inner, self._below = self._below, -1
        try:
            if len(self._identities) <= KEPT_OPEN:
                return
            self._below = os.open("..", _FLAGS, dir_fd=inner)
            if _identity(self._below) != self._identities[-1]:
                raise OSError(errno.ESTALE, "a folder was moved meanwhile")
        finally:
            os.close(inner)

    def close(self) -> None:
        """Close what is open."""
        for descriptor in (*self._opened, self._below):
            if descriptor >= 0:
                os.close(descriptor)
        self._opened, self._below = [], -1


def _identity(descriptor: int) -> tuple[int, int]:
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino


class Folder:
    """One folder of a walk, open at `descriptor` until the next one is asked for.

    folders: the names of its folders; those that the caller takes away are not entered.
    names: all other names.
    """

    def __init__(self, descent: Descent) -> None:
        self._descent = descent
        self.descriptor = descent.descriptor
        self.depth = len(descent.parts)
        self.folders: list[str] = []
        self.names: list[str] = []
        for entry in _entries(self.descriptor):
            (self.folders if entry.is_dir(follow_symlinks=False) else self.names).append(entry.name)

    def path(self) -> str:
        """The path from the top, empty for the top itself."""
        return "/".join(self._descent.parts)


def walk(top: str, at: int | None = None) -> Iterator[Folder]:
    """Every folder of a tree, each before those in it; folders that cannot be opened are left out.

    at: the open folder that `top` is relative to.
    Raises: OSError, when the top cannot be opened, or a folder was moved meanwhile.
    """
    descent = Descent(top, at)
    try:
        folder = Folder(descent)
        yield folder
        waiting = [folder.folders[::-1]]
        while waiting:
            if not waiting[-1]:
                waiting.pop()
                descent.leave()
            elif descent.enter(waiting[-1].pop()):
                folder = Folder(descent)
                yield folder
                waiting.append(folder.folders[::-1])
    finally:
        descent.close()


def measuring(top: str, step: int) -> Iterator[int | None]:
    """The bytes allocated below `top`: None after each `step` entries, and at last the sum.

    A file with several names counts once. When folders are moved while they are measured, the
    largest of several sums is told. Raises: OSError, when the top cannot be opened.
    """
    most = 0
    for _ in range(TRIES):
        measure = _Measure()
        try:
            yield from measure.advance(top, step)
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
            most = max(most, measure.total)
            continue
        yield max(most, measure.total)
        return
    yield most


class _Measure:
    def __init__(self) -> None:
        self.total = 0
        self.linked: set[tuple[int, int]] = set()
        """The files with several names that have been counted."""

    def advance(self, top: str, step: int) -> Iterator[None]:
        descent = Descent(top)
        count = 0
        try:
            waiting: list[list[str]] = [[]]
            content = _entries(descent.descriptor)
            while True:
                for entry in content:
                    self._add(entry, waiting[-1])
                    count += 1
                    if count % step == 0:
                        yield None
                content = iter(())
                if waiting[-1]:
                    if descent.enter(waiting[-1].pop()):
                        waiting.append([])
                        content = _entries(descent.descriptor)
                    continue
                waiting.pop()
                if descent.leave() is None:
                    return
        finally:
            descent.close()

    def _add(self, entry: os.DirEntry[str], folders: list[str]) -> None:
        try:
            found = entry.stat(follow_symlinks=False)
        except OSError:
            return
        if stat.S_ISDIR(found.st_mode):
            folders.append(entry.name)
        elif found.st_nlink > 1 and len(self.linked) < MOST_LINKED:
            known = (found.st_dev, found.st_ino)
            if known in self.linked:
                return
            self.linked.add(known)
        self.total += found.st_blocks * 512


def used_bytes(top: str) -> int:
    """Bytes allocated below `top`, links not followed; 0 when there is no such folder."""
    try:
        return next(total for total in measuring(top, 1 << 30) if total is not None)
    except OSError:
        return 0


def remove(top: str) -> bool:
    """Remove a tree of files; return whether nothing is left of it, also when it was not there.

    A link or a file at `top` is removed itself. Folders that their owner has closed are opened
    again, as far as they are ours.
    """
    for _ in range(TRIES):
        try:
            if not stat.S_ISDIR(os.lstat(top).st_mode):
                os.unlink(top)
                return True
            _open_again(top, None)
            _empty(Descent(top))
            os.rmdir(top)
        except FileNotFoundError:
            return True
        except OSError:
            continue
        return True
    return not os.path.lexists(top)


def give(top: str, uid: int, gid: int) -> None:
    """Give a tree to an account, but for files with several names, which may be of others.

    Raises: OSError, when the top is not there.
    """
    for folder in walk(top):
        os.fchown(folder.descriptor, uid, gid)
        for name in folder.names:
            with contextlib.suppress(FileNotFoundError):
                if os.stat(name, dir_fd=folder.descriptor, follow_symlinks=False).st_nlink == 1:
                    os.chown(name, uid, gid, dir_fd=folder.descriptor, follow_symlinks=False)


def remove_owned(top: str, uid: int, peers: frozenset[int] = frozenset()) -> None:
    """Remove what an account owns in those folders of a tree that others may write to.

    Folders of the account itself are emptied of what it owns, and of nothing else. Folders
    that only another account may enter are passed over with all below: it can have nothing there.
    peers: accounts whose folders count as open, because they may have been so until now.
    """
    try:
        descent = Descent(top)
    except OSError:
        return
    waiting: list[list[str]] = [_remove_owned_here(descent.descriptor, uid, peers)]
    with contextlib.closing(descent), contextlib.suppress(OSError):
        while waiting:
            if not waiting[-1]:
                waiting.pop()
                descent.leave()
            elif descent.enter(waiting[-1].pop()):
                waiting.append(_remove_owned_here(descent.descriptor, uid, peers))


def _remove_owned_here(folder: int, uid: int, peers: frozenset[int]) -> list[str]:
    """Remove the account's entries of one open folder; return the names of others' folders."""
    found = os.fstat(folder)
    is_of_peer = found.st_uid in peers and found.st_uid != uid
    if not (found.st_mode & OPEN_TO_OTHERS or found.st_uid == uid or is_of_peer):
        return []
    is_shared = is_of_peer or bool(found.st_mode & WRITABLE_BY_OTHERS)
    others = []
    for entry in _entries(folder):
        try:
            is_folder = entry.is_dir(follow_symlinks=False)
            if not (is_shared or is_folder):
                continue  # Before it is asked for, which is most of the cost of a large tree.
            owner = entry.stat(follow_symlinks=False).st_uid
            if owner == uid and is_shared:
                _remove_one(entry, folder, uid)
            elif owner != uid and is_folder:
                others.append(entry.name)
        except OSError:  # It has gone by now, or has files of others in it.
            continue
    return others


def _remove_one(entry: os.DirEntry[str], folder: int, uid: int) -> None:
    if entry.is_dir(follow_symlinks=False):
        _empty(Descent(entry.name, folder), uid)
        os.rmdir(entry.name, dir_fd=folder)
    else:
        os.unlink(entry.name, dir_fd=folder)


def _empty(descent: Descent, uid: int | None = None) -> None:
    """Remove all below, in batches, because a folder may have more names than memory holds.

    uid: remove only what this account owns.
    """
    waiting: list[list[str]] = [[]]
    stuck: list[set[str]] = [set()]
    try:
        while True:
            if not waiting[-1]:
                waiting[-1] = _remove_batch(descent.descriptor, stuck[-1], uid)
            if waiting[-1]:
                name = waiting[-1].pop()
                _open_again(name, descent.descriptor)
                if descent.enter(name):
                    waiting.append([])
                    stuck.append(set())
                else:
                    stuck[-1].add(name)
                continue
            waiting.pop()
            stuck.pop()
            left = descent.leave()
            if left is None:
                return
            if not _unlinked(left, descent.descriptor, uid):
                stuck[-1].add(left)
    finally:
        descent.close()


def _remove_batch(folder: int, stuck: set[str], uid: int | None) -> list[str]:
    """Remove entries of a folder; return the names of folders in it that are not empty.

    The batch is empty only when all that is left is in `stuck`.
    """
    found = (entry for entry in _entries(folder) if entry.name not in stuck)
    while batch := list(itertools.islice(found, BATCH)):
        folders = []
        for entry in batch:
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
            elif not _unlinked(entry.name, folder, uid, is_folder=False):
                stuck.add(entry.name)
        if folders:
            return folders
        found = (entry for entry in _entries(folder) if entry.name not in stuck)
    return []


def _unlinked(name: str, folder: int, uid: int | None, *, is_folder: bool = True) -> bool:
    """Whether an entry of an open folder could be removed, or has gone by itself."""
    try:
        if uid is not None and os.stat(name, dir_fd=folder, follow_symlinks=False).st_uid != uid:
            return False
        (os.rmdir if is_folder else os.unlink)(name, dir_fd=folder)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _entries(folder: int) -> Iterator[os.DirEntry[str]]:
    """The entries of an open folder from the first on; empty when it cannot be read."""
    os.lseek(folder, 0, os.SEEK_SET)
    try:
        found = os.scandir(folder)
    except OSError:
        return
    with found:
        yield from found


def _open_again(name: str, at: int | None) -> None:
    """Let ourselves into a folder that its owner, who is our own user, has closed."""
    if os.geteuid() == 0:
        return
    with contextlib.suppress(OSError):
        if stat.S_ISDIR(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode):
            os.chmod(name, 0o700, dir_fd=at)
