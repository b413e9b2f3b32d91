"""The log of a run: what its command prints, taken from a pipe by a thread of its supervisor.

The command has no way to the file, which it could open again, cut off or overwrite. The pipe is its
account's, so that `> /dev/stderr` and `> /proc/self/fd/1`, which open it again, work as on any
machine. The pipe ends with the supervisor: without one a run is lost and is ended, as before.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import stat
import sys
import termios
import threading
from typing import Any

from ..federated import terms
from ..folders import Run
from ..host import spawn

SET_PIPE_SIZE = 1031
PIPE_BYTES = 1 << 20
"""How much the command may print while the supervisor is held up; the default limit of a pipe."""
CHUNK_BYTES = 1 << 18
ROOM_S = 1.0
"""After this time a write that has failed, mostly on a full disk, is tried again."""
FINISH_S = 10.0


class Log:
    """The log of one run while its supervisor lives. Raises: OSError."""

    def __init__(self, run: Run, spec: dict[str, Any]) -> None:
        # What is withheld never comes to the disk, where a job of another time could find it.
        path = os.devnull if terms.withholds_log(spec) else run.log
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._outlet, self.inlet = os.pipe()
        """What the command prints into."""
        os.set_blocking(self._outlet, False)  # The run may read its own pipe, and take all of it.
        self._told, self._tell = os.pipe()
        if spec.get("runtime") != "podman":  # podman gives the command another pipe, and reads it.
            spawn.give_streams(spec.get("user"), [self.inlet])
        with contextlib.suppress(OSError):  # It is smaller where the machine does not allow more.
            fcntl.fcntl(self.inlet, SET_PIPE_SIZE, PIPE_BYTES)
        self._thread = threading.Thread(target=self._carry, daemon=True)

    def begin(self) -> None:
        """Write down what is printed from now on, and before; to be called after the command has
        been forked, because the fork of a process with threads may do little."""
        os.close(self.inlet)
        self._thread.start()

    def finish(self) -> None:
        """Write down what is still in the pipe, for good, once no process of the run is left.

        Nothing waits for ends of the pipe that the run may have handed to others.
        """
        os.close(self._tell)
        self._thread.join(FINISH_S)
        try:
            if stat.S_ISREG(os.fstat(self.file).st_mode):
                os.fsync(self.file)
        except OSError as error:  # The outcome of the run matters more.
            sys.stderr.write("the log is not written for good: %s\n" % error)

    def _carry(self) -> None:
        is_told = False
        while not is_told:
            ready, _, _ = select.select([self._outlet, self._told], [], [])
            is_told = self._told in ready
            if not self._carry_some(self._waiting_bytes() if is_told else CHUNK_BYTES):
                return

    def _waiting_bytes(self) -> int:
        """How much is in the pipe."""
        found = fcntl.ioctl(self._outlet, termios.FIONREAD, bytes(4))
        return int.from_bytes(found, sys.byteorder)

    def _carry_some(self, limit: int) -> bool:
        """Write down what is in the pipe, so much at most; whether more may come."""
        while limit > 0:
            try:
                content = os.read(self._outlet, min(limit, CHUNK_BYTES))
            except BlockingIOError:
                return True
            if not content or not self._write(content):
                return False
            limit -= len(content)
        return True

    def _write(self, content: bytes) -> bool:
        """Write all of it. On a full disk the command waits for room; its end does not."""
        waiting = memoryview(content)
        is_told = False
        while waiting:
            try:
                waiting = waiting[os.write(self.file, waiting) :]
            except OSError as error:
                if is_told:
                    sys.stderr.write("the end of the log is not written: %s\n" % error)
                    return False
                is_told = bool(select.select([self._told], [], [], ROOM_S)[0])
        return True
