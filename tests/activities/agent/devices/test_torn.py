"""A staging whose files a power cut has torn before all of them were on the disk."""

import os
from pathlib import Path
from typing import Any

import pytest

from activities.agent.devices import torn, unit, verbs
from activities.agent.devices.state import Revision, Store
from activities.agent.host import images
from activities.agent.packages.environments import MARKER
from tests.activities.agent.devices.conftest import MakeRevision

SPEC = {"owner": "test", "command": "true", "user": None, "runtime": "process"}


@pytest.fixture(autouse=True)
def is_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unit, "check", lambda: None)


def stage(store: Store) -> Revision:
    run_id = "dev-test-0-1-tag"
    request = {"root": store.folders.root, "number": 1, "run_id": run_id, "spec": SPEC}
    verbs.stage_device(request)
    return store.revision(run_id)


def contents(revision: Revision) -> dict[str, bytes]:
    found = {}
    for name in torn.FOLDERS:
        for path in Path(revision.at(name)).rglob("*"):
            if path.is_file() and not path.is_symlink():
                found[str(path)] = path.read_bytes()
    return found


def tear(revision: Revision) -> None:
    for path in contents(revision):
        os.truncate(path, 0)


def test_what_was_torn_before_it_was_on_the_disk_is_staged_anew(store: Store) -> None:
    revision = stage(store)
    whole = contents(revision)
    tear(revision)
    Path(revision.at(torn.WHOLE)).unlink()
    revision.write(torn.STAGING, {"boot_id": "before the cut", "had_image": None})
    stage(store)
    assert any(whole.values())
    assert contents(revision) == whole
    assert revision.has(torn.WHOLE)


def test_what_was_on_the_disk_is_not_staged_again_after_a_boot(store: Store) -> None:
    revision = stage(store)
    revision.write(torn.STAGING, {"boot_id": "the boot before", "had_image": None})
    tear(revision)  # By a person, of whom nothing is known here.
    stage(store)
    assert not any(contents(revision).values())


@pytest.mark.parametrize(("had", "gone"), [(None, ["id-1"]), ("id-1", [])])
def test_a_torn_image_goes_unless_it_was_here_before(
    store: Store,
    make_revision: MakeRevision,
    monkeypatch: pytest.MonkeyPatch,
    had: str | None,
    gone: list[str],
) -> None:
    forgotten: list[str] = []

    def forget(_: Any, image_id: str) -> None:
        forgotten.append(image_id)

    monkeypatch.setattr(images, "id_of", lambda _: "id-1")
    monkeypatch.setattr(images, "forget_torn", forget)
    revision = make_revision(1, image_id="id-1")
    revision.write(torn.STAGING, {"boot_id": "before the cut", "had_image": had})
    torn.begin(revision, "registry.example/shop:1")
    assert (forgotten, revision.has("spec.json")) == (gone, False)
    torn.begin(revision, "registry.example/shop:1")
    assert forgotten == gone, "once, for the staging of this boot goes on"


def test_a_staging_removes_what_was_left_behind_and_what_nothing_here_uses(store: Store) -> None:
    used = stage(store)
    environment = (used.read("spec.json") or {})["packages_path"]
    unused, young = (Path(store.folders.packages, letter * 32) for letter in "ab")
    left = Path(store.folders.runs, ".removed-dev-test-0-9-tag.1")
    for folder in (unused, young, left):
        folder.mkdir()
    stone = Path(store.folders.removed, "dev-test-0-9-tag")
    stone.touch()
    for path in (unused, stone, Path(environment, MARKER)):
        os.utime(path, (0, 0))
    Path(used.at(torn.WHOLE)).unlink()
    stage(store)
    gone = [path.exists() for path in (unused, stone, left)]
    assert gone == [False, False, False]
    assert (young.exists(), Path(environment).exists()) == (True, True)
