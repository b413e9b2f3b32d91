"""The third-party keys of a run: files for the run's account alone, gone when the run has ended.

<run>/keys/<name>   a file of a key; the folder is root's, so that nothing else can be put there
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
from typing import Any

from ..folders import KEYS, Run

NAME = re.compile(r"[a-z0-9_][a-z0-9_.]{0,63}\Z")
PLACE = "{keys}"


def write(run: Run, spec: dict[str, Any]) -> None:
    """Write the files of a run's keys, mode 0600, for the account of its spec.

    Raises: ValueError, for a name that can be none of a file; OSError, when the disk is full.
    """
    files = (spec.get("keys") or {}).get("files") or {}
    if not files:
        return
    with contextlib.suppress(FileExistsError):
        os.mkdir(run.at(KEYS), 0o700)
    account = pwd.getpwnam(spec["user"]) if spec.get("user") else None
    for name, text in files.items():
        if not NAME.match(name):
            raise ValueError("key of run %s: no name for a file" % run.run_id)
        path = os.path.join(run.at(KEYS), name)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            if account is not None:
                os.fchown(file.fileno(), account.pw_uid, account.pw_gid)
            file.write(text)
    # Entered by the account, and listed by nobody: each file is open to the account alone.
    os.chmod(run.at(KEYS), 0o711)


def variables(spec: dict[str, Any], top: str) -> dict[str, str]:
    """The variables that name the files of a run's keys. top: where the run's folders are for it.

    A variable that the job itself sets stays as it is.
    """
    keys = spec.get("keys") or {}
    folder = "%s/%s" % (top, KEYS)
    found = {name: text.replace(PLACE, folder) for name, text in (keys.get("paths") or {}).items()}
    if keys.get("files"):
        found["BASELOAD_KEYS"] = folder
    own = spec.get("environment") or {}
    return {name: text for name, text in found.items() if name not in own}


def volumes(run: Run, top: str) -> list[str]:
    """podman's arguments that show a container the keys of its run, read-only."""
    if not run.has(KEYS):
        return []
    return ["--volume", "%s:%s/%s:ro" % (run.at(KEYS), top, KEYS)]
