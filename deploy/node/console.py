#!/usr/bin/env python3
"""Show on this machine's console which machine it is: minion id, address and state, in /etc/issue.

    console.py refresh      write the block of /etc/issue anew, and have the log-in prompts show it
    console.py install      keep it fresh from now on, from each boot (systemd); join.sh calls this
    console.py remove       take the block and the units away again
    console.py units DIR    write the units there, for an image

As root, with Python >= 3.8 and its standard library alone. The block stands between two lines of
its own in /etc/issue, whose other lines stay. A machine that has left all regions loses what
`install` has made.
"""

from __future__ import annotations

import base64
import contextlib
import glob
import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import urllib.parse

ISSUE = "/etc/issue"
JOIN_FILE = "/etc/baseload/join"
NOTE = "/run/baseload/note"
"""What else a person at the console has to know; a boot drive writes it."""
NODE_ROOT = "/var/lib/baseload"
PROGRAM = "/usr/local/lib/baseload/console.py"
INSTALLED = "/etc/systemd/system"
BEGIN, END = "---- baseload ----", "------------------"
MOST_CHARACTERS, MOST_NOTES = 200, 4
UNITS = {
    "baseload-console.service": """[Unit]
Description=Minion id, address and state of this machine in /etc/issue
After=network.target baseload-drive.service

[Service]
Type=oneshot
ExecStart=/usr/bin/env python3 -I %s refresh
TimeoutStartSec=30
Nice=10
"""
    % PROGRAM,
    "baseload-console.timer": """[Unit]
Description=Keep minion id, address and state of this machine in /etc/issue fresh

[Timer]
OnActiveSec=0
OnUnitActiveSec=30
AccuracySec=5

[Install]
WantedBy=timers.target
""",
}


