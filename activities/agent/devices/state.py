"""What a device shall run and what it does: two small files that survive a power cut.

<root>/device/asked.json    the newest request: a revision to switch to, or to stop
<root>/device/state.json    what the keeper has made of it, written before each of its acts

The verbs write the first, the keeper alone the second (`keeper.py`).
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

from ..folders import REVISION, Folders, Run, read_json, take_lock, write_json

FOLDER = "device"
ASKED, STATE = "asked.json", "state.json"
ASKING = "lock"
"""The lock of those who ask."""
ENDED = "ended.json"
"""How the command of a revision has ended last; a run's `exit.json` would let its contents go."""
RUNNING, DEPLOYING, STOPPED, FAILED = "running", "deploying", "stopped", "failed"
SWITCH, STOP = "switch", "stop"


class Revision(Run):
    """The folder of a revision, which keeps what its command needs for its next start."""

    def forget_variables(self) -> None:
        """Nothing is forgotten: the device starts the command again without anybody's help."""

    @property
    def is_revision(self) -> bool:
        """Whether the folder is that of a revision of this device."""
        return self.has(REVISION)


class Store:
    """The files of a device below an agent's root."""

    def __init__(self, folders: Folders) -> None:
        self.folders = folders
        self.path = os.path.join(folders.root, FOLDER)

    def at(self, name: str) -> str:
        """The path of one of its files."""
        return os.path.join(self.path, name)

    def make(self) -> None:
        """Make the folder, which root alone can enter."""
        self.folders.make()
        os.makedirs(self.path, mode=0o700, exist_ok=True)

    def lock(self) -> int:
        """Take the lock of those who ask; the descriptor, which is to be closed."""
        return take_lock(self.at(ASKING), wait=True) or 0

    def revision(self, name: str) -> Revision:
        """The folder of a revision. Raises: RefusedError `bad-run-id`."""
        return Revision(self.folders, self.folders.run(name).run_id)

    def asked(self) -> dict[str, Any]:
        """The newest request: `number`, `kind`, `run_id` and `health`; empty when there is none."""
        return read_json(self.at(ASKED)) or {}

    def ask(self, request: dict[str, Any]) -> None:
        """Write the newest request for good."""
        write_json(self.at(ASKED), request)

    def state(self) -> dict[str, Any]:
        """What the device does; see `fresh`."""
        return read_json(self.at(STATE)) or fresh()

    def keep(self, state: dict[str, Any]) -> None:
        """Write what the device does for good."""
        write_json(self.at(STATE), state)


def fresh() -> dict[str, Any]:
    """The state of a device that was never asked anything.

    done: the number of the last request that came to its end, and `failed` why it is not so.
    current, before: `number` and `run_id` of the revision that has proved itself, and of the one
    that did before it.
    trial: the revision that is to prove itself, with its `phase`, `starts` and `health`.
    """
    return {
        "done": 0,
        "failed": None,
        "current": None,
        "before": None,
        "trial": None,
        "status": STOPPED,
        "exit_code": None,
        "reason": "",
        "boot_id": "",
    }


def revisions(folders: Folders) -> list[Revision]:
    """The folders of all revisions that are here, whole or not."""
    found = [Revision(folders, run_id) for run_id in folders.run_ids()]
    return [one for one in found if one.is_revision]


def number_of(revision: Run) -> int:
    """The number of the assignment that brought a revision here; 0, when it is not known."""
    with contextlib.suppress(OSError, ValueError), open(revision.at(REVISION)) as file:
        return int(file.read().strip() or 0)
    return 0
