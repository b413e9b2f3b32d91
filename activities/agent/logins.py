"""Closing every log-in to this machine but the platform's, without locking the platform out."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import subprocess

from . import processes
from .errors import RefusedError

CONFIG = "/etc/ssh/sshd_config"
DROP_IN = "/etc/ssh/sshd_config.d/00-baseload.conf"
KEYS = "/etc/ssh/baseload_authorized_keys"
BEGIN = "# baseload: begin\n"
END = "# baseload: end\n"
KEY = re.compile(r"(ssh-|ecdsa-|sk-)[a-z0-9@.-]+ [A-Za-z0-9+/=]{20,}( [^\n]*)?\Z")


def close_others(authorized_key: str) -> None:
    """Let in nobody but the holder of this key, as the user that we are now.

    The new configuration is tested by sshd before it is used; the old one is kept beside it.
    Raises: RefusedError `no-key`, `sshd-config`.
    """
    key = authorized_key.strip()
    if not KEY.match(key):
        raise RefusedError("no-key", "authorized_key: want one public key, found %r" % key[:40])
    listener = _listener()
    config = _config_of(listener)
    write(KEYS, key + "\n", 0o600)
    user = pwd.getpwuid(os.geteuid()).pw_name
    target, text = _where(config, _rules(user))
    if _read(target) == text:
        return
    before = _read(target)
    if before is not None and not os.path.exists(target + ".before-baseload"):
        shutil.copy2(target, target + ".before-baseload")
    write(target, text, 0o644)
    problem = _test(config)
    if problem:
        if before is None:
            os.unlink(target)
        else:
            write(target, before, 0o644)
        raise RefusedError("sshd-config", "sshd -t: %s" % problem)
    _reload(listener)


def _rules(user: str) -> str:
    return "".join(
        line + "\n"
        for line in (
            "PubkeyAuthentication yes",
            "AuthenticationMethods publickey",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "HostbasedAuthentication no",
            "GSSAPIAuthentication no",
            "PermitRootLogin prohibit-password",
            "AuthorizedKeysFile " + KEYS,
            "AllowUsers " + user,
        )
    )


def _where(config: str, rules: str) -> tuple[str, str]:
    """A drop-in where the main file reads such, else a block at its head: the first value wins."""
    main = _read(config) or ""
    if config == CONFIG and re.search(r"^\s*Include\s+\S*sshd_config\.d/", main, re.MULTILINE):
        return DROP_IN, rules
    rest = re.sub(re.escape(BEGIN) + ".*?" + re.escape(END), "", main, flags=re.DOTALL)
    return config, BEGIN + rules + END + rest


def _listener() -> int | None:
    """The listening sshd that this session came through, if it did."""
    found = None
    process = processes.find(os.getpid())
    while process is not None and process.parent > 0:
        process = processes.find(process.parent)
        if process is not None and _name(process.pid).startswith("sshd"):
            found = process.pid
    return found


def _name(pid: int) -> str:
    return _read("/proc/%d/comm" % pid) or ""


def _config_of(listener: int | None) -> str:
    """The configuration file that the listener was started with."""
    words = (_read("/proc/%d/cmdline" % listener) or "") if listener else ""
    parts = words.replace("\0", " ").split()
    if "-f" in parts[:-1]:
        return parts[parts.index("-f") + 1]
    return CONFIG


def _test(config: str) -> str:
    sshd = shutil.which("sshd") or "/usr/sbin/sshd"
    done = subprocess.run(
        [sshd, "-t", "-f", config], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    return "" if done.returncode == 0 else done.stderr.decode(errors="replace").strip()


def _reload(listener: int | None) -> None:
    """HUP makes sshd read its configuration anew and leaves open sessions alone."""
    pid = listener
    if pid is None:
        text = (_read("/run/sshd.pid") or "").strip()
        pid = int(text) if text.isdigit() else None
    if pid is not None:
        os.kill(pid, signal.SIGHUP)


def _read(path: str) -> str | None:
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return None


def write(path: str, text: str, mode: int) -> None:
    """Write beside and rename, owned by the caller."""
    part = path + ".part"
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        os.fsync(file.fileno())
    os.chmod(part, mode)
    os.rename(part, path)
