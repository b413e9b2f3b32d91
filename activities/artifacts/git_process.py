"""The `git` program, over HTTPS or SSH alone: what it may do, connect, and take of memory and time.

Sources fetch with it, and destinations push. Nothing of a repository runs here: there are no hooks,
no filters, and no work tree.
"""

import os
import re
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from temporalio.exceptions import ApplicationError

from activities.artifacts.scratch import bytes_of_folder
from activities.artifacts.sources.source_addresses import (
    SourceAddressRefusedError,
    permitted_address,
)
from activities.artifacts.sources.tar_streams import (
    CHUNK_BYTES,
    refused,
    unavailable,
)
from activities.secrets.sealing import write_private
from activities.third_party_keys.of_runs import git_header, known_hosts_of

MOST_S = 3600
"""How long one call of git may take."""
LEAST_VERSION = (2, 39, 1)
"""The first version of git that connects the address that it is given (2.37), and has no overflow
in what it reads of a repository's attributes (CVE-2022-23521) and formats (CVE-2022-41903)."""
MEMORY_KIB = 2 << 20
"""The address space that git and each program that it starts may take."""
MOST_OUTPUT_BYTES = 4096
"""What is kept of what git says, which a server may have written: its end."""
NO_PROGRAM = 127
"""How the shell ends that finds no program."""
LOOK_S = 1.0
SLOW_BYTES_PER_S = 1000
SLOW_S = 60
"""A transfer ends that is slower than this for so long."""
_NAME = re.compile(r"(?!-)[a-z0-9-]{1,63}(?<!-)(\.(?!-)[a-z0-9-]{1,63}(?<!-))*")
COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_REFUSALS = (
    "not found",
    "host key verification failed",
    "permission denied",
    "couldn't find remote ref",
    "authentication failed",
    "returned error: 403",
)
_NO_ACCESS = "could not read"
"""What git says of a server that refuses it, and over SSH of one that is away."""
_OUTAGES = (
    "connection refused",
    "connection reset",
    "connection closed",
    "timed out",
    "network is unreachable",
    "no route to host",
)
_NO_MEMORY = ("out of memory", "cannot allocate memory", "memory exhausted")


def check_version(scratch: Path) -> None:
    """Raises: ApplicationError `Refused`, when the worker's git is too old."""
    said = run_git(("version",), scratch).strip()
    found = tuple(int(each) for each in re.findall(r"\d+", said)[:3])
    if found < LEAST_VERSION:
        least = ".".join(map(str, LEAST_VERSION))
        raise refused(f"the worker's git: asked for at least {least}, found {said[:80]!r}")


@dataclass(frozen=True)
class GitRemote:
    """A repository of a server, as git gets it: pinned to the address that was checked."""

    url: str
    options: tuple[str, ...]
    """What stands before the command that connects it."""
    variables: Mapping[str, str] = field(repr=False)
    """What opens it."""


@contextmanager
def git_remote(url: str, key: Mapping[str, str] | None, scratch: Path) -> Iterator[GitRemote]:
    """The repository of a URL, whose key lies in `scratch` until the block ends. Blocking.

    key: the fields of a third-party key; None: the repository is public.
    Raises: ApplicationError `Refused` or `Unavailable`.
    """
    over_ssh = urlsplit(url).scheme == "ssh"
    plain, address = (url, "") if over_ssh else _pinned(url)
    said = {
        "http.curloptResolve": address,
        "protocol.ssh.allow": "always" if over_ssh else "never",
        "protocol.https.allow": "always",
        "protocol.http.allow": "always",  # A URL has https alone; tests serve http.
    }
    with _opening(url, key, scratch) as variables:
        yield GitRemote(plain, _config(said), variables)


def _pinned(url: str) -> tuple[str, str]:
    """The URL as git gets it, and its port with the checked address, as curl takes them.

    git and curl read a host in ways of their own (escapes, other forms of numbers, a dot at its
    end), so it must be one that can be read in one way only, and every name is pinned.
    """
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    address = _permitted(url, host, port)
    shown = f"[{host}]" if ":" in host else host
    plain = parts._replace(netloc=f"{shown}:{port}").geturl()
    return plain, f"*:{port}:{f'[{address}]' if ':' in address else address}"


