"""A git repository, read and written over HTTP by git's own `http-backend`."""

import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

BACKEND = "/usr/lib/git-core/git-http-backend"


@dataclass
class GitServer:
    """A repository with a work tree in `folder/cats`, and the port at which it is served."""

    folder: Path
    port: int = 0
    leads_to: str = ""
    """Where every request is sent instead."""
    endless: bytes = b""
    """What every request is answered with, again and again."""
    authorization: str = ""
    """The `Authorization` that each request has to have; empty: none is needed."""
    asked_with: set[str] = field(default_factory=set)
    """Each `Authorization` that was sent; empty: none."""
    before_push: Callable[[], object] | None = None
    """Called once, when the next push begins: what others do meanwhile."""
    loses_replies: int = 0
    """How many replies to pushes still do not arrive, after what was pushed is there."""
    pushes: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/cats/.git"

    def run(self, *words: str) -> str:
        """The output of git in the repository."""
        names = ("AUTHOR_NAME", "AUTHOR_EMAIL", "COMMITTER_NAME", "COMMITTER_EMAIL")
        done = subprocess.run(
            ("git", "-C", str(self.folder / "cats"), *words),
            env={**os.environ, **{f"GIT_{name}": "a@example.test" for name in names}},
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        )
        return done.stdout.strip()

    def commit(self, files: dict[str, str]) -> str:
        """Commit files; the id of the commit."""
        for name, content in files.items():
            path = self.folder / "cats" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        self.run("add", "--all")
        self.run("commit", "--quiet", "--message", "Change files")
        return self.run("rev-parse", "HEAD")

    @contextmanager
    def serving(self) -> Iterator["GitServer"]:
        (self.folder / "cats").mkdir(parents=True)
        self.run("init", "--quiet", "--initial-branch", "main")
        for name in ("uploadpack.allowAnySHA1InWant", "uploadpack.allowFilter"):
            self.run("config", name, "true")
        self.run("config", "receive.fsckObjects", "true")
        self.run("config", "receive.denyCurrentBranch", "ignore")
        self.run("config", "http.receivepack", "true")
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


def _handler(repository: GitServer) -> type[BaseHTTPRequestHandler]:  # noqa: C901 - a class
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._serve(b"")

        def do_POST(self) -> None:
            is_push = self.path.endswith("/git-receive-pack")
            if is_push and repository.before_push is not None:
                called, repository.before_push = repository.before_push, None
                called()
            body = _body(self)
            self._serve(body, is_push=is_push and body != b"0000")  # Such a one only asks.

        def _serve(self, body: bytes, *, is_push: bool = False) -> None:
            sent = self.headers.get("Authorization", "")
            repository.asked_with.add(sent)
            if repository.authorization not in ("", sent):
                self.send_response(401)
                self.send_header("WWW-Authenticate", "Basic")
                self.end_headers()
                return
            if repository.leads_to:
                self.send_response(302)
                self.send_header("Location", repository.leads_to + self.path)
                self.end_headers()
                return
            if repository.endless:
                self._send_without_end()
                return
            said = _backend(self, repository.folder, body)
            repository.pushes += is_push
            if is_push and repository.loses_replies:
                repository.loses_replies -= 1
                self.close_connection = True
                return
            head, _, content = said.partition(b"\r\n\r\n")
            headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
            self.send_response(int(headers.pop("Status", "200").split()[0]))
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def _send_without_end(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/x-git-upload-pack-advertisement")
            self.end_headers()
            self.wfile.write(b"001e# service=git-upload-pack\n0000")
            some = repository.endless * 10_000
            try:
                while True:
                    self.wfile.write(some)
            except OSError:
                return

        def log_message(self, *_: Any) -> None:
            return

    return Handler


def _body(asked: BaseHTTPRequestHandler) -> bytes:
    """The whole body of a request, which git sends in chunks when it is large."""
    if asked.headers.get("Transfer-Encoding") != "chunked":
        return asked.rfile.read(int(asked.headers.get("Content-Length", "0")))
    body = b""
    while size := int(asked.rfile.readline(), 16):
        body += asked.rfile.read(size)
        asked.rfile.readline()
    asked.rfile.readline()
    return body


def _backend(asked: BaseHTTPRequestHandler, folder: Path, body: bytes) -> bytes:
    """What git's own backend answers."""
    path, _, query = asked.path.partition("?")
    environment = {
        "PATH": os.environ["PATH"],
        "GIT_PROJECT_ROOT": str(folder),
        "GIT_HTTP_EXPORT_ALL": "1",
        "REQUEST_METHOD": asked.command,
        "PATH_INFO": path,
        "QUERY_STRING": query,
        "CONTENT_TYPE": asked.headers.get("Content-Type", ""),
        "HTTP_CONTENT_ENCODING": asked.headers.get("Content-Encoding", ""),
        "GIT_PROTOCOL": asked.headers.get("Git-Protocol", ""),
    }
    done = subprocess.run(
        (BACKEND,), input=body, env=environment, capture_output=True, check=False, timeout=30
    )
    return done.stdout
