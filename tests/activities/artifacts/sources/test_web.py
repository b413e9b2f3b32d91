"""Web servers that send too slowly to be waited for."""

import gzip
import random
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from temporalio.exceptions import ApplicationError

from activities.artifacts.sources import pace
from activities.artifacts.sources.web import open_web
from activities.settings import settings
from tests.doubles.file_server import FileServer
from workflows.contracts.artifacts import WebSource


@pytest.fixture(autouse=True)
def short(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BASELOAD_SOURCE_NETWORKS", "127.0.0.0/8")
    settings.cache_clear()
    monkeypatch.setattr(pace, "WINDOW_S", 0.3)


def refusal(url: str, scratch: Path) -> ApplicationError:
    with pytest.raises(ApplicationError) as refused:
        list(open_web(WebSource(type="web", url=url), scratch, 10**9).chunks_from(0))
    return refused.value


@pytest.mark.parametrize("name", ["cats.tar", "cats.tar.gz", "cats.zip", "cats.bin"])
def test_a_server_that_sends_slower_than_the_least_rate_is_not_read_on(
    tmp_path: Path, name: str
) -> None:
    content = gzip.compress(random.Random(1).randbytes(10**6))
    with FileServer(files={f"/{name}": content}, bytes_per_s=2000).serving() as server:
        slow = refusal(server.url(f"/{name}"), tmp_path)
    assert (slow.type, f"at least {pace.LEAST_BYTES_PER_S} bytes/s" in slow.message) == (
        "Unavailable",
        True,
    )


def test_a_server_that_sends_fast_enough_is_read_to_its_end(tmp_path: Path) -> None:
    files = {"/cats.bin": bytes(50_000)}
    with FileServer(files=files, bytes_per_s=50_000).serving() as server:
        source = WebSource(type="web", url=server.url("/cats.bin"))
        opened = open_web(source, tmp_path, 10**9)
        assert sum(map(len, opened.chunks_from(0))) == opened.total_bytes


@contextmanager
def endless_headers() -> Iterator[str]:
    """A server whose answer begins and never ends, a byte at a time."""
    is_over = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
            while not is_over.wait(0.02):
                try:
                    connection.sendall(b"x")
                except OSError:
                    return

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/cats.tar"
    finally:
        is_over.set()
        thread.join()
        listener.close()


def test_headers_that_never_end_are_not_waited_for(tmp_path: Path) -> None:
    with endless_headers() as url:
        slow = refusal(url, tmp_path)
    assert (slow.type, "bytes/s are taken" in slow.message) == ("Unavailable", True)
