"""What a boot drive carries, on whole machines: the console, the kept host key, joining at boot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from activities.transport.agent_archive import agent_archive
from tests.lab.agent import ROOT
from tests.lab.fixtures import BootMachine
from tests.lab.machine import Machine
from tests.lab.waiting import wait_until
from workers.runner.settings import CHECKOUT

NODE = CHECKOUT / "deploy" / "node"
DRIVE = NODE / "image" / "config" / "includes.chroot_after_packages"
HERE = "/usr/local/lib/baseload"
KEY = "restrict ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPlatform baseload"
REGION = "reg-01m83jebwvt2nf9trwd4ckvcrw"
CONF = f"""# The API of the test is on the machine itself.
api = http://127.0.0.1:8700
token=join_{REGION}_0123456789abcdefghijABCDEFGHIJ0123456789-_A
key="{KEY}"
"""
API = f"""
import http.server, json, sys

class Api(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer(200, open("{HERE}.served/console.py", "rb").read())

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with open("/root/announced", "ab") as file:
            file.write(body + b"\\n")
        self.answer(202, b"{{}}")

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass

http.server.ThreadingHTTPServer(("127.0.0.1", 8700), Api).serve_forever()
"""


def put(machine: Machine, path: str, text: str) -> None:
    machine.run("sh", "-c", 'mkdir -p "${1%/*}" && cat >"$1"', "sh", path, input_text=text)


def put_file(machine: Machine, source: Path, path: str) -> None:
    put(machine, path, source.read_text())
    machine.run("chmod", "755", path)


def serve_api(machine: Machine) -> None:
    """Start what takes announcements and serves the console's program, on the machine itself."""
    put_file(machine, NODE / "console.py", f"{HERE}.served/console.py")
    put(machine, "/root/api.py", API)
    machine.run("systemd-run", "--unit", "api", "python3", "/root/api.py")
    wait_until(
        lambda: "refresh" in machine.run("curl", "-s", "http://127.0.0.1:8700/", check=False),
        "the API answers",
    )


def issue(machine: Machine) -> str:
    return machine.run("cat", "/etc/issue", check=False)


def shown_anew(machine: Machine) -> str:
    """The console's text after the next run of the unit that the timer starts."""
    machine.run("systemctl", "start", "baseload-console.service")
    return issue(machine)


def ask_agent(machine: Machine, verb: str, **asked: object) -> dict[str, Any]:
    """What the agent answers, as the platform asks it."""
    agent = f"{ROOT}/agent/{agent_archive().name}"
    (machine.disk / agent[1:]).write_bytes(agent_archive().content)
    request = json.dumps({"root": ROOT, **asked})
    answer: dict[str, Any] = json.loads(machine.run("python3", agent, verb, input_text=request))
    assert answer["ok"], answer
    return answer


def start_from_drive(machine: Machine) -> None:
    """Mount the data partition, a folder here, and do what the drive's units do at boot."""
    machine.run("mkdir", "-p", "/srv/drive", "/mnt/drive")
    machine.run("mount", "--bind", "/srv/drive", "/mnt/drive")
    machine.run(f"{HERE}/boot-drive.sh", "keys")


@pytest.fixture
def machine(boot_machine: BootMachine) -> Machine:
    """A machine that has joined nothing; what the host has of a node shines through otherwise."""
    made = boot_machine("systemd")
    made.run("rm", "-rf", "/etc/baseload", "/var/lib/baseload", "/root/.ssh/authorized_keys")
    return made


@pytest.fixture
def drive(machine: Machine) -> Machine:
    put_file(machine, DRIVE / HERE[1:] / "boot-drive.sh", f"{HERE}/boot-drive.sh")
    put_file(machine, NODE / "join.sh", f"{HERE}/deploy/node/join.sh")
    put_file(machine, NODE / "console.py", f"{HERE}/console.py")
    machine.run("sh", "-c", "rm -f /etc/ssh/ssh_host_*")
    return machine


def minion_id(machine: Machine) -> str:
    shown = machine.run("ssh-keygen", "-lf", "/etc/ssh/ssh_host_ed25519_key.pub")
    return shown.split()[1]


def test_a_machine_keeps_its_minion_id_on_the_drive_and_joins_at_boot(drive: Machine) -> None:
    start_from_drive(drive)
    drive.run(f"{HERE}/boot-drive.sh", "join")
    drive.run("python3", f"{HERE}/console.py", "refresh")
    first = minion_id(drive)
    for words in (first, drive.address, "has joined no region", "write api, token and key"):
        assert words in issue(drive), issue(drive)

    put(drive, "/srv/drive/baseload.conf", CONF.replace("\n", "\r\n"))
    failed = drive.run(f"{HERE}/boot-drive.sh", "join", check=False)
    drive.run("python3", f"{HERE}/console.py", "refresh")
    assert "join: cannot announce this machine to http://127.0.0.1:8700" in issue(drive), failed
    assert "0123456789abcdefghij" not in issue(drive)

    drive.power_cut()
    drive.boot()  # Of the live system nothing stays, as here nothing in /etc/ssh and /etc/baseload.
    drive.run("sh", "-c", "rm -rf /etc/ssh/ssh_host_* /etc/baseload /run/baseload")
    start_from_drive(drive)
    serve_api(drive)
    drive.run(f"{HERE}/boot-drive.sh", "join")
    drive.run("python3", f"{HERE}/console.py", "refresh")
    assert minion_id(drive) == first
    announced = json.loads(drive.run("cat", "/root/announced").splitlines()[-1])
    assert (announced["minion_id"], announced["user"], announced["port"]) == (first, "root", 22)
    assert f"announced to {REGION} of http://127.0.0.1:8700; waits" in issue(drive)
    assert KEY in drive.run("cat", "/root/.ssh/authorized_keys").splitlines()
    assert REGION in drive.run("cat", "/srv/drive/joined/join")
    assert drive.run("stat", "-c", "%a", "/etc/baseload/join").strip() == "600"


def test_a_machine_that_joins_by_the_script_shows_it_until_it_has_left(machine: Machine) -> None:
    put(machine, "/etc/issue", "Debian GNU/Linux 12 \\n \\l\n\n")
    put_file(machine, NODE / "join.sh", "/root/join.sh")
    serve_api(machine)
    options = CONF.splitlines()[1:]
    given = [each.split("=", 1)[1].strip().strip('"') for each in options]
    command = ["/root/join.sh", "--api", given[0], "--token", given[1], "--key", given[2]]
    assert "announced as" in machine.run(*command)
    assert machine.run("systemctl", "is-active", "baseload-console.timer") == "active\n"
    waits = f"announced to {REGION}"
    for words in (machine.minion_id, waits, "Debian GNU/Linux 12 \\n \\l"):
        assert words in issue(machine), issue(machine)
    put(machine, "/var/lib/baseload/agent/agent-0.pyz", "")
    put(machine, "/var/lib/baseload/runs/job-console-0-1/spec.json", "{}")
    text = shown_anew(machine)
    assert f"state      of {REGION}" in text or f"state      connected to {REGION}" in text
    assert "; 1 job here" in text
    assert ask_agent(machine, "prepare")["has_console"] is True
    for status, takes in (("maintenance", "takes no new jobs"), ("active", "takes jobs")):
        ask_agent(machine, "show_status", node_id="nod-1", status=status)
        machine.run(f"{HERE}/console.py", "refresh")
        assert f"; {status}: {takes}; 1 job here" in issue(machine)
    ask_agent(machine, "release")
    machine.run(f"{HERE}/console.py", "refresh")
    text = issue(machine)
    assert ("; 1 job here" in text, "takes jobs" in text) == (True, False)
    machine.run("truncate", "--size=0", "/etc/baseload/join")  # As the agent does on removal.
    assert shown_anew(machine) == "Debian GNU/Linux 12 \\n \\l\n\n"
    left = f"ls {HERE} /etc/systemd/system | grep console; true"
    assert machine.run("sh", "-c", left) == ""
