"""The tar stream of a folder, from any byte on, whatever the share says that it has."""

import io
import os
import tarfile
from pathlib import Path

import pytest

from activities.agent.datastores.files import FOLDER, LINK, OTHER, Entry
from activities.agent.datastores.reading import (
    Listed,
    MountedFiles,
    identity_of,
    listing,
    tar_bytes,
    tar_from,
)
from activities.agent.errors import RefusedError
from tests.activities.agent.test_datastore_copies import Hostile


@pytest.fixture
def files(tmp_path: Path) -> MountedFiles:
    """A mounted share, here in the shape of a folder of this machine."""
    (tmp_path / "set/b").mkdir(parents=True)
    (tmp_path / "set/a").write_bytes(b"a" * 1000)
    (tmp_path / "set/b" / ("long" * 50)).write_bytes(b"b" * 513)
    (tmp_path / "set/.baseload-part-1").write_bytes(b"not whole")
    (tmp_path / "link").symlink_to("set")
    return MountedFiles(os.open(tmp_path, os.O_RDONLY))


def listed(files: MountedFiles) -> list[Listed]:
    return listing(files, ["set"], lambda _: None)


def test_a_stream_goes_on_from_every_byte(files: MountedFiles) -> None:
    found = listed(files)
    whole = b"".join(tar_from(files, ["set"], found, 0))
    assert len(whole) == tar_bytes(found)
    for begin in (0, 1, 511, 512, 700, 1535, 1536, 2000, len(whole) - 1, len(whole)):
        assert b"".join(tar_from(files, ["set"], found, begin)) == whole[begin:]
    with tarfile.open(fileobj=io.BytesIO(whole)) as tar:
        assert [(one.name, one.size) for one in tar] == [("a", 1000), ("b/" + "long" * 50, 513)]


def test_what_has_changed_has_another_identity_or_is_refused(
    files: MountedFiles, tmp_path: Path
) -> None:
    found = listed(files)
    assert identity_of(listed(files)) == identity_of(found)
    (tmp_path / "set/a").write_bytes(b"a" * 999)
    assert identity_of(listed(files)) != identity_of(found)
    with pytest.raises(RefusedError, match="1000 bytes, and now 999") as refused:
        list(tar_from(files, ["set"], found, 0))
    assert refused.value.code == "datastore-moved"


def test_no_link_is_followed(files: MountedFiles) -> None:
    for names in (["link"], ["set", "a"], ["none"], ["link", "b"]):
        with pytest.raises(RefusedError) as refused:
            listing(files, names, lambda _: None)
        assert refused.value.code == "datastore-path"


@pytest.mark.parametrize("kind", [LINK, OTHER])
def test_a_folder_with_anything_else_is_refused(kind: str) -> None:
    share = Hostile({"": [Entry("d", FOLDER)], "d": [Entry("x", kind)]}, {})
    with pytest.raises(RefusedError, match="d/x: is a"):
        listing(share, [], lambda _: None)


def test_folders_without_end_are_refused() -> None:
    class Deep(Hostile):
        def entries(self, path: str):  # type: ignore[no-untyped-def]
            yield Entry("d", FOLDER)

    with pytest.raises(RefusedError, match="too many folders"):
        listing(Deep({}, {}), [], lambda _: None)
