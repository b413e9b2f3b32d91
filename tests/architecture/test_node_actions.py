"""An action of a node is said once: the files that name `reboot` are those of the checklist."""

from __future__ import annotations

import re
from pathlib import Path

from tests.architecture.source import LAYERS, ROOT

OWN_FOLDERS = ("workflows/nodes/", "workflows/hosts/", "workflows/devices/")
OF_DEVICES = re.compile(r"(^|/)devices?\.py$")
GENERATED = ("_async/operations.py", "_sync/operations.py", "models.py", "node_actions.py")
_NAMED = re.compile(r"reboot(?![_-]required)", re.IGNORECASE)


def _checklist() -> set[str]:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    section = text.partition("### b. ")[2].partition("### c. ")[0]
    return set(re.findall(r"^\d+\. `([^`]+\.py)`", section, re.MULTILINE))


def _files_that_name_it() -> set[str]:
    folders = [*(ROOT / layer for layer in LAYERS), ROOT / "client"]
    paths = [path.relative_to(ROOT).as_posix() for top in folders for path in top.rglob("*.py")]
    return {
        path
        for path in paths
        if not path.startswith(OWN_FOLDERS)
        and not path.endswith(GENERATED)
        and not OF_DEVICES.search(path)
        and _NAMED.search(Path(ROOT / path).read_text())
    }


def test_the_checklist_of_an_action_names_every_file_outside_the_folders_of_nodes() -> None:
    assert _checklist() == _files_that_name_it()
    assert len(_checklist()) <= 7
