"""The contents of this node: datasets, models and checkpoints, unpacked once for all its runs.

<root>/contents/<sha256>/             a content, by the hash of its manifest
<root>/contents/<sha256>.json         how much disk it takes, and whether a power cut spares it
<root>/contents/<sha256>.lock         held while it arrives, is taken, or is removed
<root>/contents/<sha256>.room         how much disk is reserved for it until it is here
<root>/contents/room.lock             held while room is made and reserved
<root>/contents/.arriving-<sha256>/   a content on its way, see `arrival.py`

A run names the contents that it needs before they arrive (`contents.json` in its folder). What an
open run names stays; of the rest the least used goes first when room is needed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import time
from typing import Any

from ..errors import RefusedError
from ..folders import SHA256, Folders, Run, read_json, take_lock, write_json
from ..host import disk, file_tree, processes

NEEDED = "contents.json"
ARRIVING = ".arriving-"
REMOVED = ".removed-"
ROOM = ".room"
BLOCK_BYTES = 4096
"""What a file takes on disk beside its bytes, about: the rest of its last block, and its inode."""
BESIDE_BYTES = 320 << 20
"""The parts of a content that lie beside what is unpacked of it, and some room for the node."""
LOCK_S = 150.0
"""Longer than an earlier transfer lasts whose connection is lost (`transfers.py: SILENCE_S`)."""
POLL_S = 0.05
DISK_SHARE = 0.8
"""The most of the whole disk that contents may take, whatever the limit."""


def checked(sha256: Any) -> str:
    """The hash of a content. Raises: RefusedError `bad-hash`."""
    if not isinstance(sha256, str) or not SHA256.match(sha256):
        raise RefusedError("bad-hash", "sha256 %r: want 64 hexadecimal digits" % (sha256,))
    return sha256


def path_of(folders: Folders, sha256: str) -> str:
    """The folder of a content, which need not exist."""
    return os.path.join(folders.contents, checked(sha256))


def arriving(folders: Folders, sha256: str) -> str:
    """The folder of a content on its way, which need not exist."""
    return os.path.join(folders.contents, ARRIVING + checked(sha256))


@contextlib.contextmanager
def locked(folders: Folders, sha256: str, limit_s: float = LOCK_S) -> Any:
    """Hold a content; whoever transfers it holds it as well, which may take long.

    Raises: RefusedError `content-busy`, when another transfer of it does not end.
    """
    make(folders)
    deadline = time.monotonic() + limit_s
    path = path_of(folders, sha256) + ".lock"
    lock = take_lock(path, wait=False)
    while lock is None:
        if time.monotonic() > deadline:
            raise RefusedError("content-busy", "content %s: another transfer goes on" % sha256)
        time.sleep(POLL_S)
        lock = take_lock(path, wait=False)
    try:
        yield
    finally:
        os.close(lock)


def make(folders: Folders) -> None:
    """Make the folder of all contents, for root alone; runs are shown what is theirs."""
    folders.make()
    with contextlib.suppress(FileExistsError):
        os.mkdir(folders.contents, 0o700)


def take(folders: Folders, sha256: str) -> str | None:
    """The folder of a content that is here, which counts as used just now; None: it is not here.

    The caller holds it. One that a power cut may have damaged is removed.
    """
    path = path_of(folders, sha256)
    if not os.path.isdir(path):
        return None
    if not is_here(folders, sha256):
        remove(folders, sha256)
        return None
    os.utime(path)
    return path


def is_here(folders: Folders, sha256: str) -> bool:
    """Whether a content is here as it should be, also after a power cut."""
    path = path_of(folders, sha256)
    note = read_json(path + ".json") or {}
    is_sound = note.get("durable") or note.get("boot_id") == processes.boot_id()
    return bool(is_sound) and os.path.isdir(path)


def publish(folders: Folders, sha256: str, files: str, disk_bytes: int) -> None:
    """Give an unpacked content its name, at once; the disk may have it later, see `take`."""
    path = path_of(folders, sha256)
    note = {
        "disk_bytes": disk_bytes,
        "durable": False,
        "boot_id": processes.boot_id(),
        "publication": os.urandom(8).hex(),
    }
    write_json(path + ".json", note, durable=False)
    os.chmod(files, 0o755)
    os.utime(files)
    os.rename(files, path)
    _free_room(path)
    _make_durable(folders, path, note)


def _make_durable(folders: Folders, path: str, note: dict[str, Any]) -> None:
    """Write what is unpacked to disk in a process of its own, for which no job waits.

    It notes that of its own publication alone: the content may have come anew meanwhile, and that
    one is not on disk for that.
    """
    if os.fork():
        return
    try:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nothing, number)
        os.closerange(3, 256)
        sync(folders.contents)
        lock = take_lock(path + ".lock", wait=True)  # Of whoever removes or brings the content.
        found = read_json(path + ".json") or {}
        if os.path.isdir(path) and found.get("publication") == note["publication"]:
            write_json(path + ".json", dict(note, durable=True))
        os.close(lock or 0)
    finally:
        os._exit(0)


def sync(folder: str) -> None:
    """Wait until the file system of a folder has everything on disk. Raises: OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(descriptor) != 0:
            raise OSError(ctypes.get_errno(), "syncfs")
    finally:
        os.close(descriptor)


