"""A little of the data campaign in every run of the tests, on real machines."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading

import pytest

from tests.chaos.transfers.flipping_proxy import FlippingProxy
from tests.lab.file_servers import missing_programs
from tests.lab.host import obstacle
from workers.runner.settings import CHECKOUT

LIMIT_S = 500
ORDERS = ("--mib", "80", "--away", "2", "--only", "byte-changed-on-the-wire",
          "--only", "same-data-for-two-nodes-at-once")  # fmt: skip


@pytest.mark.timeout(LIMIT_S + 60)
def test_data_are_spoilt_and_asked_for_twice_and_every_job_reads_what_was_stored() -> None:
    reason = obstacle() or ", ".join(missing_programs())
    if reason and os.environ.get("CI") != "true":
        pytest.skip(reason)
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos.transfers", *ORDERS],
        cwd=CHECKOUT, capture_output=True, text=True, check=False, timeout=LIMIT_S,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def test_the_proxy_changes_one_byte_so_many_times_and_nothing_else() -> None:
    said = bytes(range(256)) * 400
    with socket.create_server(("127.0.0.1", 0)) as server:
        target = ("127.0.0.1", int(server.getsockname()[1]))

        def answer() -> None:
            for _ in range(2):
                peer, _ = server.accept()
                with peer:
                    assert peer.recv(10) == b"GET"
                    peer.sendall(said)

        serving = threading.Thread(target=answer, daemon=True)
        serving.start()
        with FlippingProxy("127.0.0.1", target, at=70_000, times=1).serving() as proxy:
            first, second = (_asked(proxy.port) for _ in range(2))
        serving.join()
    changed = [at for at, (a, b) in enumerate(zip(said, first, strict=True)) if a != b]
    assert (changed, second == said, proxy.flipped) == ([70_000], True, 1)


def _asked(port: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port)) as peer:
        peer.sendall(b"GET")
        peer.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: peer.recv(1 << 16), b""))
