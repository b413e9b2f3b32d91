"""Somebody who reads the documents beside a checkout, and types what they say."""

import json
import os
import socket
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import httpx
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

from tests.temporal_server import FRUGAL
from workers.runner.lifecycle import program_states
from workers.runner.probes import free_port
from workers.runner.stack import saved_stack

LIMIT_S = 240


@dataclass(frozen=True)
class Reader:
    """Somebody in a checkout, with a home and ports that no other stack has."""

    folder: Path
    api_port: int = field(default_factory=free_port)
    pages_port: int = field(default_factory=free_port)

    @property
    def home(self) -> Path:
        return self.folder / ".baseload"

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            **FRUGAL,
            "PATH": f"{self.folder / '.venv/bin'}:{os.environ['PATH']}",
            "BASELOAD_HOME": str(self.home),
            "BASELOAD_API": f"127.0.0.1:{self.api_port}",
            "BASELOAD_ENDPOINTS": f"127.0.0.1:{self.pages_port}",
            "BASELOAD_TEMPORAL_PORT": str(free_port()),
            "BASELOAD_UI_PORT": str(free_port()),
        }

    @property
    def has_stack(self) -> bool:
        """Whether the stack is up."""
        stack = saved_stack(self.home)
        return stack is not None and all(each.ready for each in program_states(stack))

    def types(self, script: str) -> None:
        """Run blocks of one document in one shell that ends at the first error.

        Raises: AssertionError with all that was printed, unless its exit code is 0.
        """
        done = subprocess.run(
            ["sh", "-eux", "-c", script.replace(":8700", f":{self.api_port}")],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=LIMIT_S,
        )
        assert done.returncode == 0, done.stdout

    def baseload(self, *words: str) -> str:
        """What one command prints. Raises: AssertionError, unless its exit code is 0."""
        done = subprocess.run(
            ["baseload", *words],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_S,
        )
        assert done.returncode == 0, f"baseload {' '.join(words)}:\n{done.stderr}{done.stdout}"
        return done.stdout

    def shows(self, *words: str) -> dict[str, Any]:
        """What one command answers as JSON."""
        answer: dict[str, Any] = json.loads(self.baseload(*words, "--json"))
        return answer

    def asks(self, method: str, path: str, body: object = None) -> httpx.Response:
        """What the API answers a program with the administrator's key."""
        key = (self.home / "admin.key").read_text().strip()
        return httpx.request(
            method,
            f"http://127.0.0.1:{self.api_port}{path}",
            headers={"Authorization": f"Bearer {key}", "Idempotency-Key": uuid4().hex},
            json=body,
            trust_env=False,
            timeout=60,
        )

    def has_another(self, example: str, **files: str) -> str:
        """A copy of an example with these files in it. The path of its job file."""
        copy = self.folder / "copies" / example
        copy.mkdir(parents=True)
        for path in (self.folder / "examples" / example).iterdir():
            if path.is_file():
                (copy / path.name).write_bytes(path.read_bytes())
        for name, text in files.items():
            (copy / name.replace("__", ".")).write_text(text)
        return str(copy / "job.yaml")


class Browser:
    """What a browser does that follows a link to a job's pages."""

    def __init__(self, link: str) -> None:
        entrance = urlsplit(link)
        self.host = entrance.netloc
        self._port = entrance.port or 80
        self._origin = f"http://{self.host}"
        self._http = httpx.Client(
            base_url=f"http://127.0.0.1:{self._port}",
            headers={"Host": self.host},
            trust_env=False,
            timeout=60,
        )
        entered = self._http.get(f"{entrance.path}?{entrance.query}")
        assert entered.status_code == 303, entered.text
        self._cookies = _cookies_of(entered)
        self._cookies |= _cookies_of(self.asks("GET", "/lab"))

    def asks(self, method: str, path: str, body: object = None) -> httpx.Response:
        """One request of a page's script, with the cookies and the origin that it brings."""
        headers = {"Cookie": self._cookie, "Origin": self._origin}
        if "_xsrf" in self._cookies:
            headers["X-XSRFToken"] = self._cookies["_xsrf"]
        return self._http.request(method, path, headers=headers, json=body)

    @property
    def _cookie(self) -> str:
        return "; ".join(f"{name}={value}" for name, value in self._cookies.items())

    def connects(self, path: str) -> ClientConnection:
        """A WebSocket of a page."""
        return connect(
            f"ws://{self.host}{path}",
            sock=socket.create_connection(("127.0.0.1", self._port), timeout=20),
            origin=Origin(self._origin),
            additional_headers={"Cookie": self._cookie},
            proxy=None,
        )

    def close(self) -> None:
        self._http.close()


def _cookies_of(answer: httpx.Response) -> dict[str, str]:
    firsts = [each.partition(";")[0] for each in answer.headers.get_list("set-cookie")]
    return {name: value for name, _, value in (first.partition("=") for first in firsts)}