def _permitted(url: str, host: str, port: int) -> str:
    """The checked address of a host. Raises: ApplicationError."""
    try:
        address = permitted_address(host, port) if _is_plain(host) else None
    except SourceAddressRefusedError as error:
        raise refused(f"{url}: {error}") from error
    except (OSError, ValueError) as error:
        raise unavailable(f"{url}: {error}") from error
    if address is None:
        raise refused(f"{url}: its host is a name of letters, digits, - and dots, or an address")
    return address


def _is_plain(host: str) -> bool:
    """Whether a host is an address as it is written, or a name that is no number."""
    try:
        return str(ip_address(host)) == host and "%" not in host
    except ValueError:
        last = host.rpartition(".")[2]
        is_number = last.isdigit() or re.fullmatch(r"0x[0-9a-f]*", last) is not None
        return _NAME.fullmatch(host) is not None and not is_number


@contextmanager
def _opening(url: str, key: Mapping[str, str] | None, scratch: Path) -> Iterator[Mapping[str, str]]:
    """The variables by which git opens a repository with a key, whose files go after the block."""
    parts = urlsplit(url)
    if parts.scheme != "ssh":
        if key is not None and "token" in key and key["host"] == parts.hostname:
            # To this URL alone: redirects are not followed.
            yield git_header(key) | {"GIT_CONFIG_KEY_0": "http.extraHeader"}
        else:
            yield {}
        return
    if key is None or "private_key" not in key:
        raise refused(f"{url}: needs a private key in the project's key of the type git")
    files = {"git_key": key["private_key"], "known_hosts": known_hosts_of(key)}
    try:
        for name, text in files.items():
            write_private(scratch / name, text)
        yield {"GIT_SSH_COMMAND": _ssh(url, scratch), "GIT_SSH_VARIANT": "ssh"}
    finally:
        for name in files:
            (scratch / name).unlink(missing_ok=True)


