"""Revisions of git repositories, fetched by the `git` program over HTTPS or SSH alone."""

import re
import shlex
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
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
from activities.secrets.sealing import write_private
from activities.third_party_keys.of_runs import git_header, known_hosts_of
from workflows.contracts.artifacts import GitSource

FETCH_S = 3600
PINNING_VERSION = [2, 37]
"""The first version of git that connects the address that it is told."""
LOOK_S = 1.0
SLOW_BYTES_PER_S = 1000
SLOW_S = 60
"""A fetch ends that is slower than this for so long."""
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_REFUSALS = (
    "not found",
    "host key verification failed",
    "permission denied",
    "couldn't find remote ref",
    "authentication failed",
    "could not read",
)


def open_git(
    source: GitSource, scratch: Path, most_bytes: int, key: Mapping[str, str] | None = None
) -> OpenedSource:
    """The files of a revision, without `.git`, submodules and large files kept elsewhere. Blocking.

    scratch: a folder for the packed revision, and for the key while it is fetched.
    key: the fields of a third-party key; None: the repository is public.
    Raises: ApplicationError `Refused` or `Unavailable`.
    """
    _check_version(scratch)
    over_ssh = urlsplit(source.url).scheme == "ssh"
    address = "" if over_ssh else _pinned(source.url)
    repository = scratch / "repository"
    _run(("init", "--quiet", "--bare", str(repository)), scratch)
    fetch = (
        *("--git-dir", str(repository), "-c", f"http.curloptResolve={address}"),
        *("-c", f"protocol.ssh.allow={'always' if over_ssh else 'never'}", "fetch"),
        *("--quiet", "--depth=1", "--no-tags", "--no-recurse-submodules", "--end-of-options"),
        *(source.url, source.revision),
    )
    with _opening(source.url, key, scratch) as variables:
        _run(fetch, scratch, most_bytes=most_bytes, variables=variables)
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
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    address = _permitted(url, host, port)
    return f"{host}:{port}:{f'[{address}]' if ':' in address else address}"


def _permitted(url: str, host: str, port: int) -> str:
    try:
        return permitted_address(host, port)
    except SourceAddressRefusedError as error:
        raise refused(f"{url}: {error}") from error
    except (OSError, ValueError) as error:
        raise unavailable(f"{url}: {error}") from error


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


def _run(
    words: Sequence[str],
    scratch: Path,
    *,
    most_bytes: int | None = None,
    variables: Mapping[str, str] | None = None,
) -> str:
    """The output of git. Raises: ApplicationError, when it fails, or its folder grows too large."""
    try:
        running = subprocess.Popen(
            ("git", *_options(), *words),
            env={**_environment(scratch), **(variables or {})},
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
