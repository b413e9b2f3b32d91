"""A folder becomes the same archive whenever its files are the same."""

import io
import os
import tarfile
from pathlib import Path

import pytest
from baseload.packing import OUTPUT_MARK, PackingError, pack, pack_to_file


def _packed(folder: Path) -> bytes:
    target = io.BytesIO()
    pack(folder, target)
    return target.getvalue()


def _names(folder: Path) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(_packed(folder))) as archive:
        return archive.getnames()


def _write(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)


def test_equal_files_give_equal_bytes_whatever_their_times_and_the_order_of_making(
    tmp_path: Path,
) -> None:
    _write(tmp_path / "a", "train.py", "data/x.csv", "data/y.csv")
    _write(tmp_path / "b", "data/y.csv", "data/x.csv", "train.py")
    os.utime(tmp_path / "b" / "train.py", (1, 1))
    (tmp_path / "b" / "data" / "x.csv").chmod(0o600)
    assert _packed(tmp_path / "a") == _packed(tmp_path / "b")


def test_a_file_that_can_be_run_can_be_run_after_unpacking(tmp_path: Path) -> None:
    _write(tmp_path, "run.sh", "plain.txt")
    (tmp_path / "run.sh").chmod(0o700)
    with tarfile.open(fileobj=io.BytesIO(_packed(tmp_path))) as archive:
        assert {member.name: member.mode for member in archive} == {
            "plain.txt": 0o644,
            "run.sh": 0o755,
        }


def test_an_archive_says_nothing_of_who_made_it(tmp_path: Path) -> None:
    _write(tmp_path, "train.py")
    with tarfile.open(fileobj=io.BytesIO(_packed(tmp_path))) as archive:
        (member,) = archive.getmembers()
    assert (member.uid, member.gid, member.uname, member.gname, member.mtime) == (0, 0, "", "", 0)


def test_a_fetched_output_is_no_code_and_is_said_to_be_left_out(tmp_path: Path) -> None:
    _write(tmp_path, "a.py", f"job-1/{OUTPUT_MARK}", "job-1/weights", "sub/b.py")
    assert _names(tmp_path) == ["a.py", "sub", "sub/b.py"]
    assert pack(tmp_path, io.BytesIO()).outputs == ("job-1",)
    assert _names(tmp_path / "job-1") == [OUTPUT_MARK, "weights"], "unless it is what is sent"


def test_what_tools_leave_behind_is_left_out(tmp_path: Path) -> None:
    _write(tmp_path, "a.py", ".git/HEAD", "__pycache__/a.pyc", "sub/b.pyc", ".venv/bin/python")
    assert _names(tmp_path) == ["a.py", "sub"]


@pytest.mark.parametrize(
    ("rules", "left"),
    [
        ("*.csv", ["deep", "deep/data", "deep/data/b.txt", "data", "data/b.txt"]),
        ("data/", ["deep"]),
        ("/data", ["deep", "deep/data", "deep/data/a.csv", "deep/data/b.txt"]),
        ("deep/data\n# data", ["deep", "data", "data/a.csv", "data/b.txt"]),
        ("deep\ndata/b.txt", ["data", "data/a.csv"]),
    ],
)
def test_an_ignore_file_leaves_out_what_it_names(
    tmp_path: Path, rules: str, left: list[str]
) -> None:
    _write(tmp_path, "data/a.csv", "data/b.txt", "deep/data/a.csv", "deep/data/b.txt")
    (tmp_path / ".baseloadignore").write_text(rules + "\n")
    assert _names(tmp_path) == sorted(left)


def test_what_git_ignores_is_left_out_at_each_depth_and_above(tmp_path: Path) -> None:
    code = tmp_path / "repository" / "code"
    _write(code, "train.py", "a.csv", "keep.csv", "sub/b.csv", "sub/c.txt", "sub/d/c.txt", "big.pt")
    _write(tmp_path / "repository", ".git/HEAD")
    (tmp_path / "repository" / ".gitignore").write_text("*.pt\n/code/train.txt\n")
    (code / ".gitignore").write_text("# comment\n*.csv\n!keep.csv\n")
    (code / "sub" / ".gitignore").write_text("/c.txt\n!b.csv\n")
    left = ["sub", "sub/.gitignore", "sub/b.csv", "sub/d", "sub/d/c.txt", "train.py"]
    assert _names(code) == [".gitignore", "keep.csv", *left]
    above = str(tmp_path / "repository" / ".gitignore")
    assert {each.name: each.by for each in pack(code, io.BytesIO()).left_out} == {
        "a.csv": ".gitignore",
        "big.pt": above,
        "sub/c.txt": "sub/.gitignore",
    }


def test_a_folder_that_git_ignores_is_packed_when_it_is_what_is_sent(tmp_path: Path) -> None:
    _write(tmp_path, ".git/HEAD", "scratch/train.py")
    (tmp_path / ".gitignore").write_text("scratch/\n")
    assert _names(tmp_path / "scratch") == ["train.py"]


def test_the_ignore_file_takes_in_again_what_git_ignores(tmp_path: Path) -> None:
    _write(tmp_path, "weights.pt", "other.pt", "__pycache__/a.pyc")
    (tmp_path / ".gitignore").write_text("*.pt\n")
    (tmp_path / ".baseloadignore").write_text("!weights.pt\n!__pycache__\n")
    assert _names(tmp_path) == [".gitignore", "weights.pt"], "but never what is always left out"


def test_the_largest_files_are_known(tmp_path: Path) -> None:
    for size in range(7):
        (tmp_path / f"{size}.bin").write_bytes(b"x" * size)
    packed = pack(tmp_path, io.BytesIO())
    assert packed.largest == tuple((f"{size}.bin", size) for size in (6, 5, 4, 3, 2))
    assert (packed.file_count, packed.content_bytes) == (7, 21)


def test_an_ignore_file_that_is_no_text_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_bytes(b"\xff\xfe")
    with pytest.raises(PackingError, match=r"\.gitignore"):
        _packed(tmp_path)


def test_a_link_inside_the_folder_becomes_the_file_it_names(tmp_path: Path) -> None:
    _write(tmp_path, "a.txt")
    (tmp_path / "b.txt").symlink_to("a.txt")
    with tarfile.open(fileobj=io.BytesIO(_packed(tmp_path))) as archive:
        member = archive.getmember("b.txt")
        assert member.isreg()
        content = archive.extractfile(member)
        assert content is not None
        assert content.read() == b"a.txt"


@pytest.mark.parametrize("target", ["/etc/hostname", "../outside.txt", "missing.txt"])
def test_a_link_that_leads_out_is_refused_by_name(tmp_path: Path, target: str) -> None:
    folder = tmp_path / "code"
    _write(folder, "a.txt")
    _write(tmp_path, "outside.txt")
    (folder / "way-out").symlink_to(target)
    with pytest.raises(PackingError, match=r"way-out is a link to"):
        _packed(folder)


def test_a_pipe_is_refused_by_name(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(PackingError, match=r"pipe: neither a file nor a folder"):
        _packed(tmp_path)


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PackingError, match=r"nowhere: does not exist"):
        _packed(tmp_path / "nowhere")


def test_the_packed_file_is_gone_after_its_use(tmp_path: Path) -> None:
    _write(tmp_path, "a.txt")
    with pack_to_file(tmp_path) as archive:
        assert archive.packed.file_count == 1
        assert archive.size_bytes > 0
    assert not archive.path.exists()
