"""Revisions of git repositories, fetched by the `git` program over HTTPS alone."""

import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

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
PINNING_VERSION = [2, 37]
"""The first version of git that connects the address that it is told."""
LOOK_S = 1.0
SLOW_BYTES_PER_S = 1000
SLOW_S = 60
"""A fetch ends that is slower than this for so long."""
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_REFUSALS = ("not found", "couldn't find remote ref", "authentication failed", "could not read")


def open_git(source: GitSource, scratch: Path, most_bytes: int) -> OpenedSource:
    """The files of a revision, without `.git`, submodules and large files kept elsewhere. Blocking.

    scratch: a folder for the packed revision.
    Raises: ApplicationError `Refused` or `Unavailable`.
    """
    _check_version(scratch)
    address = _pinned(source.url)
    repository = scratch / "repository"
    _run(("init", "--quiet", "--bare", str(repository)), scratch)
    fetch = (
        *("--git-dir", str(repository), "-c", f"http.curloptResolve={address}", "fetch"),
        *("--quiet", "--depth=1", "--no-tags", "--no-recurse-submodules", "--end-of-options"),
        *(source.url, source.revision),
    )
    _run(fetch, scratch, most_bytes=most_bytes)
    asked = ("--git-dir", str(repository), "rev-parse", "--verify", "FETCH_HEAD^{commit}")
    commit = _run(asked, scratch).strip()
    if _COMMIT.fullmatch(commit) is None:
        raise unavailable(f"{source.url}: {source.revision} is no commit")
    chunks = partial(_archive, repository, commit)
    return OpenedSource(f"git {source.url} {commit}", lambda begin: after(chunks(), begin))


def _check_version(scratch: Path) -> None:
    """An older git resolves the host by itself again. Raises: ApplicationError `Refused`."""
    found = [int(each) for each in re.findall(r"\d+", _run(("version",), scratch))[:2]]
    if found < PINNING_VERSION:
        raise refused(f"the worker's git is {found}; at least {PINNING_VERSION} can be used")


def _pinned(url: str) -> str:
    """The host, port and checked address of a URL, as curl takes them."""
    parts = urlsplit(url)
    try:
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        address = permitted_address(host, port)
    except SourceAddressRefusedError as error:
        raise refused(f"{url}: {error}") from error
    except (OSError, ValueError) as error:
        raise unavailable(f"{url}: {error}") from error
    return f"{host}:{port}:{f'[{address}]' if ':' in address else address}"


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
    }


def _run(words: Sequence[str], scratch: Path, *, most_bytes: int | None = None) -> str:
    """The output of git. Raises: ApplicationError, when it fails, or its folder grows too large."""
    try:
        running = subprocess.Popen(
            ("git", *_options(), *words),
            env=_environment(scratch),
            cwd=scratch,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
    except FileNotFoundError as error:
        raise refused("the host of the worker process has no git") from error
    ends_at = time.monotonic() + FETCH_S
    try:
        while True:
            try:
                out, problem = running.communicate(timeout=LOOK_S)
                break
            except subprocess.TimeoutExpired:
                if time.monotonic() > ends_at:
                    raise unavailable(f"git has not ended within {FETCH_S} s") from None
                if most_bytes is not None and _size(scratch) > most_bytes:
                    raise refused(f"the revision has at most {most_bytes} bytes") from None
    finally:
        running.kill()
        running.wait()
    if running.returncode:
        said = problem.strip()[-500:]
        is_final = any(words in said.lower() for words in _REFUSALS)
        raise (refused if is_final else unavailable)(f"git: {said}")
    return out


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
    words = ("git", *_options(), "--git-dir", str(repository), "archive", "--format=tar", commit)
    with subprocess.Popen(
        words,
        env=_environment(repository),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as running:
        try:
            assert running.stdout is not None  # noqa: S101 - it is a pipe
            while chunk := running.stdout.read(CHUNK_BYTES):
                yield chunk
        finally:
            running.kill()
    if running.returncode:
        raise unavailable(f"git archive {commit}: ended with {running.returncode}")
