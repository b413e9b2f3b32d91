"""What is pruned beside runs that begin: whatever a run has taken, or builds, stays."""

import os
from pathlib import Path

import pytest

from activities.agent.files import code
from activities.agent.folders import Folders, take_lock
from activities.agent.packages import environments
from tests.activities import archives
from tests.activities.agent.agent_process import LocalAgent, spec
from tests.activities.archives import file

NAME = "0" * 32
SHA256 = "0" * 64


def unused(folder: Path, marker: str = "") -> Path:
    """A folder that was used last in 1970, with a file in it."""
    folder.mkdir(parents=True)
    (folder / "content").write_text("content")
    if marker:
        (folder / marker).touch()
        os.utime(folder / marker, (0, 0))
    os.utime(folder, (0, 0))
    return folder


def whole(root: Path) -> Path:
    return unused(root / "packages" / NAME, environments.MARKER)


def test_what_is_unused_is_removed_and_what_broken_builds_have_left(agent: LocalAgent) -> None:
    folders = [
        whole(agent.root),
        unused(agent.root / "packages/owned" / NAME),
        unused(agent.root / "code" / SHA256),
        unused(agent.root / "code/.part-x"),
    ]
    removed = agent.call("prune", max_age_s=3600)["removed"]
    assert sorted(removed) == sorted(str(one.relative_to(agent.root)) for one in folders)
    assert not any(one.exists() for one in folders)


def test_files_of_a_package_do_not_keep_its_environment_from_being_removed(
    agent: LocalAgent,
) -> None:
    folder = whole(agent.root)
    (folder / environments.FORGOTTEN / "of a package").mkdir(parents=True)
    removed = agent.call("prune", max_age_s=3600)["removed"]
    assert removed == [str(folder.relative_to(agent.root))]
    assert not folder.exists()


@pytest.mark.parametrize("kind", ["environment", "code"])
def test_what_is_being_built_or_taken_meanwhile_is_not_removed(
    agent: LocalAgent, kind: str
) -> None:
    folder = whole(agent.root) if kind == "environment" else unused(agent.root / "code" / SHA256)
    lock = take_lock(f"{folder}.lock", wait=False)
    assert lock is not None
    assert agent.call("prune", max_age_s=3600)["removed"] == []
    assert (folder / "content").exists()
    os.close(lock)
    assert agent.call("prune", max_age_s=3600)["removed"] == [str(folder.relative_to(agent.root))]


def test_an_environment_that_a_run_takes_before_its_removal_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = whole(tmp_path)
    rename = os.rename

    def rename_too_late(source: str, target: str) -> None:
        assert environments.take(str(folder)) is source.endswith(environments.MARKER)
        rename(source, target)

    monkeypatch.setattr(os, "rename", rename_too_late)
    assert not environments.forget(str(folder), oldest=1.0)
    assert environments.take(str(folder))
    assert sorted(each.name for each in folder.iterdir()) == [environments.MARKER, "content"]


def test_an_environment_that_has_just_been_forgotten_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = whole(tmp_path)
    is_whole = environments.is_whole

    def seen_before(path: str) -> bool:
        found = is_whole(path)
        assert environments.forget(path, oldest=1.0)
        return found

    monkeypatch.setattr(environments, "is_whole", seen_before)
    assert environments.take(str(folder)) is False


def test_code_that_a_run_takes_before_its_removal_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = Folders(str(tmp_path))
    folder = unused(tmp_path / "code" / SHA256)

    def take_first(path: str, wait: bool) -> int | None:
        monkeypatch.undo()
        assert code.take(folders, SHA256) == str(folder)
        return take_lock(path, wait)

    monkeypatch.setattr(code, "take_lock", take_first)
    assert not code.forget(folders, SHA256, oldest=1.0)
    assert (folder / "content").exists()


def test_code_that_was_found_stays_for_its_run(agent: LocalAgent, tmp_path: Path) -> None:
    path, sha256 = archives.archive(tmp_path, file("a"))
    agent.call("unpack_code", sha256=sha256, archive=str(path))
    os.utime(agent.root / "code" / sha256, (0, 0))
    assert agent.call("has_code", sha256=sha256)["present"]
    assert agent.call("prune", max_age_s=3600)["removed"] == []
    agent.call("stage", run_id="job-taken-0-1", code_sha256=sha256, spec=spec("true"))