def remove(folders: Folders, sha256: str) -> None:
    """Remove a content and what has arrived of it; the caller holds it."""
    path = path_of(folders, sha256)
    for found in (path, arriving(folders, sha256)):
        _remove(folders, found)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path + ".json")
    _free_room(path)


def _remove(folders: Folders, path: str) -> None:
    aside = os.path.join(folders.contents, REMOVED + os.urandom(8).hex())
    with contextlib.suppress(FileNotFoundError):
        os.rename(path, aside)
        file_tree.remove(aside)


def need(run: Run, sha256s: list[str]) -> None:
    """Note what a run needs, which then stays until the run has ended."""
    run.write(NEEDED, {"sha256s": [checked(each) for each in sha256s]}, durable=False)


def needed(folders: Folders, but: str | None = None) -> set[str]:
    """The contents that open runs need; but: the run that does not count."""
    runs = [folders.run(run_id) for run_id in folders.run_ids() if run_id != but]
    documents = [run.read(NEEDED) or {} for run in runs if not run.has("exit.json")]
    return {sha256 for document in documents for sha256 in document.get("sha256s", ())}


def reserve(folders: Folders, wanted: dict[str, int], most_bytes: int | None) -> None:
    """Reserve disk for contents that are to come, by their hashes, until they are here.

    Two runs that come at once reserve one after the other, so that neither counts on the room of
    the other one. A reservation ends with the content's arrival or removal, or when no open run
    needs it any more.
    most_bytes: the limit of all contents together.
    Raises: RefusedError `disk-full`, and nothing is reserved.
    """
    lock = take_lock(os.path.join(folders.contents, "room.lock"), wait=True)
    try:
        others = sum(left for sha256, left in _reserved(folders).items() if sha256 not in wanted)
        here = sum(min(size, _arrived_bytes(folders, each)) for each, size in wanted.items())
        make_room(folders, sum(wanted.values()) - here, most_bytes, others)
        for sha256, size in wanted.items():
            write_json(path_of(folders, sha256) + ROOM, {"bytes": size}, durable=False)
    finally:
        os.close(lock or 0)


def check_room(folders: Folders, sha256: str) -> None:
    """Check that a content has room on the disk once more, beside what is reserved for others.

    Raises: RefusedError `disk-full`.
    """
    wanted = int((read_json(path_of(folders, sha256) + ".json") or {}).get("disk_bytes", 0))
    free = disk.free_bytes(folders.contents) - disk.LEAST_FREE_TO_STAGE_BYTES
    if wanted + sum(_reserved(folders).values()) > free:
        words = "disk of the node: asked %.2f GB for a copy of a volume, %.2f GB free"
        raise RefusedError("disk-full", words % (wanted / 1e9, free / 1e9))


def _reserved(folders: Folders) -> dict[str, int]:
    """By content, how much of its reservation is still to come; what nobody needs is dropped."""
    found, kept = {}, needed(folders)
    names = [name[: -len(ROOM)] for name in os.listdir(folders.contents) if name.endswith(ROOM)]
    for sha256 in filter(SHA256.match, names):
        document = read_json(path_of(folders, sha256) + ROOM) or {}
        if sha256 in kept and not os.path.isdir(path_of(folders, sha256)):
            rest = int(document.get("bytes", 0)) - _arrived_bytes(folders, sha256)
            found[sha256] = max(0, rest)
        else:
            _free_room(path_of(folders, sha256))
    return found


