"""What a device has written and its datastore has not yet: kept on the device, and copied later.

The command writes into the folder `output` of its revision, which is there whether the datastore
is or not. A copier stores the files that nobody has written to for a while, and goes on with what
is missing when the datastore is back. The folder is bounded: when it is full, the files that are
stored go first, then others by the policy of the configuration, which are dropped and counted.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from ..datastores.child import in_child
from ..datastores.copying import STORED, Storing, mark_of
from ..datastores.share import share_of
from ..datastores.verbs import OUTPUT_S, STALL_S, account_of, opened
from ..errors import RefusedError
from ..files import packing
from ..folders import JOB_USER, read_json, write_json
from ..host import prctl, processes
from .state import Revision, Store, revisions

COUNTS = "output.json"
INTERVAL_S = 5.0
AWAY_S = 30.0
"""How long a datastore that has refused is left alone."""
SETTLED_S = 5.0
"""How long nobody has written to a file that is stored; one that changes is stored again."""
ALL_S = 60.0
"""How often files are stored that are written to all the time."""
LIMIT_SHARE = 0.5
"""The output's share of the disk that the configuration gives the command, where it says no
limit of the output."""
DROP_NEWEST, DROP_ALL = "drop_newest", "drop_all"
"""The policies other than that the oldest files go when the output is full."""
DEFAULT_GB = 10
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
    found = []
    with contextlib.suppress(RefusedError, OSError):  # No such folder, or it was moved meanwhile.
        for entry in packing.entries(revision, "output"):
            status = entry.stat()
            if status is not None and stat.S_ISREG(status.st_mode):
                mark = mark_of(entry.path, status)
                size = status.st_blocks * 512
                found.append(Waiting(entry.path, mark, size, status.st_mtime))
    return sorted(found, key=lambda one: one.changed_s)


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


def bound(revision: Revision, most_bytes: int | None = None) -> None:
    """Remove files until the output has room again, the stored ones first; note what waits.

    Which of the others go is said by the policy: the oldest, the newest, or, while the datastore
    takes nothing, all that nobody writes to.
    """
    if most_bytes is None:
        most_bytes = _limit_bytes(revision)
    found, stored, noted = files_of(revision), stored_of(revision), counts(revision)
    excess = sum(one.size for one in found) - most_bytes
    policy, before = _buffer(revision).get("policy"), dict(noted)
    keeps_none = policy == DROP_ALL and bool(noted["away"])
    sign, now, left = -1 if policy == DROP_NEWEST else 1, time.time(), []
    for one in sorted(found, key=lambda each: (each.mark not in stored, sign * each.changed_s)):
        waits = one.mark not in stored
        goes = excess > 0 or (keeps_none and waits and abs(now - one.changed_s) >= SETTLED_S)
        if not (goes and _unlink(revision, one.path)):
            left += [one] if waits else []
            continue
        excess -= one.size
        if waits:
            noted["dropped_files"] += 1
            noted["dropped_bytes"] += one.size
    noted["waiting_files"], noted["waiting_bytes"] = len(left), sum(one.size for one in left)
    if noted["dropped_files"] != before["dropped_files"]:
        write_json(revision.at(COUNTS), noted)
    elif noted != before:
        with contextlib.suppress(OSError):  # On a full disk the note is written when there is room.
            write_json(revision.at(COUNTS), noted, durable=False)


def _buffer(revision: Revision) -> dict[str, Any]:
    return dict((revision.read("spec.json") or {}).get("output_buffer") or {})


def _limit_bytes(revision: Revision) -> int:
    """How many bytes the output may take on this disk."""
    given = _buffer(revision).get("limit_bytes")
    if given is not None:
        return int(given)
    disk_gb = float((revision.read("spec.json") or {}).get("disk_size_gb") or DEFAULT_GB)
    return int(disk_gb * 1e9 * LIMIT_SHARE)


def _unlink(revision: Revision, path: str) -> bool:
    """Remove a file of the output; no link on the way is followed, which its command could make."""
    names = path.split("/")
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    folder = -1
    try:
        folder = os.open(revision.at("output"), flags)
        for name in names[:-1]:
            inner = os.open(name, flags, dir_fd=folder)
            os.close(folder)
            folder = inner
        os.unlink(names[-1], dir_fd=folder)
    except OSError:
        return False
    else:
        return True
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
            return Storing(files, revision, note, say, takes).run(names)._asdict()

    in_child(share.place, act, stall_s=min(STALL_S, limit_s), limit_s=limit_s)


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
    """The process that copies, a child of the keeper that ends with it."""

    def __init__(self, store_of_device: Store, lock: int = -1) -> None:
        self._lock = lock
        self._store = store_of_device
        self._pid = 0
        self._due = 0.0

    def keep(self) -> None:
        """Have the copier run while a revision here has an output for a datastore."""
        if self._pid and os.waitpid(self._pid, os.WNOHANG)[0] == self._pid:
            self._pid = 0
        now = processes.monotonic_s()
        if self._pid or now < self._due:
            return
        self._due = now + INTERVAL_S
        if any(map(has_output, revisions(self._store.folders))):
            self._fork()

    @property
    def is_there(self) -> bool:
        """Whether it was started, and has not been seen to end."""
        return bool(self._pid)

    def has_work(self) -> bool:
        """Whether a revision that is here has files that are not stored."""
        return any(map(waiting, revisions(self._store.folders)))

    def end(self) -> None:
        """End the copier; it goes on where it was."""
        if self._pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            self._pid = 0

    def _fork(self) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        try:
            self._pid = os.fork()
        except OSError as error:  # The machine has no memory for it now; it is tried again.
            sys.stderr.write("the output is copied later: %s\n" % error)
            return
        if self._pid:
            return
        try:
            prctl.die_with_parent()
            if self._lock >= 0:  # Else a child that nothing ends would be taken for the keeper.
                os.close(self._lock)
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGTERM, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            copy_all(self._store, processes.monotonic_s, time.sleep)
        except BaseException:  # noqa: BLE001 - the forked child must never return
            sys.excepthook(*sys.exc_info())
            sys.stderr.flush()
        finally:
            os._exit(1)


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
    noted = counts(revision)
    if noted["away"] != away:
        write_json(revision.at(COUNTS), {**noted, "away": away}, durable=False)
    bound(revision)  # It reads why the datastore is away, and notes what is left.
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


def report(found: list[Revision]) -> dict[str, Any]:
    """What waits in all revisions, and what was dropped, as the copier has noted it last.

    It reads no folder of output, which may have very many files, so it is answered at once.
    """
    noted = [counts(revision) for revision in found if has_output(revision)]
    names = ("waiting_files", "waiting_bytes", "dropped_files", "dropped_bytes")
    sums = {name: sum(one[name] for one in noted) for name in names}
    return {**sums, "away": next((one["away"] for one in noted if one["away"]), "")}
