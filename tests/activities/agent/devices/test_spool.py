"""What a device writes while its datastore is away: real NFS and SMB servers."""

import errno
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from activities.agent.datastores.copying import STORED
from activities.agent.datastores.files import FOLDER, Entry
from activities.agent.devices import spool
from activities.agent.devices.state import Revision, Store
from activities.agent.files import packing
from activities.agent.folders import JOB_USER
from activities.agent.host import disk, job_accounts
from tests.activities.agent.devices.conftest import MakeRevision
from tests.activities.agent.test_datastores import described, server
from tests.lab.file_servers import NfsServer, SmbServer
from tests.lab.fixtures import nfs_server, smb_server

__all__ = ["nfs_server", "server", "smb_server"]
AWAY = {
    "id": "dst-away",
    "type": "nfs",
    "host": "192.0.2.1",
    "root_path": "/lab",
    "networks": {"closed": ["192.0.2.1"]},
}


def shop(server: NfsServer | SmbServer, name: str = "shop-7") -> Path:
    """The folder of the device on the datastore, which it may write to."""
    folder = server.shared / name
    folder.mkdir()
    folder.chmod(0o777)
    return folder


def place(datastore: dict[str, Any], path: str = "shop-7") -> dict[str, Any]:
    return {"datastore": datastore, "path": path}


def write(revision: Revision, name: str, content: bytes, age_s: float) -> Path:
    path = Path(revision.at("output")) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    changed = time.time() - age_s
    os.utime(path, (changed, changed))
    return path


def test_what_was_written_while_the_datastore_was_away_follows_when_it_is_back(
    make_revision: MakeRevision, server: NfsServer | SmbServer
) -> None:
    revision = make_revision(output=place(AWAY))
    write(revision, "day/1.csv", b"one", 60)
    assert spool.copy(revision)
    found = spool.report([revision])
    assert (found["waiting_files"], found["away"] != "") == (1, True)
    revision.write(
        "spec.json", {**(revision.read("spec.json") or {}), "output": place(described(server))}
    )
    stored = shop(server)
    assert not spool.copy(revision)
    assert (stored / "day/1.csv").read_bytes() == b"one"
    assert spool.report([revision]) == {
        "waiting_files": 0,
        "waiting_bytes": 0,
        "dropped_files": 0,
        "dropped_bytes": 0,
        "away": "",
    }
    write(revision, "day/1.csv", b"one and more", 50)
    write(revision, "day/2.csv", b"two, which is being wri", 0)
    spool.copy(revision)
    assert (stored / "day/1.csv").read_bytes() == b"one and more"
    assert not (stored / "day/2.csv").exists()
    assert [one.path for one in spool.waiting(revision)] == ["day/2.csv"]


def test_a_full_spool_gives_up_what_is_stored_and_then_the_oldest(
    make_revision: MakeRevision, server: NfsServer | SmbServer
) -> None:
    # Of its own name, because a server may remember a folder that was there before.
    shop(server, "shop-8")
    revision = make_revision(output=place(described(server), "shop-8"))
    block = bytes(8192)
    stored = write(revision, "stored", block, 30)
    spool.copy(revision)
    oldest = write(revision, "oldest", block, 90)
    newest = write(revision, "newest", block, 20)
    spool.bound(revision, 2 * 8192)
    assert (stored.exists(), oldest.exists(), newest.exists()) == (False, True, True)
    assert spool.counts(revision)["dropped_files"] == 0
    spool.bound(revision, 8192)
    assert (oldest.exists(), newest.exists()) == (False, True)
    found = spool.report([revision])
    assert (found["dropped_files"], found["dropped_bytes"]) == (1, 8192)
    assert (found["waiting_files"], found["waiting_bytes"]) == (1, 8192)


