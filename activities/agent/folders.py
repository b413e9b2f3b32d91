"""The agent's folders on a node, and how a file is written so that a crash never leaves half of it.

<root>/agent/              the agent's own archives
<root>/code/<sha256>/      unpacked uploads
<root>/packages/<key>/     one virtual environment per package set
<root>/packages/owned/     those of the runs of the machine's owner, for their group alone
<root>/system/<key>/       one system layer per set of Debian packages
<root>/packages/pip-<key>/ the pip of all runs
<root>/status.json         what the console shows of the node, see `prepare.py: show_status`
<root>/idle/               the agent root of the idle workload, see `idle/README.md`
<root>/datastores/<id>/    the lock and the mount of a datastore, for root alone
<root>/images/<image id>   a container image that a run had pulled; podman has the image itself
<root>/contents/<sha256>/  datasets, models and checkpoints, see `contents/store.py`
<root>/runs/<run_id>/      owner.json contents.json spec.json devices.json command variables lock
                           process.json
                           beat.json idle.json hostname.json exit.json log
                           setup work/ input/ output/ state/ venv/ keys/ volumes.json
                           volume-<name>/
<root>/runs/.removed-*/    runs that are being removed
<root>/device/             what a device shall run and what it does, see `devices/state.py`
<root>/removed/<run_id>    a tombstone: that run was removed, and is not made again
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
from typing import Any

from .errors import RefusedError

RUN_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,119}\Z")
SHA256 = re.compile(r"[0-9a-f]{64}\Z")
JOB_USER = "baseload-job"
OWNED_GROUP = "baseload-owned"
"""The group of runs that belong to the machine's owner."""
VARIABLES = "variables"
COMMAND = "command"
DEVICES = "devices.json"
AUTH = "auth.json"
"""The login of a registry, while an image is pulled with it."""
KEYS = "keys"
"""The folder of the files of a run's third-party keys."""
OWN_ENVIRONMENT = "venv"
"""The virtual environment of the run itself."""
SETUP = "setup"
"""What the set-up step of the run has come to; the run's own account writes it."""

REVISION = "device-revision"
"""The file of a run's folder that says that it is a revision of this device, and no job's run."""


def default_root() -> str:
    """The agent's root folder when a request names none."""
    if os.geteuid() == 0:
        return "/var/lib/baseload"
    return os.path.join(os.path.expanduser("~"), ".baseload-node")


class Folders:
    """The paths under one agent root."""

    def __init__(self, root: str) -> None:
        self.root = os.path.abspath(os.path.expanduser(root or default_root()))
        self.code = os.path.join(self.root, "code")
        self.packages = os.path.join(self.root, "packages")
        self.owned_packages = os.path.join(self.packages, "owned")
        self.system_layers = os.path.join(self.root, "system")
        self.contents = os.path.join(self.root, "contents")
        self.runs = os.path.join(self.root, "runs")
        self.removed = os.path.join(self.root, "removed")

    def make(self) -> list[str]:
        """Make the missing folders, and return them; job accounts may enter them, but not list."""
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
        """The folder of one run, which need not exist.

        Raises: RefusedError `bad-run-id`, when the id has other characters than a run id.
        """
        if not isinstance(run_id, str) or not RUN_ID.match(run_id):
            raise RefusedError("bad-run-id", "run id %r: want a-z, 0-9 and -" % (run_id,))
        return Run(self, run_id)

    def run_ids(self) -> list[str]:
        """Every run that has a folder, sorted."""
        try:
            return sorted(name for name in os.listdir(self.runs) if RUN_ID.match(name))
        except FileNotFoundError:
            return []

    def open_specs(self) -> list[dict[str, Any]]:
        """The specs of all staged runs whose command has not ended; what they name is in use."""
        runs = [self.run(run_id) for run_id in self.run_ids()]
        return [run.read("spec.json") or {} for run in runs if not run.has("exit.json")]

    def code_of(self, sha256: str) -> str:
        """The folder of the unpacked upload with this hash, which need not exist.

        Raises: RefusedError `bad-hash`, when the hash is not 64 hexadecimal digits.
        """
        if not isinstance(sha256, str) or not SHA256.match(sha256):
            raise RefusedError("bad-hash", "sha256 %r: want 64 hexadecimal digits" % (sha256,))
        return os.path.join(self.code, sha256)


