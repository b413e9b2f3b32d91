"""People reach their running jobs: commands, a terminal, SSH, ports, pages; and nobody else does."""

from __future__ import annotations

import os
import pty
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect

from tests.e2e.platform import Platform, Site
from tests.e2e.stack import RunningStack
from tests.lab.machine import Machine
from tests.lab.machines import Lab
from tests.lab.waiting import wait_until
from workers.runner.probes import free_port
from workers.runner.settings import CHECKOUT

pytestmark = pytest.mark.timeout(600)
PORT = 8899
SERVER = f"""
import asyncio, base64, hashlib, os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        if self.headers.get("Upgrade", "").lower() == "websocket":
            return self.echo()
        body = repr((self.path, sorted(self.headers.keys()), self.headers.get("Cookie"))).encode()
        self.send_response(302 if self.path == "/moved" else 200)
        if self.path == "/moved":
            self.send_header("Location", "http://127.0.0.1:{PORT}/there")
        self.send_header("Set-Cookie", "own=1; Domain=localhost; Path=/")
        self.send_header("Access-Control-Allow-Origin", "*")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def echo(self):
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        self.wfile.write(("HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: websocket\\r\\n"
            "Connection: Upgrade\\r\\nSec-WebSocket-Accept: " + accept + "\\r\\n\\r\\n").encode())
        head = self.rfile.read(2)
        length = head[1] & 127
        mask = self.rfile.read(4)
        text = bytes(b ^ mask[i % 4] for i, b in enumerate(self.rfile.read(length)))
        self.wfile.write(bytes([0x81, len(text)]) + text)
        self.rfile.read(1)
        self.close_connection = True
    def log_message(self, *_):
        pass

ThreadingHTTPServer(("0.0.0.0", {PORT}), Handler).serve_forever()
"""


@dataclass
class Reached:
    """A running service job on a machine of its own, and the command of its owner."""

    stack: RunningStack
    platform: Platform
    machine: Machine
    region_id: str
    path: str

    @property
    def id(self) -> str:
        return self.path.rpartition("/")[2]

    def environment(self, key: str | None = None) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.stack.home),
            "TERM": "xterm",
            "PYTHONPATH": str(CHECKOUT / "client/src"),
            "BASELOAD_API": self.stack.url,
            "BASELOAD_API_KEY": key or self.stack.administrator_key,
            "BASELOAD_ALLOW_PLAIN_HTTP": "1",
        }

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "baseload", *words]

    def do(
        self, *words: str, key: str | None = None, content: bytes = b""
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            self.command(*words),
            input=content,
            env=self.environment(key),
            capture_output=True,
            timeout=60,
            check=False,
        )

    def begin(self, *words: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self.command(*words),
            env=self.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def left(self, words: str) -> bool:
        return any(words in line for line in self.machine.command_lines())


@pytest.fixture(scope="module")
def reached(
    stack: RunningStack, platform: Platform, lab: Lab, make_site: Callable[..., Site]
) -> Iterator[Reached]:
    site = make_site()
    machine = lab.add("reached")
    site.join(machine)
    code = platform.upload({"serve.py": SERVER})
    path = platform.job(
        "echo begun; exec python3 serve.py",
        site.region_id,
        type="endpoint",
        port=PORT,
        code={"upload_id": code},
        environment={"variables": {"GREETING": "hello"}},
    )
    platform.until_status(path, "running")
    found = Reached(stack, platform, machine, site.region_id, path)
    wait_until(lambda: platform.post(f"{path}/link")["ready"], "the port answers", 60)
    yield found
    platform.post(f"{path}/cancel?discard=true")
    platform.until_status(path, "canceled")
    lab.remove(machine.name)


def test_a_command_has_its_output_exit_code_and_input_and_is_not_root(reached: Reached) -> None:
    done = reached.do(
        "exec", reached.id, "--", "sh", "-c", 'echo "$GREETING"; id -un; cat; echo no >&2; exit 7',
        content=b"what is sent",
    )  # fmt: skip
    assert done.returncode == 7, done.stderr
    lines = done.stdout.decode().splitlines()
    assert lines[0] == "hello"
    assert lines[1].startswith("baseload-job-")
    assert lines[2] == "what is sent"
    assert done.stderr == b"no\n"
    actions = [each["action"] for each in reached.platform.items("/v1/audit")]
    assert "open_job_session_command" in actions
