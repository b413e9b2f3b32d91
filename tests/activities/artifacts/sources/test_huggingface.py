"""Repositories of a double of Hugging Face's hub, asked by its own library."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from activities.artifacts.sources.huggingface import open_repository
from activities.settings import settings
from tests.activities.artifacts.artifact_rows import files_of
from tests.doubles.file_server import FileServer
from workflows.contracts.artifacts import HuggingFaceSource

COMMIT = "a" * 40
FILES = {"config.json": b"{}", "deep/model.bin": b"m" * 50_000}
TOKEN = "a-token-that-is-made-up"


class Hub:
    """The hub: its files lie at another host, to which it redirects."""

    def __init__(self, files: FileServer) -> None:
        self.files = files
        self.asked: list[tuple[str, str]] = []
        """Each path, with its authorization."""
        self.needs_token = False

    def answer(self, path: str, authorization: str) -> tuple[int, dict[str, str], bytes]:
        self.asked.append((path, authorization))
        if self.needs_token and authorization != f"Bearer {TOKEN}":
            return 401, {"X-Error-Code": "GatedRepo"}, b"{}"
        if path.startswith("/api/models/pets/cats/revision/main"):
            siblings = [{"rfilename": name, "size": len(FILES[name])} for name in FILES]
            body = {"id": "pets/cats", "sha": COMMIT, "siblings": siblings}
            return 200, {"Content-Type": "application/json"}, json.dumps(body).encode()
        if path.startswith("/api/"):
            return 404, {"X-Error-Code": "RepoNotFound"}, b"{}"
        name = path.removeprefix(f"/pets/cats/resolve/{COMMIT}/")
        return 302, {"Location": self.files.url(f"/blobs/{name}")}, b""


@pytest.fixture
def hub(home: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with FileServer({f"/blobs/{name}": FILES[name] for name in FILES}).serving() as files:
        found = Hub(files)

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                authorization = self.headers.get("Authorization", "")
                status, headers, body = found.answer(self.path, authorization)
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                return

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        monkeypatch.setenv(
            "BASELOAD_HUGGINGFACE_ENDPOINT", f"http://127.0.0.1:{server.server_port}"
        )
        monkeypatch.setenv("BASELOAD_SOURCE_NETWORKS", "127.0.0.0/8")
        monkeypatch.setenv("HF_TOKEN", "the-hosts-own-token")
        settings.cache_clear()
        yield found
        server.shutdown()
        server.server_close()
        thread.join()


def source(**changes: str) -> HuggingFaceSource:
    return HuggingFaceSource.model_validate({"type": "huggingface", "repo": "pets/cats", **changes})


def test_the_files_of_a_commit_are_read_from_any_byte(hub: Hub) -> None:
    opened = open_repository(source(), None)
    tar = b"".join(opened.chunks_from(0))
    assert files_of(tar) == FILES
    assert (opened.total_bytes, COMMIT in opened.identity) == (len(tar), True)
    assert b"".join(opened.chunks_from(20_000)) == tar[20_000:]
    assert hub.files.asked[-1][1].startswith("bytes=")


def test_a_token_goes_to_the_hub_alone_and_that_of_the_host_to_nobody(hub: Hub) -> None:
    hub.needs_token = True
    with pytest.raises(ApplicationError) as refused:
        open_repository(source(), None)
    assert (refused.value.type, TOKEN in str(refused.value)) == ("Refused", False)
    assert {authorization for _, authorization in hub.asked} == {""}
    opened = open_repository(source(), TOKEN)
    assert files_of(b"".join(opened.chunks_from(0))) == FILES
    assert hub.files.authorizations == {""}


def test_a_repository_that_is_not_there_is_refused(hub: Hub) -> None:
    with pytest.raises(ApplicationError, match="there is none that may be read") as refused:
        open_repository(source(repo="pets/birds"), None)
    assert refused.value.type == "Refused"


@pytest.mark.parametrize(
    "changes",
    [{"repo": "../x"}, {"repo": "a/b/c"}, {"revision": "-x"}, {"kind": "space"}],
    ids=str,
)
def test_nothing_of_a_source_leads_elsewhere(changes: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=next(iter(changes))):
        source(**changes)
