"""The agent's folders on a node, and how files in them are written so that a crash leaves no half.

<root>/code/<sha256>/      unpacked uploads
<root>/packages/<key>/     one virtual environment per package set
<root>/runs/<run_id>/      owner.json spec.json lock process.json beat.json idle.json exit.json log
                           work/ input/ output/ state/
<root>/runs/.removed-*/    runs that are being removed
<root>/removed/<run_id>    a mark: that run was removed, and is not made again
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import tempfile
from typing import Any

from .errors import RefusedError

RUN_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,119}\Z")
SHA256 = re.compile(r"[0-9a-f]{64}\Z")
JOB_USER = "baseload-job"
VARIABLES = "variables"


def default_root() -> str:
    """Where the agent lives when a request names no place."""
    if os.geteuid() == 0:
        return "/var/lib/baseload"
    return os.path.join(os.path.expanduser("~"), ".baseload-node")


class Folders:
    """The paths under one agent root."""

    def __init__(self, root: str) -> None:
        self.root = os.path.abspath(os.path.expanduser(root or default_root()))
        self.code = os.path.join(self.root, "code")
        self.packages = os.path.join(self.root, "packages")
        self.runs = os.path.join(self.root, "runs")
        self.removed = os.path.join(self.root, "removed")

    def make(self) -> list[str]:
        """Make what is missing; the job user may pass through, not list. Returns the new ones."""
        made = []
        for path in (
            self.root,
            os.path.join(self.root, "agent"),
            self.code,
            self.packages,
            self.runs,
            self.removed,
        ):
            if not os.path.isdir(path):
                os.makedirs(path, exist_ok=True)
                made.append(path)
            os.chmod(path, 0o711)
        return made

    def run(self, run_id: str) -> Run:
        """The folder of one run, which need not exist."""
        if not isinstance(run_id, str) or not RUN_ID.match(run_id):
            raise RefusedError("bad-run-id", "run id %r: want a-z, 0-9 and -" % (run_id,))
        return Run(self, run_id)

    def run_ids(self) -> list[str]:
        """Every run that has a folder, sorted."""
        try:
            return sorted(name for name in os.listdir(self.runs) if RUN_ID.match(name))
        except FileNotFoundError:
            return []

    def code_of(self, sha256: str) -> str:
        """Where the upload with this hash lies once it is unpacked."""
        if not isinstance(sha256, str) or not SHA256.match(sha256):
            raise RefusedError("bad-hash", "sha256 %r: want 64 hexadecimal digits" % (sha256,))
        return os.path.join(self.code, sha256)


class Run:
    """The folder of one run and the small documents in it."""

    def __init__(self, folders: Folders, run_id: str) -> None:
        self.folders = folders
        self.run_id = run_id
        self.path = os.path.join(folders.runs, run_id)
        self.log = os.path.join(self.path, "log")

    def at(self, name: str) -> str:
        """The path of a file or folder of this run."""
        return os.path.join(self.path, name)

    def has(self, name: str) -> bool:
        """Whether that file or folder is there."""
        return os.path.lexists(self.at(name))

    def make(self, owner: str | None = None) -> None:
        """Make the run's folder; others may pass through it, not list it.

        owner: the control plane that asks for it, by which a run is known that is never staged.
        """
        self.folders.make()
        os.makedirs(self.path, exist_ok=True)
        os.chmod(self.path, 0o711)
        if owner is not None and not self.has("owner.json"):
            self.write("owner.json", {"owner": owner}, durable=False)

    def owner(self) -> str | None:
        """Whose run it is, None when nobody has said."""
        document = self.read("spec.json") or self.read("owner.json") or {}
        owner: str | None = document.get("owner")
        return owner

    def read(self, name: str) -> dict[str, Any] | None:
        """The JSON document of that name, or None when there is none."""
        return read_json(self.at(name))

    def write(self, name: str, document: dict[str, Any], durable: bool = True) -> None:
        """Replace the JSON document of that name at once; durable survives a power cut."""
        write_json(self.at(name), document, durable)

    def forget_variables(self) -> None:
        """Remove the command's variables from disk: they may be secret, and it is over."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.at(VARIABLES))
        spec = self.read("spec.json")
        if spec is not None and spec.pop("environment", None):
            self.write("spec.json", spec)

    def log_bytes(self) -> int:
        """How long the log is, 0 when there is none."""
        try:
            return os.stat(self.log).st_size
        except FileNotFoundError:
            return 0


def read_json(path: str) -> dict[str, Any] | None:
    """The document at `path`; None when it is not there or was never a whole one."""
    try:
        with open(path, "rb") as file:
            document = json.loads(file.read())
    except (FileNotFoundError, ValueError):
        return None
    return document if isinstance(document, dict) else None


def write_json(path: str, document: dict[str, Any], durable: bool = True) -> None:
    """Write beside and rename, mode 0600: readers see the old document or the new one."""
    folder = os.path.dirname(path)
    descriptor, part = tempfile.mkstemp(prefix=".part-", dir=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(json.dumps(document).encode())
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.rename(part, path)
    except BaseException:  # Also when it is interrupted: no half of it stays.
        os.unlink(part)
        raise
    if durable:
        sync_folder(folder)


def sync_folder(path: str) -> None:
    """Make the names in a folder survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def take_lock(path: str, wait: bool) -> int | None:
    """An exclusive lock as an open descriptor; None when `wait` is false and another holds it.

    The kernel frees it when its holder ends, however that happens.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor
