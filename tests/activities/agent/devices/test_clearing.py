"""What is left on a device that was removed."""

import os
import subprocess
from pathlib import Path

import pytest

from activities.agent.contents import store as contents
from activities.agent.devices import verbs
from activities.agent.devices.state import Store
from activities.agent.host import images
from tests.activities.agent.devices.conftest import MakeRevision

MODEL, OTHERS = "a" * 64, "b" * 64


def test_a_device_that_is_removed_keeps_no_model(store: Store, make_revision: MakeRevision) -> None:
    make_revision(contents=[{"sha256": MODEL, "name": "detector", "role": "model"}])
    content = Path(store.folders.contents) / MODEL
    content.mkdir(parents=True)
    (content / "weights.bin").write_text("the model")
    verbs.clear_device({"root": store.folders.root})
    left = [name for _, __, names in os.walk(store.folders.root) for name in names]
    assert "weights.bin" not in left


def kept(store: Store, sha256: str) -> Path:
    """A content in the cache of the machine."""
    content = Path(contents.path_of(store.folders, sha256))
    content.mkdir(parents=True)
    return content


def test_a_model_of_an_earlier_revision_goes_as_well(store: Store) -> None:
    earlier = kept(store, OTHERS)
    verbs.clear_device({"root": store.folders.root})
    assert not earlier.exists()


def test_what_jobs_on_the_machine_use_stays(store: Store, make_revision: MakeRevision) -> None:
    make_revision(contents=[{"sha256": MODEL, "name": "detector", "role": "model"}])
    own, of_jobs = kept(store, MODEL), kept(store, OTHERS)
    run = store.folders.run("job-of-node-0-1")
    run.make("test")
    contents.need(run, [OTHERS])
    verbs.clear_device({"root": store.folders.root})
    assert (own.exists(), of_jobs.exists()) == (False, True)


def test_a_model_that_a_job_needs_as_well_stays(store: Store, make_revision: MakeRevision) -> None:
    make_revision(contents=[{"sha256": MODEL, "name": "detector", "role": "model"}])
    shared = kept(store, MODEL)
    run = store.folders.run("job-of-node-0-1")
    run.make("test")
    contents.need(run, [MODEL])
    verbs.clear_device({"root": store.folders.root})
    assert shared.exists()


def test_an_image_that_only_the_device_had_is_removed(
    store: Store, make_revision: MakeRevision, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = {MODEL: ["a/model:1"], OTHERS: ["of/owner:1"]}

    def podman(arguments: list[str], *_: float) -> subprocess.CompletedProcess[bytes]:
        if arguments[0] == "rmi":
            for image in [one for one in here if set(here[one]) & set(arguments[1:])]:
                del here[image]
            return subprocess.CompletedProcess(arguments, 0, b"")
        names = here.get(arguments[-1])
        said = b"" if names is None else str(names).replace("'", '"').encode()
        return subprocess.CompletedProcess(arguments, int(names is None), said)

    monkeypatch.setattr(images, "podman", podman)
    make_revision(image_id=MODEL)
    note = Path(store.folders.root) / "images" / MODEL
    note.parent.mkdir()
    note.write_text('{"names": ["a/model:1"]}')
    verbs.clear_device({"root": store.folders.root})
    assert here == {OTHERS: ["of/owner:1"]}
    assert not note.exists()
