"""Files of a run that have no name any more: they take disk for as long as a process has them."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Generator, Iterator

from . import processes

STEP_FILES = 5000
IN_MEMORY = ("tmpfs", "ramfs", "hugetlbfs")
"""The kinds of file systems whose files are memory, and are counted as that."""


def measuring() -> Generator[None, None, int]:
    """The bytes on disk of files without a name that descendants of this process have open or
    mapped, each file once; yields now and then, so that nobody waits long.

    What is on its way from one process to another through a socket is not found.
    """
    memory = _devices_of_memory()
    found: dict[tuple[int, int], int] = {}
    looked_at = 0
    for process in processes.descendants({os.getpid()}, processes.everything()):
        known: set[int] | None = None
        for path in _files_of(process.pid):
            looked_at += 1
            if looked_at % STEP_FILES == 0:
                yield None
            with contextlib.suppress(OSError):  # It is closed, or its process has ended.
                file = os.stat(path)
                if file.st_nlink or not stat.S_ISREG(file.st_mode) or file.st_dev in memory:
                    continue
                if known is None:
                    known = set(_mounted_memory(process.pid))
                if file.st_dev not in known:
                    found[file.st_dev, file.st_ino] = file.st_blocks * 512
    return sum(found.values())


def _files_of(pid: int) -> Iterator[str]:
    """What leads to each file that a process has open, and to each without a name that it maps."""
    folder = "/proc/%d" % pid
    with contextlib.suppress(OSError):
        for number in os.listdir(folder + "/fd"):
            yield "%s/fd/%s" % (folder, number)
    with contextlib.suppress(OSError), open(folder + "/maps", errors="replace") as lines:
        for line in lines:
            if line.endswith(" (deleted)\n"):
                first, _, last = line.split(None, 1)[0].partition("-")
                yield "%s/map_files/%x-%x" % (folder, int(first, 16), int(last, 16))


def _devices_of_memory() -> set[int]:
    """The device of files that have never had a name, and those of this process's mounts."""
    found = set(_mounted_memory(os.getpid()))
    with contextlib.suppress(OSError):
        anonymous = os.memfd_create("baseload")
        found.add(os.fstat(anonymous).st_dev)
        os.close(anonymous)
    return found


def _mounted_memory(pid: int) -> Iterator[int]:
    """The devices of the file systems in memory that a process sees."""
    with contextlib.suppress(OSError), open("/proc/%d/mountinfo" % pid) as lines:
        for line in lines:
            before, _, after = line.partition(" - ")
            if after.split(None, 1)[0] in IN_MEMORY:
                major, _, minor = before.split()[2].partition(":")
                yield os.makedev(int(major), int(minor))
