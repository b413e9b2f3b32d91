"""How much disk a run may still use, and how much it does."""

from __future__ import annotations

import contextlib
import os
import pwd
import sys
from collections.abc import Generator, Iterable
from typing import Any

from ..folders import JOB_USER, OWN_ENVIRONMENT, REVISION, Run
from . import containers, deleted_files, file_tree, own_folders, run_contents

LEAST_FREE_TO_RUN_BYTES = 32 << 20
LEAST_FREE_TO_STAGE_BYTES = 64 << 20
LEAST_FREE_TO_INSTALL_BYTES = 256 << 20
RESERVED_BYTES = 1 << 20
STEP_ENTRIES = 20_000
GROWN_BYTES = 8 << 20
"""A run that has grown by this much while the node's disk filled up is ended for it."""
LIMIT_SHARE = 0.5
"""The share that the output of a device has of the disk that its configuration gives the command,
where that says no limit of the output."""
DEFAULT_GB = 10
OUTPUT = "output"
OUTPUT_NOTE = "output.json"
"""What is known of a device's output by who bounds it; `is_whole`: whether all of it was seen."""
MEASURED = ("work", OUTPUT, "state", OWN_ENVIRONMENT, own_folders.OWN)
SHARED_FOLDERS = ("/tmp", "/var/tmp")
INPUT = run_contents.INPUT


def reserve(run: Run) -> None:
    """Keep a little room, so that the end of a run that fills the disk can be written down."""
    with contextlib.suppress(OSError), open(run.at("reserve"), "wb") as file:
        os.posix_fallocate(file.fileno(), 0, RESERVED_BYTES)


def release(run: Run) -> None:
    """Free the reserved room."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(run.at("reserve"))


def free_bytes(path: str) -> int:
    """Free space for unprivileged users on the file system of `path`."""
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


def wanted_bytes(disk_size_gb: Any) -> int:
    """How much has to be free for a run to be staged, which may use so much."""
    return max(LEAST_FREE_TO_STAGE_BYTES, int(float(disk_size_gb or 0) * 1e9))


def size_bytes(path: str) -> int:
    """The size of the file system of `path`."""
    found = os.statvfs(path)
    return found.f_blocks * found.f_frsize


def nearly_full(run: Run) -> str | None:
    """What is wrong when the node's disk is nearly full, else None."""
    free = free_bytes(run.path)
    if free >= LEAST_FREE_TO_RUN_BYTES:
        return None
    return "the node's disk is full: %d MiB free, a run needs %d MiB" % (
        free >> 20,
        LEAST_FREE_TO_RUN_BYTES >> 20,
    )


def left_by_installing(folders: Iterable[str]) -> str | None:
    """What is wrong when the file system of one of these folders is nearly full, else None."""
    for folder in folders:
        free = free_bytes(folder)
        if free < LEAST_FREE_TO_INSTALL_BYTES:
            return "%s: %d MiB free, want %d MiB beside what is installed" % (
                folder,
                free >> 20,
                LEAST_FREE_TO_INSTALL_BYTES >> 20,
            )
    return None


def output_limit_bytes(spec: dict[str, Any]) -> int:
    """How many bytes the output of a device may take, which is kept for its datastore."""
    given = (spec.get("output_buffer") or {}).get("limit_bytes")
    if given is not None:
        return int(given)
    return int(float(spec.get("disk_size_gb") or DEFAULT_GB) * 1e9 * LIMIT_SHARE)