def _arrived_bytes(folders: Folders, sha256: str) -> int:
    """What the unpacked part of an arrival takes, about; 0: an earlier release has not noted it."""
    state = read_json(os.path.join(arriving(folders, sha256), "unpacked.json")) or {}
    return int(state.get("bytes", 0))


def _free_room(path: str) -> None:
    """Drop the reservation of the content with this path."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path + ROOM)


def make_room(
    folders: Folders, wanted_bytes: int, most_bytes: int | None, reserved_bytes: int = 0
) -> None:
    """Remove what is least used until there is room; nothing that an open run needs.

    most_bytes: the limit of all contents together; reserved_bytes: what is still to come of others.
    Raises: RefusedError `disk-full`.
    """
    found = os.statvfs(folders.contents)
    limit = int(found.f_blocks * found.f_frsize * DISK_SHARE)
    limit = min(limit, most_bytes or limit)
    kept = needed(folders)
    unused = sorted(each for each in _all(folders) if each[1] not in kept)
    asked = wanted_bytes + reserved_bytes
    while True:
        free = disk.free_bytes(folders.contents) - disk.LEAST_FREE_TO_STAGE_BYTES
        held = sum(size for _, _, size in _all(folders))
        if asked <= free and held + asked <= limit:
            return
        if not unused:
            raise RefusedError(
                "disk-full",
                "disk of the node: asked %.2f GB for contents, %.2f GB free, of which %.2f GB are "
                "reserved for others; runs need %.2f GB of the %.2f GB that contents may take"
                % tuple(each / 1e9 for each in (wanted_bytes, free, reserved_bytes, held, limit)),
            )
        _forget(folders, unused.pop(0)[1])


def prune(folders: Folders, oldest: float) -> list[str]:
    """Remove contents that nobody has used since `oldest`, and what is left of removals."""
    kept = needed(folders)
    found = [sha256 for used_at, sha256, _ in _all(folders) if used_at < oldest]
    gone = [each for each in found if each not in kept and _forget(folders, each)]
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(folders.contents):
            if name.startswith(REMOVED):
                file_tree.remove(os.path.join(folders.contents, name))
    return ["contents/" + each for each in gone]


def drop_arrivals(folders: Folders) -> None:
    """Remove what has arrived of contents that no open run needs and nobody brings just now."""
    kept = needed(folders)
    for sha256 in everything(folders) - kept:
        if not os.path.isdir(arriving(folders, sha256)):
            continue
        lock = take_lock(path_of(folders, sha256) + ".lock", wait=False)
        if lock is None:
            continue
        try:
            if sha256 not in needed(folders):
                _remove(folders, arriving(folders, sha256))
        finally:
            os.close(lock)


def everything(folders: Folders) -> set[str]:
    """The contents that are here, or on their way."""
    return {sha256 for _, sha256, _ in _all(folders)}


def discard(folders: Folders, sha256s: set[str]) -> list[str]:
    """Remove these contents, however lately used, but for those that open runs need.

    Returns those that somebody holds just now.
    """
    kept = needed(folders)
    wanted = sorted((sha256s & everything(folders)) - kept)
    held = [each for each in wanted if not _forget(folders, each)]
    return ["content " + each for each in held if each not in needed(folders)]


def _forget(folders: Folders, sha256: str) -> bool:
    """Remove a content unless somebody holds it, or has just taken it; whether it is gone."""
    lock = take_lock(path_of(folders, sha256) + ".lock", wait=False)
    if lock is None:
        return False
    try:
        if sha256 in needed(folders):
            return False
        remove(folders, sha256)
        return True
    finally:
        os.close(lock)


def _all(folders: Folders) -> list[tuple[float, str, int]]:
    """The last use, hash and bytes of each content that is here, or on its way."""
    found = []
    try:
        names = os.listdir(folders.contents)
    except FileNotFoundError:
        return []
    for name in names:
        path = os.path.join(folders.contents, name)
        with contextlib.suppress(FileNotFoundError):
            if SHA256.match(name):
                size = int((read_json(path + ".json") or {}).get("disk_bytes", 0))
                found.append((os.stat(path).st_mtime, name, size))
            elif name.startswith(ARRIVING):
                found.append((os.stat(path).st_mtime, name[len(ARRIVING) :], 0))
    return found