def test_the_next_revision_writes_into_the_folders_that_the_one_before_has_made(
    make_revision: MakeRevision, server: NfsServer | SmbServer, store: Store
) -> None:
    shop(server, "shop-9")
    folder = place(described(server), "shop-9/of/detector")
    users = []
    for number in (1, 2):
        revision = make_revision(number, output=folder)
        users.append(job_accounts.claim(store.folders, revision.run_id, JOB_USER))
        spec = {**(revision.read("spec.json") or {}), "user": users[-1]}
        revision.write("spec.json", spec)
        for content in (b"first", b"second"):
            path = write(revision, f"day/{number}", content, 60)
            write(revision, "latest", content + b" %d" % number, 60)
            shutil.chown(path, users[-1])
            shutil.chown(revision.at("output"), users[-1])
            assert not spool.copy(revision), spool.counts(revision)["away"]
    assert len(set(users)) == 2
    stored = server.shared / "shop-9/of/detector"
    assert (stored / "latest").read_bytes() == b"second 2"
    assert [(stored / "day" / name).read_bytes() for name in "12"] == [b"second"] * 2


@pytest.mark.parametrize(
    ("policy", "goes"), [("drop_oldest", {"1", "2"}), ("drop_newest", {"3", "4"})]
)
def test_a_full_spool_drops_by_its_policy_within_the_limit_of_its_configuration(
    make_revision: MakeRevision, policy: str, goes: set[str]
) -> None:
    buffer = {"policy": policy, "limit_bytes": 2 * 8192}
    revision = make_revision(output=place(AWAY), output_buffer=buffer)
    for number in range(1, 5):
        write(revision, str(number), bytes(8192), 100 - number)
    assert spool.copy(revision)
    assert {one.path for one in spool.files_of(revision)} == {"1", "2", "3", "4"} - goes
    found = spool.report([revision])
    assert (found["dropped_files"], found["dropped_bytes"]) == (2, 2 * 8192)
    assert (found["waiting_files"], found["waiting_bytes"]) == (2, 2 * 8192)
    spool.copy(revision)
    assert spool.report([revision]) == found


def test_a_spool_that_keeps_nothing_drops_what_its_datastore_does_not_take(
    make_revision: MakeRevision,
) -> None:
    revision = make_revision(output=place(AWAY), output_buffer={"policy": "drop_all"})
    write(revision, "done", bytes(8192), 60)
    write(revision, "being written", bytes(8192), 0)
    spool.bound(revision)
    assert spool.report([revision])["waiting_files"] == 2
    assert spool.copy(revision)
    assert [one.path for one in spool.files_of(revision)] == ["being written"]
    found = spool.report([revision])
    assert (found["dropped_files"], found["dropped_bytes"], found["waiting_files"]) == (1, 8192, 1)


class Clock:
    """The time of a copier, which passes while it sleeps; `end_s` ends it."""

    def __init__(self, end_s: float, passes: Callable[[float], None]) -> None:
        self.now = 0.0
        self._end_s, self._passes = end_s, passes

    def now_s(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.now > self._end_s:
            raise TimeoutError
        self._passes(self.now)


def test_a_file_that_is_written_to_all_the_time_is_stored_once_a_minute(
    store: Store, make_revision: MakeRevision, monkeypatch: pytest.MonkeyPatch
) -> None:
    revision = make_revision(output=place(AWAY))
    output = Path(revision.at("output"))
    kept: list[tuple[float, str, bytes]] = []

    def write_now(now: float) -> None:
        with (output / "always.csv").open("ab") as file:
            file.write(b"%d\n" % now)
        os.utime(output / "always.csv", (now, now))

    clock = Clock(190.0, write_now)

    def store_here(one: Revision, settled_s: float) -> None:
        """A datastore that takes everything."""
        for file in spool.waiting(one):
            if clock.now - file.changed_s >= settled_s:
                kept.append((clock.now, file.path, (output / file.path).read_bytes()))
                with Path(one.at(STORED)).open("a") as note:
                    note.write(json.dumps(file.mark) + "\n")

    monkeypatch.setattr(spool, "store", store_here)
    write_now(0.0)
    (output / "once.csv").write_bytes(b"done")
    os.utime(output / "once.csv", (0, 0))
    with pytest.raises(TimeoutError):
        spool.copy_all(store, clock.now_s, clock.sleep)
    assert [(at, path) for at, path, _ in kept] == [
        (5.0, "once.csv"), (60.0, "always.csv"), (120.0, "always.csv"), (180.0, "always.csv"),
    ]  # fmt: skip
    assert kept[1][2].endswith(b"\n55\n60\n")
    assert kept[3][2].endswith(b"\n175\n180\n")


def test_no_link_of_the_command_leads_the_spool_elsewhere(
    make_revision: MakeRevision, tmp_path: Path
) -> None:
    revision = make_revision(output=place(AWAY))
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_bytes(bytes(8192))
    write(revision, "folder/kept", bytes(8192), 9)
    found = spool.files_of(revision)
    (Path(revision.at("output")) / "folder").rename(Path(revision.at("output")) / "moved")
    (Path(revision.at("output")) / "folder").symlink_to(outside)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spool, "_seen", lambda _: (found, True))
        spool.bound(revision, 0)
    assert (outside / "kept").exists()
    assert spool.counts(revision)["dropped_files"] == 0


