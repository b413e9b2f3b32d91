"""Objects appear whole or not at all, in a local folder and in an object store alike."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest

from activities.storage.blobs import BlobMissingError, BlobStore


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    return BlobStore(f"file://{tmp_path}/s" if request.param == "file" else f"memory://{uuid4()}")


def test_what_was_put_is_what_is_got(store: BlobStore) -> None:
    store.put("code/a.tar.gz", b"x" * 3_000_000)
    assert store.get("code/a.tar.gz") == b"x" * 3_000_000
    assert store.size("code/a.tar.gz") == 3_000_000
    assert [len(chunk) for chunk in store.stream("code/a.tar.gz", 2_000_000)] == [
        2_000_000,
        1_000_000,
    ]


def test_a_file_is_stored_with_its_bytes(store: BlobStore, tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"output")
    store.put_file("outputs/job-1/0-1.tar.gz", path)
    assert store.get("outputs/job-1/0-1.tar.gz") == b"output"


def test_a_writer_that_fails_leaves_no_object_and_no_part(store: BlobStore) -> None:
    def write_and_fail() -> None:
        with store.writer("code/b") as file:
            file.write(b"half")
            raise RuntimeError("cut off")

    with pytest.raises(RuntimeError, match="cut off"):
        write_and_fail()
    assert not store.exists("code/b")
    assert store.names("code") == []
    if store.folder:
        assert list((store.folder / "code").iterdir()) == []
        assert parts(store) == []


def test_what_a_killed_process_was_writing_is_removed_by_the_next_writer(tmp_path: Path) -> None:
    store = BlobStore(f"file://{tmp_path}/s")
    script = "import sys; from activities.storage.blobs import BlobStore\n"
    script += "with BlobStore(sys.argv[1]).writer('code/b') as file:\n"
    script += "    file.write(b'half'); file.flush(); print('wrote', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", script, store.url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"wrote\n"
        store.put("code/a", b"whole")
        assert len(parts(store)) == 1, "the part of a process that lives stays"
        process.kill()
    store.put("code/a", b"whole")
    assert parts(store) == []
    assert store.names("code") == ["code/a"]


def test_many_that_write_at_once_do_not_remove_the_parts_of_each_other(tmp_path: Path) -> None:
    store = BlobStore(f"file://{tmp_path}/s")
    (tmp_path / "received").write_bytes(b"part")

    def write(number: int) -> None:
        store.put(f"code/{number}", b"x" * 10_000)
        store.take_file(f"taken/{number}", tmp_path / "received")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(300)))
    assert len(store.names("code")) + len(store.names("taken")) == 600
    assert parts(store) == []


def parts(store: BlobStore) -> list[Path]:
    assert store.folder is not None
    return list((store.folder / ".parts").iterdir())


def test_a_writer_that_fails_leaves_the_object_that_was_there(store: BlobStore) -> None:
    store.put("code/c", b"whole")

    def write_and_fail() -> None:
        with store.writer("code/c") as file:
            file.write(b"half")
            raise RuntimeError("cut off")

    with pytest.raises(RuntimeError):
        write_and_fail()
    assert store.get("code/c") == b"whole"


def test_what_is_not_there_is_named(store: BlobStore) -> None:
    with pytest.raises(BlobMissingError, match="orders/job-1/1/0"):
        store.get("orders/job-1/1/0")
    assert store.size("orders/job-1/1/0") is None
    assert store.names("nothing") == []


def test_deleting_is_silent_when_nothing_is_there(store: BlobStore) -> None:
    store.delete("code/none")
    store.delete_folder("logs/none")
    store.put("logs/job-1/a", b"1")
    store.put("logs/job-1/b", b"2")
    store.delete("logs/job-1/a")
    assert store.names("logs/job-1") == ["logs/job-1/b"]
    store.delete_folder("logs/job-1")
    assert store.names("logs/job-1") == []


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a//b", "a/../b", "", "a/."])
def test_a_name_cannot_leave_the_store(store: BlobStore, name: str) -> None:
    with pytest.raises(ValueError, match="object name"):
        store.put(name, b"")


def test_of_several_that_store_a_new_object_one_is_first(store: BlobStore) -> None:
    assert store.put_new("artifacts/a", b"first")
    assert not store.put_new("artifacts/a", b"second")
    assert store.get("artifacts/a") == b"first"
    store.put("artifacts/b/c", b"12")
    assert store.sizes("artifacts") == {"artifacts/a": 5, "artifacts/b/c": 2}
    assert store.sizes("none") == {}


def test_a_file_that_is_taken_is_stored_whole_and_stays_where_it_was(
    store: BlobStore, tmp_path: Path
) -> None:
    (tmp_path / "received").write_bytes(b"part")
    (tmp_path / "s").mkdir()
    for _ in range(2):  # As a second attempt.
        store.take_file("artifacts/a/parts/x", tmp_path / "received")
    (tmp_path / "received").unlink()
    assert store.get("artifacts/a/parts/x") == b"part"
    assert store.names("artifacts") == ["artifacts/a/parts/x"]
    if store.folder is not None:
        assert parts(store) == []


def test_a_file_of_another_disk_is_copied(
    store: BlobStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    (tmp_path / "received").write_bytes(b"part")
    store.take_file("artifacts/a", tmp_path / "received")
    assert store.get("artifacts/a") == b"part"
