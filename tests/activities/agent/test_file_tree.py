"""Trees of files that are walked, measured and removed while somebody works against it."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from activities.agent.host import file_tree
from tests.activities.agent.test_remains import make_deep


@pytest.fixture
def top() -> Iterator[Path]:
    """A folder with no long path above it, which is removed whatever is in it."""
    folder = Path(tempfile.mkdtemp(prefix="baseload-tree-", dir="/var/tmp"))
    yield folder
    assert file_tree.remove(str(folder))


def test_what_is_allocated_counts_once_and_what_a_hole_pretends_does_not(top: Path) -> None:
    (top / "big").write_bytes(b"x" * (1 << 20))
    os.link(top / "big", top / "again")
    with (top / "hole").open("wb") as hole:
        hole.truncate(3 << 40)
    (top / "link").symlink_to("/usr")
    assert 1 << 20 <= file_tree.used_bytes(str(top)) < 3 << 20


def test_a_measurement_is_taken_in_steps(top: Path) -> None:
    for number in range(10):
        (top / str(number)).touch()
    steps = list(file_tree.measuring(str(top), 3))
    assert [step is None for step in steps] == [True, True, True, False]


def test_a_walk_does_not_follow_a_folder_that_is_moved_out_of_the_tree(
    top: Path, tmp_path: Path
) -> None:
    make_deep(top, file_tree.KEPT_OPEN + 8)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").touch()
    deepest = top.joinpath(*["deep"] * (file_tree.KEPT_OPEN + 4))
    seen: list[str] = []
    with pytest.raises(OSError, match="moved"):  # noqa: PT012 - the move is in its middle
        for folder in file_tree.walk(str(top)):
            seen += folder.names
            if folder.depth == file_tree.KEPT_OPEN + 6:
                deepest.rename(outside / "moved")
    assert "secret" not in seen
    assert file_tree.remove(str(outside / "moved"))


def test_many_names_are_removed_and_a_link_is_removed_and_not_followed(
    top: Path, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    folder = top / "many"
    folder.mkdir()
    for number in range(file_tree.BATCH * 2 + 1):
        (folder / str(number)).touch()
    (folder / "link").symlink_to(kept)
    (top / "link").symlink_to(kept)
    assert file_tree.remove(str(folder))
    assert file_tree.remove(str(top / "link"))
    assert list(top.iterdir()) == []
    assert (kept / "file").exists()
