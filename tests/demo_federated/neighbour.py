"""Another job of the node, an ordinary one, with what a job can leave open to all others.

A port on both loopbacks, an abstract socket, a file in /dev/shm and a segment of shared memory.
"""

from __future__ import annotations

import ctypes
import socket
import time
from pathlib import Path

PORT = 8942
SOCKET = "baseload-neighbour"
SHARED = "/dev/shm/of-another-job"
SEGMENT_BYTES = 4096
CREATE, MODE = 0o1000, 0o666


def main() -> None:
    """Open all of it, and stay."""
    held = [socket.create_server(("127.0.0.1", PORT))]
    held.append(socket.create_server(("::1", PORT), family=socket.AF_INET6))
    held.append(socket.socket(socket.AF_UNIX))
    held[-1].bind("\0" + SOCKET)
    held[-1].listen()
    ctypes.CDLL(None).shmget(0, SEGMENT_BYTES, CREATE | MODE)
    Path(SHARED).write_text("of another job")
    Path(SHARED).chmod(MODE)
    while True:
        time.sleep(600)


if __name__ == "__main__":
    main()
