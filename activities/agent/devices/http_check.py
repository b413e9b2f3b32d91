"""One request of the health check, by a child with the rights of the command and one deadline.

The child is of the command's account, so the wall around it holds for the request as well: nothing
is asked of a port that is closed to the command. It says a status, or which way there was none, and
never a word of the answer.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import select
import signal
import socket
import sys
import time

from ..datastores.child import become
from ..host import prctl

MOST_BYTES = 1 << 16
"""How much is read until the status line that counts."""
REFUSED, CUT_OFF, NO_HTTP, FAILED = "refused", "cut-off", "no-http", "failed"
WORDS = {
    REFUSED: "no connection",
    CUT_OFF: "a connection that ended without an answer",
    NO_HTTP: "an answer that is not HTTP",
    FAILED: "no answer",
}
READ_BYTES = 4096
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-9]\d\d)[ \r\n]")
_BEGIN = b"HTTP/1."
_END = re.compile(rb"\n\r?\n")
"""The empty line after headers."""


class HttpCheck:
    """A request that is on its way."""

    def __init__(self, port: int, path: str, user: str | None, limit_s: float) -> None:
        self._limit_s = limit_s
        self._deadline = time.monotonic() + limit_s
        account = pwd.getpwnam(user) if user else None
        sys.stdout.flush()
        sys.stderr.flush()
        self._reader, writer = os.pipe()
        self._pid = os.fork()
        if not self._pid:
            ids = (account.pw_uid, account.pw_gid) if account is not None else None
            _be_child(writer, port, path, ids, limit_s)
        os.close(writer)

    def answer(self) -> int | str | None:
        """The status, or what was found in its place; None: that is not known yet."""
        if not select.select([self._reader], [], [], 0)[0]:
            if time.monotonic() < self._deadline:
                return None
            self.end()
            return "no answer within %g s" % self._limit_s
        said = os.read(self._reader, 64).decode(errors="replace")
        self.end()
        return int(said) if re.match(r"[2-9]\d\d\Z", said) else WORDS.get(said, WORDS[FAILED])

    def end(self) -> None:
        """End the child; to be called once, unless `answer` was not None."""
        os.close(self._reader)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)


def _be_child(
    writer: int, port: int, path: str, account: tuple[int, int] | None, limit_s: float
) -> None:
    said = FAILED
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        os.dup2(writer, 3)
        os.closerange(4, 256)  # The locks of the keeper, among others.
        prctl.die_with_parent()
        prctl.forbid_new_privileges()
        become(account if os.geteuid() == 0 else None)
        said = _ask(port, path, limit_s)
    except BaseException:  # noqa: BLE001 - the forked child must never return
        said = FAILED
    finally:
        with contextlib.suppress(OSError):
            os.write(3, said.encode())
        os._exit(0)


def _ask(port: int, path: str, limit_s: float) -> str:
    """What is found: a status, or one of the words. The parent ends what takes too long."""
    request = "GET %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nAccept-Encoding: identity\r\n" % (
        path,
        port,
    )
    try:
        connection = socket.create_connection(("127.0.0.1", port), limit_s)
    except OSError:
        return REFUSED
    try:
        connection.sendall((request + "Connection: close\r\n\r\n").encode("ascii"))
        return _status(connection)
    except OSError:
        return CUT_OFF


def _status(connection: socket.socket) -> str:
    """The first status that is not that of an interim answer, which consists of headers alone."""
    read, left = b"", MOST_BYTES
    while True:
        matched = _STATUS.match(read)
        if matched is not None and not matched.group(1).startswith(b"1"):
            return matched.group(1).decode()
        if matched is None and (b"\n" in read or not _begins(read)):
            return NO_HTTP
        end = _END.search(read)
        if matched is not None and end is not None:
            read = read[end.end() :]
            continue
        found = connection.recv(min(left, READ_BYTES)) if left else b""
        if not found:
            return NO_HTTP if read else CUT_OFF
        read, left = read + found, left - len(found)


def _begins(read: bytes) -> bool:
    return read[: len(_BEGIN)] == _BEGIN[: len(read)]
