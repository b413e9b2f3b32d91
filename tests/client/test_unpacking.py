"""What comes from elsewhere is written below its folder, or not at all."""

import io
import tarfile
from pathlib import Path

import pytest
from baseload.unpacking import UnpackingError, unpack


def _archive(folder: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    path = folder / "output.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for info, content in members:
            archive.addfile(info, io.BytesIO(content))
    return path


def _file(name: str, content: bytes = b"x") -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    return info, content


def _link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info, b""


def test_files_come_out_as_they_went_in(tmp_path: Path) -> None:
    archive = _archive(tmp_path, _file("model.bin", b"weights"), _file("plots/loss.png", b"png"))
    unpacked = unpack(archive, tmp_path / "new" / "out")
    assert unpacked.files == ("model.bin", "plots/loss.png")
    assert unpacked.content_bytes == 10
    assert (tmp_path / "new" / "out" / "plots" / "loss.png").read_bytes() == b"png"


@pytest.mark.parametrize("name", ["../evil", "/tmp/evil", "a/../../evil"])
def test_a_name_that_leaves_the_folder_refuses_everything(tmp_path: Path, name: str) -> None:
    archive = _archive(tmp_path, _file("good"), _file(name))
    with pytest.raises(UnpackingError, match="leaves its folder"):
        unpack(archive, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_link_out_is_left_out_and_nothing_is_written_through_it(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    archive = _archive(tmp_path, _link("way", str(outside)), _file("way/evil"), _file("good"))
    unpacked = unpack(archive, tmp_path / "out")
    assert unpacked.left_out == ("way",)
    assert list(outside.iterdir()) == []
    assert (tmp_path / "out" / "way" / "evil").is_file()


def test_a_link_that_was_there_before_leads_nobody_out(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    out = tmp_path / "out"
    out.mkdir()
    (out / "way").symlink_to(outside)
    with pytest.raises(UnpackingError, match="leads out"):
        unpack(_archive(tmp_path, _file("way/evil")), out)
    assert list(outside.iterdir()) == []


def test_links_inside_are_kept(tmp_path: Path) -> None:
    archive = _archive(
        tmp_path,
        _link("latest", "step-2"),
        _file("step-2", b"two"),
        _link("same", "step-2", tarfile.LNKTYPE),
    )
    unpack(archive, tmp_path / "out")
    unpack(archive, tmp_path / "out")
    assert (tmp_path / "out" / "latest").read_bytes() == b"two"
    assert (tmp_path / "out" / "same").read_bytes() == b"two"


def test_devices_are_left_out(tmp_path: Path) -> None:
    archive = _archive(tmp_path, _link("disk", "", tarfile.BLKTYPE), _file("good"))
    assert unpack(archive, tmp_path / "out").left_out == ("disk",)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["good"]


@pytest.mark.parametrize("keep", [0.0, 0.5, 0.9])
def test_a_broken_archive_is_refused_before_anything_is_written(
    tmp_path: Path, keep: float
) -> None:
    archive = _archive(tmp_path, _file("a", bytes(range(256)) * 400), _file("b"))
    content = archive.read_bytes()
    archive.write_bytes(content[: int(len(content) * keep)])
    with pytest.raises(UnpackingError, match="cannot be unpacked"):
        unpack(archive, tmp_path / "out")
    assert not (tmp_path / "out").exists()
