"""An index of Python packages on a loopback port, which counts what it is asked for."""

import contextlib
import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PAGE = '<!DOCTYPE html><html><body><a href="../../files/{name}#sha256={sha256}">{name}</a></body>'


class PackageIndex(ThreadingHTTPServer):
    """The wheels of one folder, one project each.

    lies: what is given in the place of a file, whatever its page states; cuts_files: it goes in the
    middle of each; refuses_with: the status with which it answers all that it is asked for; None:
    it serves.
    """

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.folder = folder
        self.asked: list[str] = []
        self.cuts_files = False
        self.lies: dict[str, bytes] = {}
        self.refuses_with: int | None = None
        self.sent_bytes = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/simple"

    def files_asked(self) -> list[str]:
        """The files that it was asked for, each as often."""
        return [path for path in self.asked if path.startswith("/files/")]


class _Answer(BaseHTTPRequestHandler):
    server: PackageIndex

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        refusal = self.server.refuses_with
        content = None if refusal else self._content(self.path.strip("/").split("/"))
        self.server.sent_bytes += len(content or b"")
        self.send_response(refusal or (404 if content is None else 200))
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(content or b"")))
        self.end_headers()
        is_cut = self.server.cuts_files and self.path.startswith("/files/")
        self.wfile.write((content or b"")[: 100 if is_cut else None])

    def _content(self, parts: list[str]) -> bytes | None:
        if parts[0] == "files":
            return self.server.lies.get(parts[1], (self.server.folder / parts[1]).read_bytes())
        for wheel in self.server.folder.glob("*.whl"):
            if wheel.name.split("-")[0].replace("_", "-") == parts[1]:
                sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
                return PAGE.format(name=wheel.name, sha256=sha256).encode()
        return None

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as its base
        """Nothing: what was asked for is kept."""


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[PackageIndex]:
    """The index of a folder's wheels, for as long as it is held."""
    index = PackageIndex(folder)
    thread = threading.Thread(target=index.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield index
    finally:
        index.shutdown()
        index.server_close()
        thread.join()
