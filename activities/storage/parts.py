"""Files that are being written for a store, and have no name in it yet.

All of them lie in one folder. Whoever writes one holds a lock on it, which ends with the process:
what nobody holds is what a killed process left, and the next writer removes it.
"""

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from uuid import uuid4

PREFIX = ".part-"


@dataclass(frozen=True)
class Parts:
    folder: Path
    """On the disk of the store, where it is local; it need not exist yet."""
    prefix: str = PREFIX

    @contextlib.contextmanager
    def new(self) -> Iterator[tuple[Path, IO[bytes]]]:
        """An empty file to write and read, removed at the end unless it was moved."""
        path, number = self._created()
        try:
            with os.fdopen(number, "w+b") as file:
                yield path, file
        finally:
            path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def second_name(self, path: Path) -> Iterator[Path]:
        """A second name of a file, removed at the end unless it was moved.

        Raises: OSError, when the file lies on another disk.
        """
        self._sweep()
        part = self.folder / f"{self.prefix}{uuid4().hex}"
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            os.fsync(file.fileno())
            part.hardlink_to(path)
            try:
                yield part
            finally:
                part.unlink(missing_ok=True)

    def _created(self) -> tuple[Path, int]:
        self._sweep()
        while True:
            number, name = tempfile.mkstemp(dir=self.folder, prefix=self.prefix)
            fcntl.flock(number, fcntl.LOCK_EX)
            if os.fstat(number).st_nlink:
                return Path(name), number
            os.close(number)  # Another writer removed it before it was locked.

    def _sweep(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        for path in self.folder.glob(f"{self.prefix}*"):
            with contextlib.suppress(OSError), path.open("rb") as file:  # Another's, or in use.
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
