"""What a device has written and its datastore has not yet: kept on the device, and copied later.

The command writes into the folder `output` of its revision, which is there whether the datastore
is or not. A copier stores the files that nobody has written to for a while, and goes on with what
is missing when the datastore is back. The folder is bounded: when it is full, the files that are
stored go first, then others by the policy of the configuration, which are dropped and counted. One
that is being written is shortened to nothing instead, so a command should write files and close
them. What is older is said by the times of the files, so by a clock that may have been wrong.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ..datastores.child import in_child
from ..datastores.copying import STORED, Storing, mark_of
from ..datastores.share import share_of
from ..datastores.verbs import OUTPUT_S, STALL_S, account_of, opened
from ..errors import RefusedError
from ..files import packing
from ..folders import JOB_USER, read_json, take_lock, write_json
from ..host import disk, prctl, processes
from .state import Revision, Store, revisions

Work = Callable[[Store, Callable[[], float], Callable[[float], None]], None]
GONE = "gone-output.json"
MOST_GONE = 50
COUNTS, COUNTS_LOCK = disk.OUTPUT_NOTE, "output.lock"
INTERVAL_S = 5.0
AWAY_S = 30.0
"""How long a datastore that has refused is left alone."""
SETTLED_S = 5.0
"""How long nobody has written to a file that is stored; one that changes is stored again."""
ALL_S = 60.0
"""How often files are stored that are written to all the time."""
MOST_FILES = 50_000
"""Of the output; each has to be seen again and again, whatever its size."""
BUSY_SHARE = 0.05
"""Of the time is the most that bounding takes."""
DROP_NEWEST, DROP_ALL = "drop_newest", "drop_all"
"""The policies other than that the oldest files go when the output is full."""
MOST_NOTE_BYTES = 1 << 20
MOST_REASON = 300
LAST_S = 30.0
MOST_KEPT = 3
"""So many revisions stay for what they have not stored, beside those that the device may run."""


class Waiting(NamedTuple):
    """A file of the output: its path, what names its content, its bytes, when it was changed."""

    path: str
    mark: str
    size: int
    changed_s: float


def has_output(revision: Revision) -> bool:
    """Whether what the revision writes belongs on a datastore."""
    return bool((revision.read("spec.json") or {}).get("output"))


def files_of(revision: Revision) -> list[Waiting]:
    """The files of its output, the oldest first."""
    return _seen(revision)[0]


def _seen(revision: Revision) -> tuple[list[Waiting], bool]:
    """The files of its output, the oldest first, and whether these are all.

    They are not where folders are too deep in each other, or are moved meanwhile.
    """
    found, is_whole = [], False
    with contextlib.suppress(RefusedError, OSError):  # No such folder, or it was moved meanwhile.
        for entry in packing.entries(revision, "output"):
            status = entry.stat()
            if status is not None and stat.S_ISREG(status.st_mode):
                mark = mark_of(entry.path, status)
                size = status.st_blocks * 512
                found.append(Waiting(entry.path, mark, size, status.st_mtime))
        is_whole = True
    return sorted(found, key=lambda one: one.changed_s), is_whole


def stored_of(revision: Revision) -> set[str]:
    """What names the contents that are stored."""
    found = set()
    with contextlib.suppress(OSError), open(revision.at(STORED)) as note:
        for line in note:
            with contextlib.suppress(ValueError):
                found.add(json.loads(line))
    return found


def counts(revision: Revision) -> dict[str, Any]:
    """What waits and what was dropped, as it was noted last, and why the rest is not stored."""
    noted = read_json(revision.at(COUNTS)) or {}
    none = dict.fromkeys(("waiting_files", "waiting_bytes", "dropped_files", "dropped_bytes"), 0)
    return {**none, "away": "", **noted}


def waiting(revision: Revision) -> list[Waiting]:
    """The files that are not stored yet."""
    if not has_output(revision):
        return []
    stored = stored_of(revision)
    return [one for one in files_of(revision) if one.mark not in stored]


def bound(revision: Revision, most_bytes: int | None = None, away: str | None = None) -> None:
    """Remove files until the output has room again, the stored ones first; note what waits.

    Which of the others go is said by the policy: the oldest, the newest, or, while the datastore
    takes nothing, all that nobody writes to.

    away: why the datastore takes nothing, empty when it does; None: as it was noted last.
    """
    with _locked(revision):
        noted = counts(revision)
        before = dict(noted)
        if away is not None:
            noted["away"] = away
        _make_room(revision, disk.output_limit_bytes(_spec(revision)), noted, most_bytes)
        if noted != before and revision.has("spec.json"):  # Else it was removed meanwhile.
            is_durable = noted["dropped_files"] != before["dropped_files"]
            # On a full disk the note is written when there is room.
            with contextlib.suppress(OSError):
                write_json(revision.at(COUNTS), noted, durable=is_durable)


def _make_room(
    revision: Revision, limit_bytes: int, noted: dict[str, Any], most_bytes: int | None
) -> None:
    """Remove what there is no room for, and count it in `noted`."""
    found, is_whole = _seen(revision)
    noted["is_whole"], stored = is_whole, stored_of(revision)
    excess = sum(one.size for one in found) - (limit_bytes if most_bytes is None else most_bytes)
    too_many = len(found) - MOST_FILES
    policy = (_spec(revision).get("output_buffer") or {}).get("policy")
    keeps_none = policy == DROP_ALL and bool(noted["away"])
    sign, now, left = -1 if policy == DROP_NEWEST else 1, time.time(), []
    for one in sorted(found, key=lambda each: (each.mark not in stored, sign * each.changed_s)):
        waits = one.mark not in stored
        is_settled = abs(now - one.changed_s) >= SETTLED_S
        goes = excess > 0 or too_many > 0 or (keeps_none and waits and is_settled)
        is_emptied = goes and not is_settled and too_many <= 0 and _empty(revision, one.path)
        if not (is_emptied or (goes and _unlink(revision, one.path))):
            left += [one] if waits else []
            continue
        excess -= one.size
        too_many -= 0 if is_emptied else 1
        left += [one._replace(size=0)] if is_emptied else []
        if waits:
            noted["dropped_files"] += 1
            noted["dropped_bytes"] += one.size
    noted["waiting_files"], noted["waiting_bytes"] = len(left), sum(one.size for one in left)


def drop_stored(revision: Revision, is_enough: Callable[[], bool]) -> None:
    """Remove files that are stored until there is room enough, the oldest first; it is no loss."""
    with _locked(revision):
        stored = stored_of(revision)
        for one in files_of(revision):
            if is_enough():
                return
            if one.mark in stored:
                _unlink(revision, one.path)


@contextlib.contextmanager
def _locked(revision: Revision) -> Iterator[None]:
    """Be the only one who bounds an output; on a full disk, to make room matters more."""
    lock = None
    with contextlib.suppress(OSError):
        lock = take_lock(revision.at(COUNTS_LOCK), wait=True)
    try:
        yield
    finally:
        if lock is not None:
            os.close(lock)


def _spec(revision: Revision) -> dict[str, Any]:
    return revision.read("spec.json") or {}


def _unlink(revision: Revision, path: str) -> bool:
    """Remove a file of the output; whether it is gone."""

    def unlink(folder: int, name: str) -> bool:
        os.unlink(name, dir_fd=folder)
        return True

    return _with_folder_of(revision, path, unlink)


def _empty(revision: Revision, path: str) -> bool:
    """Shorten a file to nothing that is written to; whether it is.

    To remove it would not end its writing, and what has no name any more would take the room.
    """

    def empty(folder: int, name: str) -> bool:
        descriptor = os.open(name, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
        try:
            found, owner = os.fstat(descriptor), os.stat(revision.at("output")).st_uid
            # What its command could not shorten itself is not shortened for it, by a link.
            is_own = found.st_nlink == 1 and found.st_uid == owner
            if is_own and stat.S_ISREG(found.st_mode):
                os.ftruncate(descriptor, 0)
                return True
            return False
        finally:
            os.close(descriptor)

    return _with_folder_of(revision, path, empty)


def _with_folder_of(revision: Revision, path: str, act: Callable[[int, str], bool]) -> bool:
    """Act on a file of the output by its open folder and its name there; False: it cannot be done.

    No link on the way is followed, which its command could make.
    """
    names = path.split("/")
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    folder = -1
    try:
        folder = os.open(revision.at("output"), flags)
        for name in names[:-1]:
            inner = os.open(name, flags, dir_fd=folder)
            os.close(folder)
            folder = inner
        return act(folder, names[-1])
    except OSError:
        return False
    finally:
        if folder >= 0:
            os.close(folder)


def store(revision: Revision, settled_s: float = SETTLED_S, limit_s: float = OUTPUT_S) -> None:
    """Store what has settled. Raises: RefusedError, as the client of the datastore."""
    spec = revision.read("spec.json") or {}
    place = spec["output"]
    share = share_of(place["datastore"])
    names, account = share.parts_of(place["path"]), account_of(spec.get("user"))
    known_as = _known_as(spec.get("user"))
    now = time.time()

    def act(say: Any) -> Any:
        with open(revision.at(STORED), "a+") as note:  # Before: the folder of the run is root's.
            files = opened(share, account, known_as)
            takes = lambda found: abs(now - found.st_mtime) >= settled_s  # noqa: E731
            drop = lambda path, found: _drop_unnoted(revision, path, found)  # noqa: E731
            return Storing(files, revision, note, say, takes, drop).run(names)._asdict()

    in_child(share.place, act, stall_s=min(STALL_S, limit_s), limit_s=limit_s)


def _drop_unnoted(revision: Revision, path: str, stored: os.stat_result) -> bool:
    """Remove a file that is stored, where the disk has no room to note it; whether it is gone.

    Else it would be stored again and again, and what is stored would make no room.
    """

    def unlink(folder: int, name: str) -> bool:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        is_same = mark_of(path, found) == mark_of(path, stored)
        if not is_same or abs(time.time() - found.st_mtime) < SETTLED_S:
            return False
        os.unlink(name, dir_fd=folder)
        return True

    return _with_folder_of(revision, path, unlink)


def _known_as(user: str | None) -> tuple[int, int] | None:
    """The account as which a server knows the device, whichever account its revision has.

    Each revision has another one than the revision before, whose folders it has to write into.
    """
    return account_of(JOB_USER if user and user.startswith(JOB_USER + "-") else user)


def _forget_marks(revision: Revision) -> None:
    """Shorten the note of what is stored to the files that are still here."""
    path = revision.at(STORED)
    with contextlib.suppress(OSError):
        if os.stat(path).st_size <= MOST_NOTE_BYTES:
            return
        here = {one.mark for one in files_of(revision)}
        left = sorted(stored_of(revision) & here)
        part = path + ".part"
        with open(part, "w") as note:
            note.writelines(json.dumps(mark) + "\n" for mark in left)
        os.rename(part, path)


class Copier:
    """The processes that copy and that bound, children of the keeper that end with it.

    They are two, because one file may be on its way to a slow datastore for hours.
    """

    def __init__(self, store_of_device: Store, lock: int = -1) -> None:
        self._lock = lock
        self._store = store_of_device
        self._pids = [0, 0]
        self._due = 0.0

    def keep(self) -> None:
        """Have both run while a revision here has an output for a datastore."""
        for number, pid in enumerate(self._pids):
            if pid and os.waitpid(pid, os.WNOHANG)[0] == pid:
                self._pids[number] = 0
        now = processes.monotonic_s()
        if all(self._pids) or now < self._due:
            return
        self._due = now + INTERVAL_S
        if any(map(has_output, revisions(self._store.folders))):
            for number, work in enumerate((copy_all, bound_all)):
                if not self._pids[number]:
                    self._pids[number] = self._fork(work)

    @property
    def is_there(self) -> bool:
        """Whether one of them was started, and has not been seen to end."""
        return any(self._pids)

    def has_work(self) -> bool:
        """Whether a revision that is here has files that are not stored."""
        return any(map(waiting, revisions(self._store.folders)))

    def end(self) -> None:
        """End both; they go on where they were."""
        for number, pid in enumerate(self._pids):
            if pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                self._pids[number] = 0

    def _fork(self, work: Work) -> int:
        sys.stdout.flush()
        sys.stderr.flush()
        try:
            pid = os.fork()
        except OSError as error:  # The machine has no memory for it now; it is tried again.
            sys.stderr.write("the output is copied later: %s\n" % error)
            return 0
        if pid:
            return pid
        try:
            prctl.die_with_parent()
            if self._lock >= 0:  # Else a child that nothing ends would be taken for the keeper.
                os.close(self._lock)
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGTERM, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            work(self._store, processes.monotonic_s, time.sleep)
        except BaseException:  # noqa: BLE001 - the forked child must never return
            sys.excepthook(*sys.exc_info())
            sys.stderr.flush()
        finally:
            os._exit(1)


def bound_all(
    store_of_device: Store, now_s: Callable[[], float], sleep: Callable[[float], None]
) -> None:
    """Bound for ever what is written, while it is copied as well."""
    while True:
        begun_s = now_s()
        for one in revisions(store_of_device.folders):
            if has_output(one):
                bound(one)
        sleep(max(INTERVAL_S, (now_s() - begun_s) / BUSY_SHARE))


def copy_all(
    store_of_device: Store, now_s: Callable[[], float], sleep: Callable[[float], None]
) -> None:
    """Copy for ever what has settled, and what is written to all the time once in `ALL_S`."""
    all_at = now_s() + ALL_S
    while True:
        is_all = now_s() >= all_at
        found = [one for one in revisions(store_of_device.folders) if has_output(one)]
        is_away = [copy(one, 0.0 if is_all else SETTLED_S) for one in found]
        if is_all:
            all_at = now_s() + ALL_S
        sleep(AWAY_S if any(is_away) else INTERVAL_S)


def copy(revision: Revision, settled_s: float = SETTLED_S) -> bool:
    """Store and bound the output of a revision once; whether its datastore is away.

    settled_s: for how long nobody has written to what is stored.
    """
    away = ""
    try:
        if waiting(revision):
            store(revision, settled_s)
    except RefusedError as refused:
        away = refused.message[:MOST_REASON]
    if not revision.has("spec.json"):  # It was removed meanwhile.
        return False
    bound(revision, away=away)
    _forget_marks(revision)
    return bool(away)


def store_last(revision: Revision) -> None:
    """Store what is there of a revision that is removed, as far as a short while allows."""
    try:
        if waiting(revision):
            store(revision, settled_s=0.0, limit_s=LAST_S)
    except RefusedError as refused:
        left = len(waiting(revision))
        words = "%s: %d files of its output are lost: %s\n"
        sys.stderr.write(words % (revision.run_id, left, refused.message))


def note_gone(store_of_device: Store, revision: Revision) -> None:
    """Keep what is known of the output of a revision that is removed: what waits is lost.

    A repeat counts nothing twice.
    """
    if not has_output(revision):
        return
    noted, left = counts(revision), waiting(revision)
    gone = {
        "dropped_files": noted["dropped_files"] + len(left),
        "dropped_bytes": noted["dropped_bytes"] + sum(one.size for one in left),
        "lost_files": len(left),
    }
    found = _gone(store_of_device)
    if len(found) > MOST_GONE:
        found = {"": sum_of(list(found.values()))}
    with contextlib.suppress(OSError):  # On a full disk, to make room matters more.
        write_json(store_of_device.at(GONE), {**found, revision.run_id: gone})


def gone(store_of_device: Store) -> dict[str, int]:
    """What was dropped in revisions that are removed, and `lost_files`, which were lost by that."""
    return sum_of(list(_gone(store_of_device).values()))


def sum_of(found: list[dict[str, int]]) -> dict[str, int]:
    """The sums by name."""
    names = ("dropped_files", "dropped_bytes", "lost_files")
    return {name: sum(one[name] for one in found) for name in names}


def _gone(store_of_device: Store) -> dict[str, dict[str, int]]:
    return read_json(store_of_device.at(GONE)) or {}


def report(found: list[Revision], gone: dict[str, int] | None = None) -> dict[str, Any]:
    """What waits in all revisions, and what was dropped, as the copier has noted it last.

    gone: what was dropped in revisions that are not here any more.

    It reads no folder of output, which may have very many files, so it is answered at once.
    """
    noted = [counts(revision) for revision in found if has_output(revision)]
    names = ("waiting_files", "waiting_bytes", "dropped_files", "dropped_bytes")
    sums = {name: sum(one[name] for one in noted) + (gone or {}).get(name, 0) for name in names}
    return {**sums, "away": next((one["away"] for one in noted if one["away"]), "")}
