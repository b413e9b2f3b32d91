"""`deploy/node/join.sh`: what a person runs on a machine that is to become a node."""

import json
import subprocess
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from workers.runner.local_sshd import Machine, prepare_machine
from workers.runner.settings import CHECKOUT

TOKEN = "join_reg-01m83jebwvt2nf9trwd4ckvcrw_0123456789abcdefghijABCDEFGHIJ0123456789-_A"
REGION = "reg-01m83jebwvt2nf9trwd4ckvcrw"
KEY = "restrict ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPlatform baseload"


class Platform(ThreadingHTTPServer):
    """Takes announcements, or refuses them."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = 201
        self.announced: list[dict[str, object]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Platform

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/v1/announcements":
            self.server.announced.append(json.loads(body))
        self.send_response(self.server.status)
        self.end_headers()
        self.wfile.write(b'{"detail": "too many announcements"}')

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        return None


@pytest.fixture
def platform() -> Iterator[Platform]:
    with Platform() as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return prepare_machine(tmp_path / "sshd")


def join(
    machine: Machine, *options: str, token: str | None = TOKEN
) -> subprocess.CompletedProcess[str]:
    command = [
        str(CHECKOUT / "deploy/node/join.sh"),
        *(("--token", token) if token else ()),
        "--join-file", str(join_file(machine)),
        "--key", KEY,
        "--host-key", str(machine.folder / "host_key.pub"),
        "--authorized-keys", str(machine.authorized_keys),
        "--port", "2222",
        *options,
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, check=False)


def join_file(machine: Machine) -> Path:
    return machine.folder / "etc" / "join"


def test_it_shows_the_minion_id_and_announces_the_machine(
    platform: Platform, machine: Machine
) -> None:
    done = join(machine, "--api", platform.url)
    assert done.returncode == 0, done.stderr
    assert f"minion id: {machine.minion_id}\n" in done.stdout
    assert platform.announced == [
        {
            "token": TOKEN,
            "minion_id": machine.minion_id,
            "host_public_key": machine.host_public_key,
            "address": "127.0.0.1",
            "port": 2222,
            "user": machine.user,
        }
    ]


def test_the_platforms_key_is_let_in_once_and_other_keys_stay(
    platform: Platform, machine: Machine
) -> None:
    machine.authorized_keys.write_text("ssh-rsa AAAA somebody")
    for _ in range(2):
        assert join(machine, "--api", platform.url).returncode == 0
    assert machine.authorized_keys.read_text() == f"ssh-rsa AAAA somebody\n{KEY}\n"
    assert machine.authorized_keys.stat().st_mode & 0o777 == 0o600


def test_the_region_is_written_down_for_the_account_alone(
    platform: Platform, machine: Machine
) -> None:
    join_file(machine).parent.mkdir()
    join_file(machine).write_text("http://another:8700 reg-1 join_reg-1_x\n")
    old = TOKEN.replace(REGION, "reg-01m83jebwvt2nf9trwd4ckvcrx")
    assert join(machine, "--api", platform.url, token=old).returncode == 0
    assert join(machine, "--api", f"{platform.url}/").returncode == 0
    assert join_file(machine).read_text() == (
        "http://another:8700 reg-1 join_reg-1_x\n"
        f"{platform.url} {REGION} {TOKEN} {machine.authorized_keys}\n"
    )
    assert join_file(machine).stat().st_mode & 0o777 == 0o600


def test_a_machine_that_has_joined_announces_itself_without_a_new_token(
    platform: Platform, machine: Machine
) -> None:
    assert join(machine, "--api", platform.url).returncode == 0
    moved = join(machine, "--api", platform.url, "--address", "10.0.0.9", token=None)
    assert moved.returncode == 0, moved.stderr
    found = [(one["token"], one["address"]) for one in platform.announced]
    assert found == [(TOKEN, "127.0.0.1"), (TOKEN, "10.0.0.9")]


def test_it_says_how_it_is_used(machine: Machine) -> None:
    done = join(machine, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    for option in ("--api", "--token", "--key", "--address", "--port", "--user", "--join-file"):
        assert option in done.stdout
    assert "api=" not in done.stdout, "nothing of the program"
    assert machine.authorized_keys.read_text() == ""


def test_without_a_token_nothing_is_changed(platform: Platform, machine: Machine) -> None:
    done = join(machine, "--api", platform.url, token=None)
    assert done.returncode == 1
    assert "--token is needed" in done.stderr
    assert machine.authorized_keys.read_text() == ""
    assert platform.announced == []


def test_a_refusal_is_shown_as_the_platform_words_it(platform: Platform, machine: Machine) -> None:
    platform.status = 429
    done = join(machine, "--api", platform.url)
    assert done.returncode == 1
    assert "refused the announcement (429)" in done.stderr
    assert "too many announcements" in done.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "--api is needed"),
        (("--api", "http://127.0.0.1:9", "--key", "nonsense"), "--key is needed"),
        (("--api", "http://127.0.0.1:9"), "cannot announce this machine to http://127.0.0.1:9"),
        (("--api", "http://127.0.0.1:9", "--host-key", "/nowhere"), "no SSH host key"),
        (("--colour",), "--colour needs a value"),
    ],
)
def test_what_is_missing_is_said_in_one_line(
    machine: Machine, options: tuple[str, ...], words: str
) -> None:
    done = join(machine, *options)
    assert done.returncode == 1
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
