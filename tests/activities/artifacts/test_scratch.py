"""The folders that killed transfers and deliveries have left on a machine."""

import os
import time
from pathlib import Path

from activities.artifacts.scratch import LEFT_FOR, remove_left_scratch
from activities.settings import settings

OLD = time.time() - LEFT_FOR.total_seconds() - 60


def scratch(subject_id: str, *names: str) -> Path:
    """The folder of a subject, in which nothing has changed for long."""
    folder = settings().home / "transfers" / subject_id
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"x")
    for each in (*folder.rglob("*"), folder):
        os.utime(each, (OLD, OLD))
    return folder


def test_what_nothing_has_changed_for_days_is_removed_and_what_is_written_to_stays(
    home: Path,
) -> None:
    remove_left_scratch()  # There is no folder yet.
    left = scratch("job-left", "token/archive.zip", "token/linked/deep/a")
    written = scratch("job-written", "token/archive.zip", "token/linked/deep/a")
    (written / "token/linked/deep/a").write_bytes(b"more")
    outside = home / "outside"
    outside.write_bytes(b"x")
    (left / "token/link").symlink_to(outside)
    os.utime(left / "token/link", (OLD, OLD), follow_symlinks=False)
    os.utime(left / "token", (OLD, OLD))
    for _ in range(2):
        remove_left_scratch()
    assert [each.name for each in (settings().home / "transfers").iterdir()] == ["job-written"]
    assert (written / "token/archive.zip").read_bytes() == b"x"
    assert outside.exists()