APPENDS = """\
import sys
file = open(sys.argv[1], "ab", 0)
for _ in sys.stdin:
    file.write(bytes(300 << 10))
    print(1, flush=True)
"""


def ends_it(revision: Revision) -> str | None:
    """Why the supervisor of the command ends it for its disk use; None: it does not."""
    use = disk.DiskUse(revision, revision.read("spec.json") or {})
    while not (measured := use.step())[0]:
        pass
    return measured[1]


def test_a_datastore_that_is_slow_does_not_end_the_command(
    make_revision: MakeRevision, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One store takes up to four hours, in which the command goes on writing."""
    revision = make_revision(output=place(AWAY), disk_size_gb=0.001)
    write(revision, "first", bytes(8192), 60)
    ended: list[str | None] = []

    def slow(*_: object, **__: object) -> None:
        for number in range(20):
            write(revision, f"frame-{number}", bytes(64 << 10), 20)
            ended.append(ends_it(revision))

    monkeypatch.setattr(spool, "store", slow)
    spool.copy(revision)
    assert not any(ended), "its output is bounded, and it runs for ever"


def test_a_file_that_is_written_to_for_ever_does_not_end_the_command(
    make_revision: MakeRevision,
) -> None:
    revision = make_revision(output=place(AWAY), disk_size_gb=0.001)
    path = Path(revision.at("output")) / "readings.csv"
    with subprocess.Popen(
        [sys.executable, "-c", APPENDS, str(path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as command:  # fmt: skip
        assert command.stdin is not None
        assert command.stdout is not None
        ended = []
        for _ in range(5):
            command.stdin.write("more\n")
            command.stdin.flush()
            command.stdout.readline()
            spool.bound(revision)
            ended.append(ends_it(revision))
        found = spool.report([revision])
        command.stdin.close()
    assert not any(ended), (ended, found)
    assert (found["dropped_files"], found["dropped_bytes"] >= 600 << 10) == (2, True)


def test_a_file_that_is_written_to_is_not_shortened_by_a_link_that_its_command_has_made(
    make_revision: MakeRevision, tmp_path: Path
) -> None:
    revision = make_revision(output=place(AWAY), output_buffer={"limit_bytes": 0})
    theirs = tmp_path / "theirs"
    theirs.write_bytes(b"of another one")
    outside = Path(revision.path) / "outside"
    outside.write_bytes(b"linked by its name")
    output = Path(revision.at("output"))
    (output / "symbolic").symlink_to(theirs)
    (output / "hard").hardlink_to(outside)
    spool.bound(revision)
    assert theirs.read_bytes() == b"of another one"
    assert outside.read_bytes() == b"linked by its name"
    assert not (output / "hard").exists()


def test_very_many_files_are_bounded_whatever_their_size(
    make_revision: MakeRevision, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "MOST_FILES", 10)
    revision = make_revision(output=place(AWAY))
    for number in range(15):
        write(revision, str(number), b"", 100 - number)
    spool.bound(revision)
    assert {one.path for one in spool.files_of(revision)} == set(map(str, range(5, 15)))
    assert spool.report([revision])["dropped_files"] == 5


def test_what_is_too_deep_to_be_bounded_counts_for_its_command(
    make_revision: MakeRevision,
) -> None:
    revision = make_revision(output=place(AWAY), disk_size_gb=0.001)
    write(revision, "seen-later/large", bytes(2 << 20), 9)
    deepest = Path(revision.at("output")) / "first"
    (deepest / "/".join("d" * (packing.MOST_DEPTH + 1))).mkdir(parents=True)
    spool.bound(revision)
    assert "has written" in (ends_it(revision) or "")
    shutil.rmtree(deepest)
    spool.bound(revision)
    assert ends_it(revision) is None
    assert spool.counts(revision)["dropped_files"] == 1


def test_where_room_is_needed_only_what_is_stored_goes(make_revision: MakeRevision) -> None:
    revision = make_revision(output=place(AWAY))
    for number in range(4):
        write(revision, str(number), b"frame", 100 - number)
    marks = [one.mark for one in spool.files_of(revision) if one.path != "1"]
    Path(revision.at(STORED)).write_text("".join(json.dumps(mark) + "\n" for mark in marks))

    def left() -> list[str]:
        return [one.path for one in spool.files_of(revision)]

    spool.drop_stored(revision, lambda: len(left()) <= 2)
    assert left() == ["1", "3"]
    spool.drop_stored(revision, lambda: False)
    assert (left(), spool.report([revision])["dropped_files"]) == (["1"], 0)


def test_the_output_is_bounded_while_a_slow_datastore_takes_it(
    store: Store, make_revision: MakeRevision
) -> None:
    revision = make_revision(output=place(AWAY), output_buffer={"limit_bytes": 8192})
    clock = Clock(19.0, lambda _: None)
    for number in range(4):
        write(revision, str(number), bytes(8192), 100 - number)
    with pytest.raises(TimeoutError):
        spool.bound_all(store, clock.now_s, clock.sleep)
    assert [one.path for one in spool.files_of(revision)] == ["3"]


def test_a_full_disk_does_not_keep_the_spool_from_making_room(
    make_revision: MakeRevision, monkeypatch: pytest.MonkeyPatch
) -> None:
    revision = make_revision(output=place(AWAY), disk_size_gb=0.001)
    for number in range(20):
        write(revision, f"frame-{number}", bytes(64 << 10), 20)

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(spool, "write_json", full)
        spool.copy(revision)
    assert sum(one.size for one in spool.files_of(revision)) <= 500_000


class Shelf:
    """A datastore that takes everything."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def takes(self, _: str) -> bool:
        return True

    def look(self, path: str) -> Entry:
        return Entry(path, FOLDER, 0, 0)

    def write(self, path: str, chunks: Iterator[bytes]) -> None:
        (self.folder / path.replace("/", "-")).write_bytes(b"".join(chunks))

    def rename(self, path: str, to: str) -> None:
        names = [one.replace("/", "-") for one in (path, to)]
        (self.folder / names[0]).rename(self.folder / names[1])


def test_what_is_stored_makes_room_where_the_disk_has_none_to_note_it(
    make_revision: MakeRevision, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the first file would be stored again and again, and the others never."""
    revision = make_revision()
    shelf, names = tmp_path / "shelf", ["1.jpg", "2.jpg", "3.jpg"]
    shelf.mkdir()
    monkeypatch.setattr(spool, "opened", lambda *_: Shelf(shelf))
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", revision.path]
    subprocess.run(mount, check=True)
    try:
        revision.write("spec.json", {"output": place(AWAY), "disk_size_gb": 1})
        for number, name in enumerate(names):
            write(revision, name, bytes(8192), 100 - number)
        with pytest.raises(OSError, match="No space"):
            Path(revision.at("filler")).write_bytes(bytes(1 << 20))
        spool.copy(revision)
        assert sorted(one.name for one in shelf.iterdir()) == [f"shop-7-{one}" for one in names]
        assert len(list(Path(revision.at("output")).iterdir())) < len(names)
        found = spool.report([revision])
        assert (found["waiting_files"], found["dropped_files"]) == (0, 0)
    finally:
        subprocess.run(["umount", revision.path], check=True)


def test_what_was_dropped_or_lost_with_a_revision_is_counted_after_its_end(
    store: Store, make_revision: MakeRevision
) -> None:
    revision = make_revision(output=place(AWAY), output_buffer={"limit_bytes": 8192})
    for number in range(3):
        write(revision, str(number), bytes(8192), 100 - number)
    spool.bound(revision)
    for _ in range(2):  # As where the removal is tried again.
        spool.note_gone(store, revision)
    shutil.rmtree(revision.path)
    found = spool.report([], spool.gone(store))
    assert (found["dropped_files"], found["dropped_bytes"], found["waiting_files"]) == (3, 24576, 0)
    assert spool.gone(store)["lost_files"] == 1