class Run:
    """The folder of one run, with the small JSON documents in it."""

    def __init__(self, folders: Folders, run_id: str) -> None:
        self.folders = folders
        self.run_id = run_id
        self.path = os.path.join(folders.runs, run_id)
        self.log = os.path.join(self.path, "log")

    def at(self, name: str) -> str:
        """The path of a file or folder of this run."""
        return os.path.join(self.path, name)

    def has(self, name: str) -> bool:
        """Whether that file or folder exists."""
        return os.path.lexists(self.at(name))

    def make(self, owner: str | None = None) -> None:
        """Make the run's folder; other accounts may enter the folder, but not list it.

        owner: the control plane that makes the run, kept so that even a run that is never staged
        has an owner.
        """
        self.folders.make()
        os.makedirs(self.path, exist_ok=True)
        os.chmod(self.path, 0o711)
        if owner is not None and not self.has("owner.json"):
            self.write("owner.json", {"owner": owner}, durable=False)

    def owner(self) -> str | None:
        """The control plane that owns the run; None when the run names no owner."""
        document = self.read("spec.json") or self.read("owner.json") or {}
        owner: str | None = document.get("owner")
        return owner

    def read(self, name: str) -> dict[str, Any] | None:
        """The JSON document of that name; None when it does not exist."""
        return read_json(self.at(name))

    def write(self, name: str, document: dict[str, Any], durable: bool = True) -> None:
        """Replace the JSON document of that name at once; a durable one survives a power cut."""
        write_json(self.at(name), document, durable)

    def forget_variables(self) -> None:
        """Remove the command, its variables and its keys from disk, because they are secret."""
        spec = self.read("spec.json") or {}
        keys = (spec.get("keys") or {}).get("files") or {}
        for name in (COMMAND, VARIABLES, AUTH, *(os.path.join(KEYS, each) for each in keys)):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.at(name))
        with contextlib.suppress(OSError):  # The run of an account that is ours may have added.
            os.rmdir(self.at(KEYS))
        found = [spec.pop(name, None) for name in ("environment", "keys")]
        if any(found):
            self.write("spec.json", spec)

    def log_bytes(self) -> int:
        """The length of the log in bytes; 0 without a log."""
        try:
            return os.stat(self.log).st_size
        except FileNotFoundError:
            return 0


def read_json(path: str) -> dict[str, Any] | None:
    """The JSON document at `path`; None when the file does not exist or is not a whole document."""
    try:
        with open(path, "rb") as file:
            document = json.loads(file.read())
    except (FileNotFoundError, ValueError):
        return None
    return document if isinstance(document, dict) else None


def write_json(path: str, document: dict[str, Any], durable: bool = True) -> None:
    """Replace a JSON document, mode 0600: readers see either the old or the new document.

    Raises: OSError, when the disk is full or the folder is gone; the old document then stays.
    """
    folder = os.path.dirname(path)
    # Not by `tempfile`, whose import takes an eighth of a verb's time.
    part = os.path.join(folder, ".part-" + os.urandom(8).hex())
    descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(json.dumps(document).encode())
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.rename(part, path)
    except BaseException:  # Also when interrupted: remove the incomplete file.
        os.unlink(part)
        raise
    if durable:
        sync_folder(folder)


def forget(path: str) -> None:
    """Remove a file; silent when there is none."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def sync_folder(path: str) -> None:
    """Make the names in a folder survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def take_lock(path: str, wait: bool) -> int | None:
    """Take an exclusive lock, and return its open descriptor.

    None when `wait` is false and another process holds the lock. The kernel releases the lock when
    its process ends, in whatever way.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor
