"""Python packages of jobs: one virtual environment per set, built once, shared read-only.

A set's folder is used only when its marker exists, and it is built under a lock, so two jobs build
the set once, and an interrupted build starts again. The folder is built at its final path, because
the scripts in a virtual environment contain their own path. The account that runs the set-up code
of packages: `build_accounts.py`.

Packages of the machine's owner may come from an index that only the owner may read. They lie in a
folder of their own, which runs of others cannot enter, and they serve no run of others.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

from ..cache.location import answers
from ..errors import RefusedError
from ..folders import OWNED_GROUP, Folders, take_lock
from ..host import disk, file_tree, job_accounts
from ..host.interpreter import interpreter_for_jobs
from . import build_accounts

MARKER = "baseload-complete"
PROGRESS_S = 5.0
POLL_S = 0.5
PIP_S = 3600.0
PIP_READ_S = "90"
"""How long pip waits for a byte, because the cache fetches and checks a file before serving it."""
PIP_RETRIES = "2"
"""Few retries, so that a cache that is gone delays a job for less than five minutes."""
ERROR_CHARACTERS = 2000
APT_NAME = re.compile(r"[a-z0-9][a-z0-9+.-]*[a-z0-9+]\Z")
"""A package's name; with another end apt would take it for a removal."""
APT_OPTIONS = (
    "--no-install-recommends",
    "--no-remove",
    "-o",
    "APT::Cmd::Pattern-Only=true",
)
"""Packages of jobs remove none of the machine's, and their names are no expressions."""


def run_step(
    words: str,
    arguments: list[str],
    limit_s: float,
    options: dict[str, Any] | None = None,
    fills: Sequence[str] = (),
) -> tuple[int, str]:
    """Run one long command, and report on stderr every few seconds that it still runs.

    options: further options of Popen.
    fills: the folders that it writes into; when little room is left there, it is killed, so that
    what is installed for one run takes no room from those that execute.
    Returns the exit status and the output; a command that exceeds `limit_s` is killed, status -9.
    Raises: RefusedError `disk-full`.
    """
    deadline = time.monotonic() + limit_s
    said_at = -PROGRESS_S
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            **(options or {}),
        )
        full = None
        while True:
            if time.monotonic() - said_at >= PROGRESS_S:
                said_at = time.monotonic()
                sys.stderr.write(words + "\n")
                sys.stderr.flush()
            try:
                process.wait(POLL_S)
                break
            except subprocess.TimeoutExpired:
                full = full or disk.left_by_installing(fills)
                if full or time.monotonic() > deadline:
                    process.kill()
        if full:
            raise RefusedError("disk-full", "%s: %s" % (words, full))
        output.seek(0)
        return process.returncode, output.read().decode(errors="replace")


def environment(
    folders: Folders, python_packages: list[str], *, owned: bool, cache: str | None = None
) -> tuple[str, int | None]:
    """The virtual environment with these packages, built if it does not exist.

    Returns its path, and the group that a run needs to read it; None: every run can read it.
    owned: whether it is for a run of the machine's owner, whose settings of pip it is built with.
    cache: host:port of the region's cache, through which pip uses the package index; pip uses the
    index itself when the cache does not answer, or the installation from the cache fails. The cache
    may read its index with the owner's credentials, so only the owner's packages come through it.
    Raises: RefusedError `packages` with the end of pip's own output; `job-user`.
    """
    python, version = interpreter_for_jobs(folders)
    wanted = sorted(set(python_packages))
    # An earlier release built the sets without this line with the owner's settings, for everybody.
    whose = ["others"] if wanted and not owned else []
    text = "\n".join([python, version, *whose, *wanted])
    folder, group = _owned_folder(folders) if wanted and owned else (folders.packages, None)
    path = os.path.join(folder, hashlib.sha256(text.encode()).hexdigest()[:32])
    if _is_whole(path):
        os.utime(os.path.join(path, MARKER))
        return path, group
    lock = _lock_with_progress(path + ".lock")
    try:
        if not _is_whole(path):
            with build_accounts.building(
                path, foreign=bool(wanted), owned=owned, group=group
            ) as options:
                _install(python, path, wanted, cache if owned else None, options)
            _write_marker(os.path.join(path, MARKER), wanted)
    finally:
        os.close(lock)
    return path, group


def _owned_folder(folders: Folders) -> tuple[str, int | None]:
    """The folder of the owner's packages, and the group of the runs that may enter it."""
    os.makedirs(folders.owned_packages, mode=0o700, exist_ok=True)
    if os.geteuid() != 0:  # All runs of such a node are the owner's.
        return folders.owned_packages, None
    group = job_accounts.make_group(OWNED_GROUP)
    os.chown(folders.owned_packages, 0, group)
    os.chmod(folders.owned_packages, 0o710)
    return folders.owned_packages, group


def _is_whole(path: str) -> bool:
    """Whether our own marker is there; a marker of another owner may come from a package."""
    try:
        found = os.lstat(os.path.join(path, MARKER))
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()


def _lock_with_progress(path: str) -> int:
    said_at = 0.0
    while True:
        lock = take_lock(path, wait=False)
        if lock is not None:
            return lock
        if time.monotonic() - said_at > PROGRESS_S:
            said_at = time.monotonic()
            sys.stderr.write("waiting for another job that installs the same packages\n")
        time.sleep(0.1)


def _install(
    python: str, path: str, wanted: list[str], cache: str | None, options: dict[str, Any]
) -> None:
    words = "making the Python environment"
    _step(words, [python, "-m", "venv", "--without-pip", path], options)
    if wanted:
        command = _installer(python, path, wanted, options)
        words = "installing %d packages" % len(wanted)
        fills = (os.path.dirname(path),)
        if not (cache and _install_through(cache, words, command, options, fills)):
            _step(words, command, options, fills)


def _write_marker(marker: str, wanted: list[str]) -> None:
    """Write the marker, and first remove what a package may have put at its path."""
    if os.path.isdir(marker) and not os.path.islink(marker):
        file_tree.remove(marker)
    elif os.path.lexists(marker):
        os.unlink(marker)
    with open(marker, "x") as file:
        file.write("\n".join(wanted))


def _installer(python: str, path: str, wanted: list[str], options: dict[str, Any]) -> list[str]:
    """The command that installs the packages; installs pip first if the node's pip is too old."""
    inside = os.path.join(path, "bin", "python")
    install = ["install", "--no-input", "--disable-pip-version-check", "--", *wanted]
    if _pip_version(python, options) >= (22, 3):
        return [python, "-m", "pip", "--python", inside, *install]
    _step("installing pip", [inside, "-m", "ensurepip", "--upgrade"], options)
    return [inside, "-m", "pip", *install]


def _install_through(
    cache: str, words: str, command: list[str], options: dict[str, Any], fills: Sequence[str]
) -> bool:
    """Whether the packages were installed through the cache, whose failure never fails a job."""
    if not answers(cache):
        sys.stderr.write("the region's cache does not answer: asking the index itself\n")
        return False
    host = cache.rpartition(":")[0]
    variables = dict(options.get("env") or os.environ)
    variables.update(
        PIP_INDEX_URL="http://%s/simple/" % cache,
        PIP_TRUSTED_HOST=host,
        PIP_TIMEOUT=PIP_READ_S,
        PIP_RETRIES=PIP_RETRIES,
        NO_PROXY=",".join(filter(None, (variables.get("NO_PROXY"), host))),
        no_proxy=",".join(filter(None, (variables.get("no_proxy"), host))),
    )
    through = dict(options, env=variables)
    code, output = run_step(words + " out of the region's cache", command, PIP_S, through, fills)
    if code != 0:
        sys.stderr.write("not out of the region's cache: exit %d\n%s\n" % (code, output[-300:]))
    return code == 0


def _pip_version(python: str, options: dict[str, Any]) -> tuple[int, int]:
    done = subprocess.run(
        # Not `pip --version`, which loads all of pip for ten times as long.
        [python, "-c", "import pip; print(pip.__version__)"],
        check=False,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        **options,
    )
    if done.returncode != 0:
        return 0, 0
    parts = done.stdout.decode().strip().split(".")
    numbers = [int(part) for part in parts[:2] if part.isdigit()]
    return (numbers[0], numbers[1]) if len(numbers) == 2 else (0, 0)


def _step(
    words: str, arguments: list[str], options: dict[str, Any], fills: Sequence[str] = ()
) -> None:
    code, output = run_step(words, arguments, PIP_S, options, fills)
    if code != 0:
        raise RefusedError(
            "packages", "%s: exit %d: %s" % (words, code, output[-ERROR_CHARACTERS:].strip())
        )


def install_system_packages(folders: Folders, names: list[str]) -> None:
    """Install Debian packages that are missing; nothing is ever removed or taken back a version.

    Raises: RefusedError `apt-needs-root`, `apt`.
    """
    for name in names:
        if not APT_NAME.match(name):
            raise RefusedError("apt", "apt package %r: want the exact name of one package" % name)
    missing = [name for name in names if not _is_installed(name)]
    if not missing:
        return
    if os.geteuid() != 0:
        raise RefusedError(
            "apt-needs-root",
            "apt packages %s: the node's account is not root" % (", ".join(missing)),
        )
    lock = _lock_with_progress(os.path.join(folders.root, "apt.lock"))
    try:
        _apt(missing)
    finally:
        os.close(lock)


def _is_installed(name: str) -> bool:
    try:
        done = subprocess.run(
            ["dpkg-query", "-W", "-f", "${Status}", "--", name],
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
        )
    except OSError:
        return False
    return done.stdout.endswith(b" installed")


def _apt(missing: list[str]) -> None:
    options = {"env": dict(os.environ, DEBIAN_FRONTEND="noninteractive")}
    install = ["apt-get", "install", "-y", "-q", *APT_OPTIONS, "--", *missing]
    words = "installing %s" % ", ".join(missing)
    try:
        code, output = -1, ""
        if not _unknown(missing):
            code, output = run_step(words, install, PIP_S, options)
        if code != 0:
            run_step("refreshing apt's lists", ["apt-get", "update", "-q"], PIP_S, options)
            unknown = _unknown(missing)
            if unknown:
                raise RefusedError("apt", "apt knows no package named %s" % ", ".join(unknown))
            code, output = run_step(words, install, PIP_S, options)
    except OSError as error:
        raise RefusedError("apt", "apt packages: this node has no apt-get (%s)" % error) from error
    if code != 0:
        raise RefusedError(
            "apt", "apt-get: exit %d: %s" % (code, output[-ERROR_CHARACTERS:].strip())
        )


def _unknown(names: list[str]) -> list[str]:
    """The names that are not exactly those of packages in apt's lists."""
    done = subprocess.run(
        ["apt-cache", "show", "--no-all-versions", "--", *names],
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
    )
    lines = done.stdout.decode(errors="replace").splitlines()
    return [name for name in names if "Package: " + name not in lines]
