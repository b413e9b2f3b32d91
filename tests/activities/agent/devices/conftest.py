"""A revision of a device in a root of its own, without a keeper."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from activities.agent.devices.state import Revision, Store
from activities.agent.folders import REVISION, Folders

MakeRevision = Callable[..., Revision]


@pytest.fixture
def store() -> Iterator[Store]:
    """Where other accounts can enter, as on a device."""
    root = Path(tempfile.mkdtemp(prefix="baseload-device-", dir="/var/tmp"))
    root.chmod(0o755)
    found = Store(Folders(str(root)))
    found.make()
    yield found
    shutil.rmtree(root)


@pytest.fixture
def make_revision(store: Store) -> MakeRevision:
    def make(number: int = 1, **spec: Any) -> Revision:
        revision = store.revision(f"dev-test-0-{number}-tag")
        revision.make("test")
        Path(revision.at(REVISION)).write_text(f"{number}\n")
        Path(revision.at("output")).mkdir()
        revision.write("spec.json", {"owner": "test", "command": "true", **spec})
        return revision

    return make