def _ssh(url: str, scratch: Path) -> str:
    """The command that connects the checked address alone, where it finds a known host."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or 22
    options = {
        "HostName": _permitted(url, host, port),
        "HostKeyAlias": host if port == 22 else f"[{host}]:{port}",
        "UserKnownHostsFile": str(scratch / "known_hosts"),
        "GlobalKnownHostsFile": "/dev/null",
        "StrictHostKeyChecking": "yes",
        "IdentitiesOnly": "yes",
        "IdentityAgent": "none",
        "BatchMode": "yes",
        "ConnectTimeout": "10",
        "ServerAliveInterval": "15",
        "ServerAliveCountMax": "4",
    }
    words = ["ssh", "-F", "none", "-i", str(scratch / "git_key")]
    return shlex.join([*words, *(f"-o{name}={value}" for name, value in options.items())])


def _options() -> tuple[str, ...]:
    """What git may do: connect nothing but a `GitRemote`, without redirects to another address."""
    said = {
        "protocol.allow": "never",
        "http.followRedirects": "false",
        "http.lowSpeedLimit": str(SLOW_BYTES_PER_S),
        "http.lowSpeedTime": str(SLOW_S),
        "http.proxy": "",
        "credential.helper": "",
        "core.hooksPath": "/dev/null",
        "core.fsmonitor": "false",
        "transfer.fsckObjects": "true",
        "gc.auto": "0",
        # What git holds in its memory at once; larger files pass through it.
        "core.bigFileThreshold": "64m",
        "core.packedGitWindowSize": "32m",
        "core.packedGitLimit": "256m",
        "core.deltaBaseCacheLimit": "64m",
        "pack.threads": "2",
    }
    return _config(said)


def _config(said: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(part for name, value in said.items() for part in ("-c", f"{name}={value}"))


def _environment(home: Path) -> dict[str, str]:
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": str(home),
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "/bin/false",
        "MALLOC_ARENA_MAX": "2",
    }


def run_git(
    words: Sequence[str],
    scratch: Path,
    *,
    most_bytes: int | None = None,
    variables: Mapping[str, str] | None = None,
    feed: Iterable[bytes] | None = None,
) -> str:
    """The end of what git says. Blocking.

    most_bytes: how large its folder may become.
    feed: what it reads.
    Raises: ApplicationError, when it fails, or its folder grows too large.
    """
    with git_started(words, scratch, variables=variables, is_fed=feed is not None) as started:
        ends_at = time.monotonic() + MOST_S
        if feed is not None:
            _feed(started.running, feed)
        while True:
            try:
                started.running.wait(LOOK_S)
                break
            except subprocess.TimeoutExpired:
                if time.monotonic() > ends_at:
                    raise unavailable(f"git has not ended within {MOST_S} s") from None
                if most_bytes is not None and bytes_of_folder(scratch) > most_bytes:
                    raise refused(f"the repository has at most {most_bytes} bytes") from None
    if started.running.returncode == NO_PROGRAM:
        raise refused("the host of the worker process has no git")
    if started.running.returncode:
        raise git_failure(started.problems.text())
    return started.said.text()


def _feed(running: "subprocess.Popen[bytes]", chunks: Iterable[bytes]) -> None:
    """Let git read these chunks; one that has ended by itself says why at its end."""
    assert running.stdin is not None  # noqa: S101 - it is a pipe
    limit = threading.Timer(MOST_S, _kill, (running,))
    limit.daemon = True
    limit.start()
    try:
        with suppress(BrokenPipeError), running.stdin:
            for chunk in chunks:
                running.stdin.write(chunk)
    finally:
        limit.cancel()


def _kill(running: "subprocess.Popen[bytes]") -> None:
    with suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)


def git_failure(problem: str) -> ApplicationError:
    """The failure that git has written: `Refused` or, if another attempt may mend it, not."""
    words = "".join(each if each.isprintable() else " " for each in problem).strip()[-500:]
    if any(each in words.lower() for each in _NO_MEMORY):
        return refused(f"git: needs more than {MEMORY_KIB} KiB of memory: {words}")
    is_away = any(each in words.lower() for each in _OUTAGES)
    is_final = any(each in words.lower() for each in _REFUSALS)
    is_final = is_final or (_NO_ACCESS in words.lower() and not is_away)
    return (refused if is_final else unavailable)(f"git: {words}")


class _Tail:
    """The end of what a program writes into a pipe, which is read as long as it is open."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe, self._found = pipe, b""
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def text(self) -> str:
        """What was kept, once the program has ended."""
        self._thread.join(LOOK_S)
        return self._found.decode(errors="replace")

    def _read(self) -> None:
        with self._pipe:
            while chunk := self._pipe.read1(CHUNK_BYTES):  # type: ignore[attr-defined]
                self._found = (self._found + chunk)[-MOST_OUTPUT_BYTES:]


@dataclass(frozen=True)
class StartedGit:
    """git that runs, and the end of what it says."""

    running: "subprocess.Popen[bytes]"
    said: _Tail
    problems: _Tail


@contextmanager
def git_started(
    words: Sequence[str],
    home: Path,
    *,
    is_read: bool = False,
    is_fed: bool = False,
    variables: Mapping[str, str] | None = None,
) -> Iterator[StartedGit]:
    """git with a limit of its memory, which is ended with all that it has started.

    is_read: the caller reads what it writes. is_fed: the caller writes what it reads.
    Raises: ApplicationError `Refused`, when the host has no shell.
    """
    limited = f'ulimit -v {MEMORY_KIB} && exec git "$@"'
    try:
        running = subprocess.Popen(
            ("/bin/sh", "-c", limited, "git", *_options(), *words),
            env={**_environment(home), **(variables or {})},
            cwd=home,
            stdin=subprocess.PIPE if is_fed else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except FileNotFoundError as error:
        raise refused("the host of the worker process has no shell") from error
    assert running.stdout is not None and running.stderr is not None  # noqa: S101, PT018 - pipes
    try:
        problems = _Tail(running.stderr)
        yield StartedGit(running, problems if is_read else _Tail(running.stdout), problems)
    finally:
        _kill(running)
        running.wait()
