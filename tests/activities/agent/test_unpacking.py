"""A tar stream that arrives in pieces of any size, and is unpacked as `tar` does."""

import contextlib
import io
import json
import random
import subprocess
import tarfile
from pathlib import Path

import pytest

from activities.agent.contents.unpacking import Unpacker
from activities.agent.errors import RefusedError
from tests.activities.contents import link, tar_of

FORMATS = [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]


def stream_of(kind: int) -> bytes:
    """Files, folders and links with short and long names, and times with fractions."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=kind) as tar:
        for index, size in enumerate((0, 1, 511, 512, 513, 3000)):
            member = tarfile.TarInfo(f"{'d' * 60}/{index}/" + "n" * (90 if index % 2 else 5))
            member.size, member.mtime, member.mode = size, 1_700_000_000 + index / 4, 0o755
            tar.addfile(member, io.BytesIO(random.Random(index).randbytes(size)))
        folder = tarfile.TarInfo("only a folder")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        tar.addfile(link("a link", "only a folder"))
        tar.addfile(link("another", f"{'d' * 60}/0/" + "n" * 5, tarfile.LNKTYPE))
    return packed.getvalue()


def found_in(folder: Path) -> dict[str, object]:
    """What is in a folder: the bytes, mode and time of files, and where links lead."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = path.readlink()
        elif path.is_dir():
            found[name] = None
        else:
            there = path.stat()
            found[name] = (path.read_bytes(), there.st_mode & 0o777, there.st_mtime)
    return found


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("size", [7, 511, 512, 513, 5000, 1 << 20])
def test_it_is_as_tar_unpacks_it_whatever_the_pieces(tmp_path: Path, kind: int, size: int) -> None:
    stream = stream_of(kind)
    (tmp_path / "theirs").mkdir()
    command = ["tar", "-C", str(tmp_path / "theirs"), "--no-same-owner", "-xf", "-"]
    subprocess.run(command, input=stream, check=True)
    ours = tmp_path / "ours"
    ours.mkdir()
    state = None
    for at in range(0, len(stream), size):
        unpacker = Unpacker(str(ours), json.loads(json.dumps(state)))
        unpacker.feed(memoryview(stream[at : at + size]))
        state = unpacker.state
        unpacker.close()
    Unpacker(str(ours), state).finish()
    assert found_in(ours) == found_in(tmp_path / "theirs")


def test_pieces_that_come_again_after_an_earlier_state_change_nothing(tmp_path: Path) -> None:
    """As after a power cut: the files are further than what is known of them."""
    stream = stream_of(tarfile.PAX_FORMAT)
    first = Unpacker(str(tmp_path))
    first.feed(memoryview(stream[:7000]))
    state = first.state
    first.feed(memoryview(stream[7000:]))
    before = found_in(tmp_path)
    again = Unpacker(str(tmp_path), state)
    again.feed(memoryview(stream[7000:]))
    again.finish()
    assert found_in(tmp_path) == before


@pytest.mark.parametrize("seed", range(20))
def test_a_stream_with_wrong_bytes_is_refused_or_stays_inside(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    stream = bytearray(stream_of(FORMATS[seed % 3]))
    for _ in range(30):
        stream[chance.randrange(len(stream))] = chance.randrange(256)
    inside = tmp_path / "inside"
    inside.mkdir()
    unpacker = Unpacker(str(inside))
    with contextlib.suppress(RefusedError):
        unpacker.feed(memoryview(bytes(stream)))
        unpacker.finish()
    unpacker.close()
    assert [path.name for path in tmp_path.iterdir()] == ["inside"]


def test_a_header_without_an_end_is_refused_before_it_fills_the_memory(tmp_path: Path) -> None:
    member = tarfile.TarInfo("x")
    member.type, member.size = tarfile.XHDTYPE, 1 << 32
    with pytest.raises(RefusedError, match="header of its archive is too long"):
        Unpacker(str(tmp_path)).feed(memoryview(member.tobuf(tarfile.USTAR_FORMAT)))


def test_a_sparse_file_is_refused(tmp_path: Path) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        member = tarfile.TarInfo("holes")
        member.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.realsize": str(1 << 40)}
        tar.addfile(member)
    with pytest.raises(RefusedError, match="sparse"):
        Unpacker(str(tmp_path)).feed(memoryview(packed.getvalue()))
    old = bytearray(tar_of(("file", b"x")))
    info = tarfile.TarInfo("holes")
    info.type = tarfile.GNUTYPE_SPARSE
    old[:512] = info.tobuf(tarfile.GNU_FORMAT)[:512]
    with pytest.raises(RefusedError, match="neither a file"):
        Unpacker(str(tmp_path)).feed(memoryview(bytes(old)))
