"""A registry of container images, usually on a loopback port, which may ask for a password."""

import base64
import contextlib
import json
import subprocess
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Protocol

from tests.activities.agent.agent_process import LocalAgent

USER, PASSWORD = "owner", "s3cret-of-the-owner"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"


class Reached(Protocol):
    """A registry that podman can be told of."""

    @property
    def settings(self) -> str:
        """A registries.conf."""


class Registry(ThreadingHTTPServer):
    """One image, under every name; `is_private`: for those alone who know the password."""

    daemon_threads = True

    def __init__(self, layout: Path, *, is_private: bool, host: str = "127.0.0.1") -> None:
        super().__init__((host, 0), _Answer)
        self.layout = layout
        self.is_private = is_private
        self.is_away = self.spoils = self.breaks_off = False
        """Whether it answers nobody, whether the blobs that it gives are others, and whether it
        gives their first half alone."""
        self.asked: list[str] = []
        self.unanswered = 0
        """How many requests it had while it was away."""

    @property
    def address(self) -> str:
        return f"{self.server_address[0]!s}:{self.server_port}"

    @property
    def credentials(self) -> str:
        """A file of credentials, as `podman login` writes it."""
        auth = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        return json.dumps({"auths": {self.address: {"auth": auth}}})

    @property
    def settings(self) -> str:
        """A registries.conf, because the registry speaks plain HTTP."""
        return f'[[registry]]\nlocation = "{self.address}"\ninsecure = true\n'


class _Answer(BaseHTTPRequestHandler):
    server: Registry
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        password = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        if self.server.is_private and self.headers.get("Authorization") != f"Basic {password}":
            self._give(401, b"", "text/plain", {"WWW-Authenticate": 'Basic realm="test"'})
            return
        parts = self.path.strip("/").split("/")
        if self.server.is_away:
            self.server.unanswered += 1
            self._give(503, b"", "text/plain")
            return
        self.server.asked.append(self.path)
        if parts == ["v2"]:
            self._give(200, b"{}", "application/json")
        elif parts[-2] == "manifests":
            index = json.loads((self.server.layout / "index.json").read_text())
            self._give(200, self._blob(index["manifests"][0]["digest"]), MANIFEST)
        elif not (self.server.spoils or self._path(parts[-1]).exists()):
            self._give(404, b"", "text/plain")
        else:
            content = b"spoilt" if self.server.spoils else self._blob(parts[-1])
            self._give(200, content, "application/octet-stream")

    def _blob(self, digest: str) -> bytes:
        return self._path(digest).read_bytes()

    def _path(self, digest: str) -> Path:
        return self.server.layout / "blobs" / digest.replace(":", "/")

    def _give(
        self, status: int, content: bytes, kind: str, more: Mapping[str, str] | None = None
    ) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, **(more or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "GET":
            return
        if self.server.breaks_off and kind == "application/octet-stream":
            self.wfile.write(content[: len(content) // 2])
            self.close_connection = True
            return
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as its base
        """Nothing."""


def save_image(image: str, folder: Path, environment: Mapping[str, str]) -> Path:
    """Write an image of podman's as files, and return their folder."""
    command = ["podman", "save", "-q", "--format", "oci-dir", "-o", str(folder), image]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    return folder


@contextlib.contextmanager
def serving_image(layout: Path, *, is_private: bool, host: str = "127.0.0.1") -> Iterator[Registry]:
    """The registry of an image, for as long as it is held."""
    registry = Registry(layout, is_private=is_private, host=host)
    thread = threading.Thread(target=registry.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        registry.shutdown()
        registry.server_close()
        thread.join()


def reach(agent: LocalAgent, registry: Reached, folder: Path) -> None:
    """Let podman know the registry, and have no file of credentials but those of the test."""
    (folder / "registries.conf").write_text(registry.settings)
    agent.environment = {
        **(agent.environment or {}),
        "CONTAINERS_REGISTRIES_CONF": str(folder / "registries.conf"),
        "HOME": str(folder),
    }
