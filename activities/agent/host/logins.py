"""The logins to this machine: closes all but the platform's, without locking the platform out, and
restores them."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess

from ..errors import RefusedError
from . import sshserver

CONFIG = "/etc/ssh/sshd_config"
DROP_IN = "/etc/ssh/sshd_config.d/00-baseload.conf"
KEYS = "/etc/ssh/baseload_authorized_keys"
SAVED = ".before-baseload"
BEGIN = "# baseload: begin\n"
END = "# baseload: end\n"
KEY = re.compile(r"(restrict )?(ssh-|ecdsa-|sk-)[a-z0-9@.-]+ [A-Za-z0-9+/=]{20,}( [^\n]*)?\Z")


def close_others(authorized_key: str) -> None:
    """Allow logins only with this key, as our current user.

    The new configuration is tested by sshd before it is used; the old one is kept beside it.
    Raises: RefusedError `no-key`, `sshd-config`.
    """
    key = authorized_key.strip()
    if not KEY.match(key):
        raise RefusedError("no-key", "authorized_key: want one public key, found %r" % key[:40])
    server = sshserver.listener()
    config = sshserver.config_of(server, CONFIG)
    write(KEYS, key + "\n", 0o600)
    user = pwd.getpwuid(os.geteuid()).pw_name
    target, text = _where(config, _rules(user))
    if _read(target) == text:
        sshserver.reload(server)  # An earlier attempt may have been interrupted before this.
        return
    before = _read(target)
    if before is not None and not os.path.exists(target + SAVED):
        shutil.copy2(target, target + SAVED)
    write(target, text, 0o644)
    problem = _test(config)
    if problem:
        if before is None:
            os.unlink(target)
        else:
            write(target, before, 0o644)
        raise RefusedError("sshd-config", "sshd -t: %s" % problem)
    sshserver.reload(server)


def open_again() -> list[str]:
    """Undo `close_others`: the owner's configuration counts again; return the changed files.

    A repeat changes nothing, and completes an interrupted attempt, because the region's key stays
    valid until the server has reloaded.
    Raises: RefusedError `sshd-config`, and then nothing is changed.
    """
    server = sshserver.listener()
    config = sshserver.config_of(server, CONFIG)
    undone = {}
    for path in (DROP_IN, config):
        text = _read(path)
        before_us = _before_us(path, text or "")
        if text is not None and before_us != text:
            undone[path] = text
            _put(path, before_us)
    problem = _test(config) if undone else ""
    if problem:
        for path, text in undone.items():
            write(path, text, 0o644)
        raise RefusedError("sshd-config", "sshd -t: %s" % problem)
    if undone or os.path.exists(KEYS):
        sshserver.reload(server)
    for path in (*(path + SAVED for path in (DROP_IN, config)), KEYS):
        _put(path, None)
    return sorted(undone)


def _before_us(path: str, text: str) -> str | None:
    """What the file would be without us; None: it would not be there."""
    if path != DROP_IN:
        return _without_block(text)
    saved = _read(path + SAVED)
    return None if saved is None or KEYS in saved else saved


def _put(path: str, text: str | None) -> None:
    """Make the file say this; None: make it go. Silent where it is gone."""
    if text is not None:
        write(path, text, 0o644)
    elif os.path.exists(path):
        os.unlink(path)


def _without_block(text: str) -> str:
    return re.sub(re.escape(BEGIN) + ".*?" + re.escape(END), "", text, flags=re.DOTALL)


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
    return config, BEGIN + rules + END + _without_block(main)


def _test(config: str) -> str:
    sshd = shutil.which("sshd") or "/usr/sbin/sshd"
    done = subprocess.run(
        [sshd, "-t", "-f", config], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    return "" if done.returncode == 0 else done.stderr.decode(errors="replace").strip()


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
