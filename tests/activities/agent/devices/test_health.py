"""The health check of a command that does what it can to have no end."""

import os
import pwd
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from activities.agent.devices import log
from activities.agent.devices.health import MOST_READS, READ_BYTES, Health, await_verdict
from activities.agent.host import processes
from tests.activities.agent.devices.conftest import MakeRevision

LIMIT_S = 20.0
ANSWERS = {"goes on for ever": b"HTTP/1.1 100 Continue\r\n\r\n", "comes byte by byte": b"H"}


class Started:
    """A start that is up."""

    has_ended = False

    def __init__(self, revision: Any) -> None:
        self.revision = revision
        self.started_s = processes.monotonic_s()

    def reap(self) -> bool:
        return False

    def is_up(self) -> bool:
        return True


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_a_server_whose_answer_has_no_end_fails_the_check_within_its_limit(
    make_revision: MakeRevision, answer: bytes
) -> None:
    is_over, verdict = threading.Event(), []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection, suppress(OSError):  # Who asks has gone.
                while not is_over.wait(0.2):
                    connection.sendall(answer)

        def check() -> None:
            asked = {"limit_s": 1, "http_port": server.getsockname()[1]}
            health = Health(Started(make_revision()), asked)  # type: ignore[arg-type]
            verdict.append(await_verdict(health, lambda: is_over.wait(0.1)))

        threads = [threading.Thread(target=each, daemon=True) for each in (serve, check)]
        for thread in threads:
            thread.start()
        threads[1].join(LIMIT_S)
        is_over.set()
    assert verdict, f"no verdict {LIMIT_S:g} s after the start"
    assert verdict[0][0]


@contextmanager
def answering(answer: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """The port of a server that answers each connection so, and the peers' processes' accounts."""
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        own_port = server.getsockname()[1]

        def serve() -> None:
            while True:
                try:
                    connection, peer = server.accept()
                except OSError:
                    return
                with connection:
                    asked.append(_account_of(peer[1], own_port))
                    connection.recv(4096)
                    connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield own_port, asked
        server.shutdown(socket.SHUT_RDWR)
    thread.join(LIMIT_S)


def _account_of(port: int, server_port: int) -> bytes:
    """The number of the account whose socket connects these two ports, by the kernel's table.

    One port is not enough: a connection of another test that ended a moment ago may have had it,
    and the kernel lists such a one as root's.
    """
    ends = (b":%04X" % port, b":%04X" % server_port)
    rows = [line.split() for line in Path("/proc/net/tcp").read_bytes().splitlines()]
    return next(row[7] for row in rows if (row[1][-5:], row[2][-5:]) == ends)


def verdict_of(revision: Any, **asked: Any) -> str | None:
    health = Health(Started(revision), {"limit_s": 1, **asked})  # type: ignore[arg-type]
    is_decided, why = await_verdict(health, lambda: threading.Event().wait(0.02))
    assert is_decided
    return why


@pytest.mark.parametrize("interim", [b"", b"HTTP/1.1 103 Early\r\nLink: x\r\n\r\n"])
def test_the_first_status_that_is_not_interim_counts(
    make_revision: MakeRevision, interim: bytes
) -> None:
    revision = make_revision()
    with answering(interim + b"HTTP/1.1 204 No Content\r\n\r\n") as (port, _):
        assert verdict_of(revision, http_port=port, limit_s=20) is None
    with answering(interim + b"HTTP/1.0 503 secret\r\n\r\n") as (port, _):
        why = verdict_of(revision, http_port=port)
    assert why is not None
    assert why.endswith("found status 503")


def test_no_word_of_an_answer_is_in_the_reason(make_revision: MakeRevision) -> None:
    with answering(b"admin-token=8f3c91 host=inner\r\n") as (port, _):
        why = verdict_of(make_revision(), http_port=port, http_path="/admin")
    assert why is not None
    assert "8f3c91" not in why
    assert "an answer that is not HTTP" in why


@pytest.mark.skipif(os.geteuid() != 0, reason="only root takes another account")
def test_the_request_is_made_by_the_account_of_the_command(make_revision: MakeRevision) -> None:
    with answering(b"HTTP/1.1 200 OK\r\n\r\n") as (port, accounts):
        assert verdict_of(make_revision(user="nobody"), http_port=port, limit_s=20) is None
    assert set(accounts) == {b"%d" % pwd.getpwnam("nobody").pw_uid}


def test_a_log_that_grows_as_fast_as_it_is_read_holds_no_verdict_up(
    make_revision: MakeRevision, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[int] = []

    def read(_: Any, __: int, limit: int) -> bytes:
        reads.append(limit)
        return b"y" * limit

    monkeypatch.setattr(log, "read", read)
    health = Health(Started(make_revision()), {"log_line": "is ready"})  # type: ignore[arg-type]
    assert health.verdict() == (False, None)
    assert sum(reads) == MOST_READS * READ_BYTES


def test_a_line_that_several_reads_bring_is_found(make_revision: MakeRevision) -> None:
    revision = make_revision()
    Path(revision.log).write_bytes(b"x" * (READ_BYTES - 4) + b"is ready to serve\n")
    assert verdict_of(revision, log_line="is ready", limit_s=20) is None