class DiskUse:
    """The measuring of what a run has on disk, in steps that hold nobody up for long.

    The file system may hold anything that the command can make, so whatever goes wrong ends the
    measurement, and never the supervisor.
    """

    def __init__(self, run: Run, spec: dict[str, Any]) -> None:
        self.run = run
        self.allowed_gb = spec.get("disk_size_gb")
        self.in_container = spec.get("runtime") == "podman"
        self.user: str | None = None if self.in_container else spec.get("user")
        self.layer: str | None = None
        volumes = [run.at(run_contents.WRITTEN + one["name"]) for one in run_contents.written(spec)]
        shared = run_contents.places(run.folders, spec)
        self.brought = [*(() if INPUT in shared else (run.at(INPUT),)), *volumes]
        """What is put there before the start does not count; the run may write there afterwards."""
        self.most_output_bytes = (
            output_limit_bytes(spec) if run.has(REVISION) and spec.get("output") else None
        )
        """What counts of an output that the device bounds itself; None: all of it."""
        self.given: int | None = None
        """What the input and the volumes have taken when they were first measured."""
        self.used_before = 0
        """What the run used when the node last had room."""
        self._steps: Generator[None, None, str | None] | None = None

    def step(self) -> tuple[bool, str | None]:
        """Measure a little; whether that is all, and then what is wrong, if anything."""
        if self._steps is None:
            self._steps = self._measure()
        try:
            next(self._steps)
        except StopIteration as done:
            self._steps = None
            return True, done.value
        except Exception as error:  # noqa: BLE001 - whatever the run has on disk
            self._steps = None
            sys.stderr.write("measuring the disk: %r\n" % error)
            return True, None
        return False, None

    def _measure(self) -> Generator[None, None, str | None]:
        used = self.run.log_bytes()
        if self.in_container and self.layer is None:
            self.layer = containers.layer_of(self.run.run_id)
        found = yield from self._sum(self.brought)
        self.given = found if self.given is None else self.given
        used += max(0, found - self.given)
        folders = [self.run.at(name) for name in MEASURED]
        if self.most_output_bytes is not None:
            folders.remove(self.run.at(OUTPUT))
            output = yield from self._sum([self.run.at(OUTPUT)])
            used += min(output, self.most_output_bytes) if self._is_output_bounded() else output
        folders += filter(None, [self.layer])
        for entry in (yield from self._elsewhere()):
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
            else:
                used += entry.stat(follow_symlinks=False).st_blocks * 512
        used += yield from self._sum(folders)
        used += yield from deleted_files.measuring()
        if self.allowed_gb and used > float(self.allowed_gb) * 1e9:
            return "the job has written %.1f GB, its disk_size_gb is %s" % (
                used / 1e9,
                self.allowed_gb,
            )
        full = nearly_full(self.run)
        if full is None:
            self.used_before = used
        elif used - self.used_before >= GROWN_BYTES:
            grown_mib = (used - self.used_before) >> 20
            return "%s; this job has written %d MiB of it lately" % (full, grown_mib)
        return None

    def _is_output_bounded(self) -> bool:
        """Whether all of the output is seen, and so bounded; else its command answers for it."""
        return bool((self.run.read(OUTPUT_NOTE) or {}).get("is_whole", True))

    @staticmethod
    def _sum(tops: list[str]) -> Generator[None, None, int]:
        used = 0
        for top in tops:
            with contextlib.suppress(OSError):  # It has gone, or is no folder any more.
                for total in file_tree.measuring(top, STEP_ENTRIES):
                    if total is None:
                        yield None
                    else:
                        used += total
        return used

    def _elsewhere(self) -> Generator[None, None, list[os.DirEntry[str]]]:
        """What the run's own account has made in the folders of this disk that all may write to."""
        found: list[os.DirEntry[str]] = []
        if not self.user or not self.user.startswith(JOB_USER + "-"):
            return found
        uid = pwd.getpwnam(self.user).pw_uid
        for top in filter(os.path.isdir, SHARED_FOLDERS):
            with os.scandir(top) as entries:
                for count, entry in enumerate(entries, 1):
                    if _owner_of(entry) == uid:
                        found.append(entry)
                    if count % STEP_ENTRIES == 0:
                        yield None
        return found


def _owner_of(entry: os.DirEntry[str]) -> int | None:
    try:
        return entry.stat(follow_symlinks=False).st_uid
    except FileNotFoundError:
        return None