def minion_id(folder: str = "/etc/ssh") -> str | None:
    """The fingerprint of the host key that join.sh announces; None: there is no such key."""
    for kind in ("ed25519", "ecdsa", "rsa"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            with open(os.path.join(folder, "ssh_host_%s_key.pub" % kind)) as file:
                blob = base64.b64decode(file.read().split()[1])
            digest = base64.b64encode(hashlib.sha256(blob).digest()).decode()
            return "SHA256:" + digest.rstrip("=")
    return None


def joined(path: str = JOIN_FILE) -> list[tuple[str, str]]:
    """The API and the region of each line of the join file."""
    try:
        with open(path, errors="replace") as file:
            lines = [line.split() for line in file]
    except OSError:
        return []
    return [(words[0], words[1]) for words in lines if len(words) >= 3]


def own_address(api: str | None = None) -> str | None:
    """The address that the API's network sees, else that of the default route, else the first.

    None: there is no network. Nothing is sent: connecting a datagram socket only chooses a route.
    """
    # A documentation address (RFC 5737) stands for the rest of the world.
    host, port = "192.0.2.1", 9
    with contextlib.suppress(ValueError):
        url = urllib.parse.urlsplit(api or "")
        host, port = url.hostname or host, url.port or port
    with contextlib.suppress(OSError, UnicodeError):
        kind, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(kind, socket.SOCK_DGRAM) as probe:
            probe.connect(where)
            address = probe.getsockname()[0]
            if not address.startswith("127.") and address != "::1":
                return address
    if api is not None:
        return own_address()
    with contextlib.suppress(OSError, subprocess.TimeoutExpired, IndexError):
        found = subprocess.run(["hostname", "-I"], capture_output=True, timeout=5, check=False)
        return found.stdout.decode("ascii", "replace").split()[0]
    return None


def has_session() -> bool:
    """Whether somebody without a terminal is logged in by SSH, or the agent runs: the platform."""
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            with open(path, "rb") as file:
                words = file.read(4096)
            if (words.startswith(b"sshd") and b"@notty" in words) or b"/agent/agent-" in words:
                return True
    return False


def open_runs(root: str = NODE_ROOT) -> int:
    """How many workers of jobs are here whose command has not ended."""
    runs = glob.glob(os.path.join(glob.escape(root), "runs", "[a-z0-9]*", "spec.json"))
    return sum(not os.path.exists(run[: -len("spec.json")] + "exit.json") for run in runs)


def node_status(root: str = NODE_ROOT) -> str | None:
    """The status that the platform has said last that the node has; None: it has said none."""
    try:
        with open(os.path.join(root, "status.json"), errors="replace") as file:
            status = json.loads(file.read(4096))["status"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return status if isinstance(status, str) else None


def state() -> str:
    """What this machine is to the platform, as far as it can say so itself."""
    regions = joined()
    if not regions:
        return "has joined no region"
    where = ", ".join("%s of %s" % (region, api) for api, region in regions[:3])
    if not glob.glob(os.path.join(NODE_ROOT, "agent", "agent-*.pyz")):
        return "announced to %s; waits until it is added there and reached" % where
    runs = open_runs()
    taken = {"active": "; active: takes jobs", "maintenance": "; maintenance: takes no new jobs"}
    takes = taken.get(node_status() or "", "")
    jobs = "; %d job%s here" % (runs, "" if runs == 1 else "s") if runs else ""
    where = ("connected to %s" if has_session() else "of %s, not connected now") % where
    return where + takes + jobs


def notes() -> list[str]:
    """The first lines of the note, if there is one."""
    with contextlib.suppress(OSError), open(NOTE, errors="replace") as file:
        return [line.strip() for line in file.read(4096).splitlines() if line.strip()]
    return []


def block() -> list[str]:
    """The lines between the marks."""
    regions = joined()
    lines = [
        "minion id  %s" % (minion_id() or "none: there is no SSH host key"),
        "address    %s" % (own_address(regions[0][0] if regions else None) or "none: no network"),
        "state      %s" % state(),
        *("note       %s" % note for note in notes()[:MOST_NOTES]),
    ]
    return [plain(line) for line in lines]


def plain(line: str) -> str:
    """A line that a terminal shows as it is: agetty replaces what follows a backslash."""
    kept = "".join(each if " " <= each <= "~" and each != "\\" else "?" for each in line)
    return kept[:MOST_CHARACTERS]


def write_issue(lines: list[str] | None, path: str = ISSUE) -> bool:
    """Put the lines between the marks, or, if None, take them away; return whether it changed."""
    try:
        with open(path, errors="surrogateescape") as file:
            before = file.read()
    except FileNotFoundError:
        before = ""
    others, is_ours = [], False
    for line in before.splitlines():
        is_ours = is_ours or line == BEGIN
        if not is_ours:
            others.append(line)
        is_ours = is_ours and line != END
    ours = [] if lines is None else [BEGIN, *lines, END]
    while ours and others and not others[-1]:
        others.pop()
    text = "".join(line + "\n" for line in (*others, *ours)) + ("\n" if ours else "")
    if text == before or (lines is None and BEGIN not in before.splitlines()):
        return False
    part = path + ".baseload"
    with open(part, "w", errors="surrogateescape") as file:
        file.write(text)
    os.chmod(part, 0o644)
    os.replace(part, path)
    return True


def show_anew() -> None:
    """Have the log-in prompts of all consoles show the file as it is now, where they can."""
    agetty = shutil.which("agetty", path="/sbin:/usr/sbin:/bin:/usr/bin")
    if agetty:
        _run(agetty, "--reload")


def refresh() -> None:
    """Write the block; a machine that has left all regions loses what `install` has made."""
    is_installed = os.path.exists(os.path.join(INSTALLED, "baseload-console.timer"))
    if is_installed and not joined():
        remove()
    elif write_issue(block()):
        show_anew()


def install() -> None:
    """Keep the block fresh from now on; a repeat replaces the program and changes nothing else."""
    os.makedirs(os.path.dirname(PROGRAM), exist_ok=True)
    with open(PROGRAM + ".part", "w") as file:
        file.write(source())
    os.chmod(PROGRAM + ".part", 0o755)
    os.replace(PROGRAM + ".part", PROGRAM)
    units(INSTALLED)
    refresh()
    _run("systemctl", "daemon-reload")
    _run("systemctl", "enable", "--now", "baseload-console.timer")


def remove() -> None:
    """Take the block, the units and the program away; a repeat changes nothing."""
    if write_issue(None):
        show_anew()
    _run("systemctl", "disable", "--now", "baseload-console.timer")
    for path in (*(os.path.join(INSTALLED, name) for name in UNITS), PROGRAM):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    _run("systemctl", "daemon-reload")


def units(folder: str) -> None:
    """Write the units into a folder."""
    for name, text in UNITS.items():
        with open(os.path.join(folder, name), "w") as file:
            file.write(text)


def source() -> str:
    """This program's own text."""
    with open(os.path.abspath(sys.argv[0])) as file:
        return file.read()


def _run(*command: str) -> None:
    """Run a command of the system; what it says or whether it is there does not matter."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(
            command, timeout=20, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, check=False,
        )  # fmt: skip


def main(arguments: list[str]) -> None:
    """Do what the arguments say. Raises: SystemExit, when they say nothing known."""
    deeds = {"refresh": refresh, "install": install, "remove": remove}
    if len(arguments) == 1 and arguments[0] in deeds:
        deeds[arguments[0]]()
    elif len(arguments) == 2 and arguments[0] == "units":
        units(arguments[1])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
