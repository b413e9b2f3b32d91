"""Debian packages of jobs, which stay on the machine."""

from __future__ import annotations

import os
import re
import subprocess

from ..errors import RefusedError
from ..folders import Folders
from ..host.steps import lock_with_progress, run_step

INSTALL_S = 3600.0
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


def install(folders: Folders, names: list[str]) -> None:
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
    lock = lock_with_progress(os.path.join(folders.root, "apt.lock"))
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
            code, output = run_step(words, install, INSTALL_S, options)
        if code != 0:
            run_step("refreshing apt's lists", ["apt-get", "update", "-q"], INSTALL_S, options)
            unknown = _unknown(missing)
            if unknown:
                raise RefusedError("apt", "apt knows no package named %s" % ", ".join(unknown))
            code, output = run_step(words, install, INSTALL_S, options)
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
