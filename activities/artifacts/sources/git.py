"""Revisions of git repositories, fetched by the `git` program over HTTPS alone."""

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from temporalio.exceptions import ApplicationError

from activities.artifacts.sources.source_addresses import (
    SourceAddressRefusedError,
    permitted_address,
)
from activities.artifacts.sources.tar_streams import (
    CHUNK_BYTES,
    OpenedSource,
    after,
    refused,
    unavailable,
)
from workflows.contracts.artifacts import GitSource

FETCH_S = 3600
LEAST_VERSION = (2, 39, 1)
"""The first version of git that connects the address that it is told (2.37), and has no overflow in
what it reads of a repository's attributes (CVE-2022-23521) and formats (CVE-2022-41903)."""
MEMORY_KIB = 2 << 20
"""The address space that git and each program that it starts may take."""
MOST_OUTPUT_BYTES = 4096
"""What is kept of what git says, which a server may have written: its end."""
NO_PROGRAM = 127
"""How the shell ends that finds no program."""
LOOK_S = 1.0
SLOW_BYTES_PER_S = 1000
SLOW_S = 60
"""A fetch ends that is slower than this for so long."""
_NAME = re.compile(r"(?!-)[a-z0-9-]{1,63}(?<!-)(\.(?!-)[a-z0-9-]{1,63}(?<!-))*")
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_REFUSALS = ("not found", "couldn't find remote ref", "authentication failed", "could not read")
_NO_MEMORY = ("out of memory", "cannot allocate memory", "memory exhausted")


def open_git(source: GitSource, scratch: Path, most_bytes: int) -> OpenedSource:
    """The files of a revision, without `.git`, submodules and large files kept elsewhere. Blocking.

    scratch: a folder for the packed revision.
    Raises: ApplicationError `Refused` or `Unavailable`.
    """
    _check_version(scratch)
    url, address = _pinned(source.url)
    repository = scratch / "repository"
    _run(("init", "--quiet", "--bare", str(repository)), scratch)
    fetch = (
        *("--git-dir", str(repository), "-c", f"http.curloptResolve={address}", "fetch"),
        *("--quiet", "--depth=1", "--no-tags", "--no-recurse-submodules", "--end-of-options"),
        *(url, source.revision),
    )
    _run(fetch, scratch, most_bytes=most_bytes)
    asked = ("--git-dir", str(repository), "rev-parse", "--verify", "FETCH_HEAD^{commit}")
    commit = _run(asked, scratch).strip()
    if _COMMIT.fullmatch(commit) is None:
        raise unavailable(f"{source.url}: {source.revision} is no commit")
    chunks = partial(_archive, repository, commit)
    return OpenedSource(f"git {source.url} {commit}", lambda begin: after(chunks(), begin))


def _check_version(scratch: Path) -> None:
    """Raises: ApplicationError `Refused`, when the worker's git is too old."""
    said = _run(("version",), scratch).strip()
    found = tuple(int(each) for each in re.findall(r"\d+", said)[:3])
    if found < LEAST_VERSION:
        least = ".".join(map(str, LEAST_VERSION))
        raise refused(f"the worker's git: asked for at least {least}, found {said[:80]!r}")


def _pinned(url: str) -> tuple[str, str]:
    """The URL as git gets it, and its port with the checked address, as curl takes them.

    git and curl read a host in ways of their own (escapes, other forms of numbers, a dot at its
    end), so it must be one that can be read in one way only, and every name is pinned.
    """
    parts = urlsplit(url)
    try:
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        address = permitted_address(host, port) if _is_plain(host) else None
    except SourceAddressRefusedError as error:
        raise refused(f"{url}: {error}") from error
    except (OSError, ValueError) as error:
        raise unavailable(f"{url}: {error}") from error
    if address is None:
        raise refused(f"{url}: its host is a name of letters, digits, - and dots, or an address")
    shown = f"[{host}]" if ":" in host else host
    plain = parts._replace(netloc=f"{shown}:{port}").geturl()
    return plain, f"*:{port}:{f'[{address}]' if ':' in address else address}"


def _is_plain(host: str) -> bool:
    """Whether a host is an address as it is written, or a name that is no number."""
    try:
        return str(ip_address(host)) == host and "%" not in host
    except ValueError:
        last = host.rpartition(".")[2]
        is_number = last.isdigit() or re.fullmatch(r"0x[0-9a-f]*", last) is not None
        return _NAME.fullmatch(host) is not None and not is_number


def _options() -> tuple[str, ...]:
    """What git may do: HTTP without redirects, which could lead to another address."""
    said = {
        "protocol.allow": "never",
        "protocol.https.allow": "always",
        "protocol.http.allow": "always",  # A source has https alone; tests serve http.
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


def _run(words: Sequence[str], scratch: Path, *, most_bytes: int | None = None) -> str:
    """The output of git. Raises: ApplicationError, when it fails, or its folder grows too large."""
    with _started(words, scratch) as (running, said, problems):
        ends_at = time.monotonic() + FETCH_S
        while True:
            try:
                running.wait(LOOK_S)
                break
            except subprocess.TimeoutExpired:
                if time.monotonic() > ends_at:
                    raise unavailable(f"git has not ended within {FETCH_S} s") from None
                if most_bytes is not None and _size(scratch) > most_bytes:
                    raise refused(f"the revision has at most {most_bytes} bytes") from None
    if running.returncode == NO_PROGRAM:
        raise refused("the host of the worker process has no git")
    if running.returncode:
        raise _failure(problems.text())
    return said.text()


def _failure(problem: str) -> ApplicationError:
    words = problem.strip()[-500:]
    if any(each in words.lower() for each in _NO_MEMORY):
        return refused(f"git: needs more than {MEMORY_KIB} KiB of memory: {words}")
    is_final = any(each in words.lower() for each in _REFUSALS)
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


@contextmanager
def _started(
    words: Sequence[str], home: Path, *, is_read: bool = False
) -> Iterator[tuple["subprocess.Popen[bytes]", _Tail, _Tail]]:
    """git with a limit of its memory, which is ended with all that it has started.

    is_read: the caller reads what it writes.
    """
    limited = f'ulimit -v {MEMORY_KIB} && exec git "$@"'
    try:
        running = subprocess.Popen(
            ("/bin/sh", "-c", limited, "git", *_options(), *words),
            env=_environment(home),
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except FileNotFoundError as error:
        raise refused("the host of the worker process has no shell") from error
    assert running.stdout is not None and running.stderr is not None  # noqa: S101, PT018 - pipes
    try:
        problems = _Tail(running.stderr)
        yield running, problems if is_read else _Tail(running.stdout), problems
    finally:
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.wait()


def _size(folder: Path) -> int:
    size = 0
    for path in folder.rglob("*"):
        try:
            size += path.lstat().st_size
        except FileNotFoundError:  # git has moved it meanwhile.
            continue
    return size


def _archive(repository: Path, commit: str) -> Iterator[bytes]:
    """The tar of a commit, which is the same each time."""
    words = ("--git-dir", str(repository), "archive", "--format=tar", commit)
    with _started(words, repository, is_read=True) as (running, _, problems):
        assert running.stdout is not None  # noqa: S101 - it is a pipe
        with running.stdout:
            while chunk := running.stdout.read(CHUNK_BYTES):
                yield chunk
        running.wait(FETCH_S)
    if running.returncode:
        raise _failure(problems.text() or f"archive {commit}: ended with {running.returncode}")
