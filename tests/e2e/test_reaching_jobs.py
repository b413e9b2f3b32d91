"""People reach their running jobs: commands, a terminal, SSH, ports, pages; nobody else does."""

from __future__ import annotations

import os
import pty
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from websockets.sync.client import connect
from websockets.typing import Origin

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

    def begin_ssh(self, job_id: str, command: str) -> subprocess.Popen[bytes]:
        """A command in a job by OpenSSH."""
        return subprocess.Popen(
            ["ssh", *self.ssh_options(job_id), "job", command],
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def ssh_options(self, job_id: str) -> list[str]:
        """The options of OpenSSH that bring it into a job."""
        proxy = " ".join(self.command("ssh", "--stdio", job_id))
        options = (f"ProxyCommand={proxy}", "StrictHostKeyChecking=no",
                   "UserKnownHostsFile=/dev/null", "LogLevel=ERROR")  # fmt: skip
        return [*(f"-o{each}" for each in options), "-Fnone"]

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


def test_another_account_finds_no_such_job_and_leaves_no_session(reached: Reached) -> None:
    admin = reached.platform
    body = {"name": "stranger"}
    stranger = admin.post("/v1/accounts", body)
    key = admin.ask(
        "POST", "/v1/api-keys", json={"name": "stranger", "scopes": ["*"]},
        headers={"X-Baseload-Account": stranger["id"], "Idempotency-Key": "stranger-key"},
    ).json()["secret"]  # fmt: skip
    done = reached.do("exec", reached.id, "--", "id", key=key)
    assert (done.returncode, b"not-found" in done.stderr) == (3, True), done.stderr
    others = Platform(reached.stack.url, key)
    with others.http as http:
        assert http.post(f"{reached.path}/link").status_code == 404
        assert http.get(f"{reached.path}/endpoint/").status_code == 404
    reader = admin.post("/v1/api-keys", {"name": "reader", "scopes": ["read"]})["secret"]
    refused = reached.do("exec", reached.id, "--", "id", key=reader)
    assert b"jobs:write" in refused.stderr


def test_a_shell_has_a_terminal_with_interrupts_and_the_jobs_folder(reached: Reached) -> None:
    master, slave = pty.openpty()
    shell = subprocess.Popen(
        reached.command("ssh", reached.id),
        env=reached.environment(),
        stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
    )  # fmt: skip
    os.close(slave)
    said = b""

    def until(text: bytes) -> None:
        nonlocal said
        end = time.monotonic() + 40
        while text not in said:
            assert time.monotonic() < end, (text, said)
            if select.select([master], [], [], 0.5)[0]:
                said += os.read(master, 65536)

    until(b"$ ")
    os.write(master, b"echo [$PWD] [$BASELOAD_PORT]; sleep 733; echo stopped=$?\n")
    until(b"/work] [8899]")
    wait_until(lambda: reached.left("sleep 733"), "the command")
    os.write(master, b"\x03echo code=$?\n")
    until(b"code=130")
    os.write(master, b"exit 5\n")
    assert shell.wait(30) == 5
    os.close(master)
    assert not reached.left("sleep 733")


def test_ssh_and_scp_of_openssh_reach_the_job(reached: Reached, tmp_path: Path) -> None:
    options = reached.ssh_options(reached.id)
    environment = reached.environment()
    done = subprocess.run(
        ["ssh", *options, "job", "echo $GREETING; id -un; exit 9"],
        env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (9, "")
    assert done.stdout.startswith("hello\nbaseload-job-")
    (tmp_path / "there").write_bytes(content := os.urandom(2_000_000))
    for source, target in (("there", "job:there"), ("job:there", "back")):
        ends = [each if ":" in each else str(tmp_path / each) for each in (source, target)]
        moved = subprocess.run(
            ["scp", "-q", *options, *ends],
            env=environment, capture_output=True, timeout=60, check=False,
        )  # fmt: skip
        assert moved.returncode == 0, moved.stderr
    assert (tmp_path / "back").read_bytes() == content
    local = free_port()
    tunnel = subprocess.Popen(
        ["ssh", *options, "-N", "-L", f"127.0.0.1:{local}:localhost:{PORT}", "job"],
        env=environment, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait_until(lambda: answers(local), "the tunnel", 30)
        assert "/tunnel" in httpx.get(f"http://127.0.0.1:{local}/tunnel", trust_env=False).text
    finally:
        tunnel.terminate()
        tunnel.wait(20)


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_forwarded_port_carries_ten_megabytes_both_ways(reached: Reached) -> None:
    local = free_port()
    forward = reached.begin("forward", reached.id, f":{local}")
    try:
        wait_until(lambda: answers(local), "the port here", 30)
        content = os.urandom(10 << 20)
        with httpx.Client(trust_env=False, timeout=60) as client:
            answer = client.post(f"http://127.0.0.1:{local}/", content=content)
        assert answer.content == content
    finally:
        forward.terminate()
        forward.communicate(timeout=20)


def test_a_browser_enters_by_a_link_and_sees_the_pages_of_the_job_alone(reached: Reached) -> None:
    link = reached.do("link", reached.id).stdout.decode().strip()
    origin, _, entrance = link.partition("/.baseload")
    host = origin.removeprefix("http://")
    assert host.startswith(f"{reached.id}.localhost:")
    base = f"{reached.stack.url.rpartition(':')[0]}:{host.rpartition(':')[2]}"
    with httpx.Client(base_url=base, headers={"Host": host}, trust_env=False) as browser:
        assert browser.get("/").status_code == 401
        entered = browser.get(f"/.baseload{entrance}")
        assert (entered.status_code, entered.headers["location"]) == (303, "/")
        cookie = entered.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=lax" in cookie
        assert browser.get(f"/.baseload{entrance}").status_code == 401, "a link is good once"
        ours = {"Cookie": cookie.partition(";")[0] + "; theirs=2"}
        page = browser.get("/deep/page?x=1", headers=ours)
        assert page.status_code == 200
        assert "'/deep/page?x=1'" in page.text
        assert "'theirs=2')" in page.text, "our own cookie is not the job's"
        assert "access-control-allow-origin" not in page.headers
        assert page.headers["set-cookie"] == "own=1; Path=/"
        moved = browser.get("/moved", headers=ours)
        assert moved.headers["location"] == "/there"
        evil = {**ours, "Origin": "http://evil.localhost"}
        assert browser.post("/", content=b"x", headers=evil).status_code == 403
        framed = {**ours, "Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"}
        assert browser.get("/", headers=framed).status_code == 403
        own = {**ours, "Origin": origin}
        assert browser.post("/", content=b"sent", headers=own).content == b"sent"
        other = {**ours, "Host": host.replace(reached.id, "job-" + "0" * 26)}
        assert browser.get("/", headers=other).status_code == 401
    address = base.removeprefix("http://").partition(":")
    with socket.create_connection((address[0], int(address[2]))) as connection, connect(
        f"ws://{host}/socket", sock=connection, origin=Origin(origin), additional_headers=ours,
        compression=None, proxy=None,
    ) as echo:  # fmt: skip
        echo.send("over a socket")
        assert echo.recv(10) == "over a socket"


def test_a_program_asks_the_job_with_its_key_which_the_job_never_sees(reached: Reached) -> None:
    answer = reached.platform.ask("GET", f"{reached.path}/endpoint/v1/models")
    assert "'/v1/models'" in answer.text
    assert "authorization" not in answer.text.lower()
    assert answer.headers["content-security-policy"].startswith("sandbox")
    assert "set-cookie" not in answer.headers


def test_nobody_else_reaches_the_port(reached: Reached) -> None:
    with socket.socket() as probe:
        probe.settimeout(5)
        assert probe.connect_ex((reached.machine.address, PORT)) != 0, "the LAN reaches the port"
    ask = (
        'python3 -c "import socket; s = socket.socket(); s.settimeout(3); '
        f"print('found', s.connect_ex(('127.0.0.1', {PORT})))\""
    )
    job = reached.platform.job(ask, reached.region_id)
    reached.platform.until_status(job, "finished")
    log = reached.platform.log(job)
    assert "found" in log
    assert "found 0" not in log


def test_a_killed_worker_ends_the_session_with_a_clear_error_and_the_next_one_works(
    reached: Reached,
) -> None:
    session = reached.begin("exec", reached.id, "--", "sleep", "744")
    by_ssh = reached.begin_ssh(reached.id, "sleep 745")
    wait_until(lambda: reached.left("sleep 744") and reached.left("sleep 745"), "the commands")
    reached.stack.kill("worker")
    _, errors = session.communicate(timeout=60)
    assert session.returncode == 3
    assert b"session-lost" in errors
    _, errors = by_ssh.communicate(timeout=60)
    assert by_ssh.returncode == 255
    assert b"session-lost" in errors
    wait_until(
        lambda: not (reached.left("sleep 744") or reached.left("sleep 745")), "all has ended", 60
    )
    wait_until(lambda: reached.do("exec", reached.id, "--", "true").returncode == 0, "another", 90)


def test_a_session_ends_with_its_job_and_leaves_no_process(reached: Reached) -> None:
    job = reached.platform.job("sleep 755", reached.region_id)
    reached.platform.until_status(job, "running")
    session = reached.begin("exec", job.rpartition("/")[2], "--", "sleep", "756")
    by_ssh = reached.begin_ssh(job.rpartition("/")[2], "sleep 757")
    wait_until(lambda: reached.left("sleep 756") and reached.left("sleep 757"), "the commands")
    reached.platform.post(f"{job}/cancel?discard=true")
    for each, code in ((session, 1), (by_ssh, 255)):
        _, errors = each.communicate(timeout=60)
        assert each.returncode == code, errors
        assert b"the job has ended" in errors
    reached.platform.until_status(job, "canceled")
    assert not reached.left("sleep 756")
    assert not reached.left("sleep 757")
    assert not reached.left("run_command")
    again = reached.do("exec", job.rpartition("/")[2], "--", "true")
    assert b"does not run now" in again.stderr
