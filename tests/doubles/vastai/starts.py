"""How a container of Vast.ai starts: its variables, its script, and whether an SSH server runs."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from typing import Any

_PUBLIC_KEY = re.compile(r"(?:ssh|ecdsa|sk)-[-a-z0-9@.]+ [A-Za-z0-9+/=]{60,}")


@dataclass
class Start:
    """env: without the ports, which are in `published` (`22:22`)."""

    image: str
    runtype: str
    env: dict[str, str] = field(default_factory=dict)
    published: list[str] = field(default_factory=list)
    onstart: str = ""
    args: str = ""

    @property
    def kinds(self) -> set[str]:
        return set(self.runtype.split())

    @property
    def is_ssh(self) -> bool:
        """Whether Vast.ai puts in an SSH server of its own, and the account's keys."""
        return any(kind.startswith(("ssh", "jupyter")) for kind in self.kinds)

    @property
    def is_direct(self) -> bool:
        """Whether port 22 is published at the machine's own address."""
        direct = any("direc" in kind for kind in self.kinds)
        return direct or any(each.endswith(":22") for each in self.published)

    @property
    def script(self) -> str:
        return self.onstart if self.is_ssh else self.args

    @property
    def starts_sshd(self) -> bool:
        run = [self.args, *(value for name, value in self.env.items() if f"${name}" in self.args)]
        return self.is_ssh or any("sshd" in text for text in run)

    @property
    def own_port(self) -> int | None:
        """The published port at which the script runs an SSH server of its own, besides port 22."""
        for each in self.published:
            port = each.rpartition(":")[2]
            if self.is_ssh and "sshd" in self.onstart and f"-p {port} " in self.onstart:
                return int(port)
        return None

    @property
    def own_keys(self) -> list[str]:
        """The public keys that an SSH server lets in which Vast.ai has not started."""
        return _PUBLIC_KEY.findall("\n".join((self.script, *self.env.values())))


def start_of(asked: dict[str, Any]) -> Start:
    """The start that a request asks for. Raises: ValueError for an `env` that cannot be read."""
    args = asked.get("args") or []
    text = asked.get("args_str") or shlex.join(args)
    usual = "args" if text else "ssh"
    start = Start(asked["image"], asked.get("runtype", usual), onstart=asked.get("onstart") or "")
    start.args = text
    given = asked.get("env", {})
    pairs = given.items() if isinstance(given, dict) else _flags(given)
    for name, value in pairs:
        if name.startswith("-p "):
            start.published.append(name.removeprefix("-p ").strip())
        elif name.startswith("-"):
            raise ValueError(f"env {name!r}: only -p and -e are known")
        else:
            start.env[name] = value
    return start


def _flags(text: str) -> list[tuple[str, str]]:
    """Docker's flags as pairs: `-e A=1 -p 22:22`."""
    words = shlex.split(text)
    if len(words) % 2:
        raise ValueError(f"env {text!r}: a flag has no value")
    pairs = []
    for flag, value in zip(words[::2], words[1::2], strict=True):
        if flag == "-e":
            name, _, content = value.partition("=")
            pairs.append((name, content))
        else:
            pairs.append((f"{flag} {value}", "1"))
    return pairs
