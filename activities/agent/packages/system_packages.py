"""Debian packages of jobs: into a layer for the run's own root, or onto the machine where the
owner of the region allows that."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from typing import Any

from ..errors import RefusedError
from ..folders import Folders
from ..host.steps import lock_with_progress, run_step
from ..loading import load

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


def provide(folders: Folders, names: list[str], request: dict[str, Any]) -> str | None:
    """Have Debian packages for a run; return its layer, None when the machine itself has them.

    request: that of `stage`. `allows_apt_packages`: packages may be installed on the machine, and
    then are; nothing is ever removed or taken back a version there. Otherwise the machine stays as
    it is. `disk_size_gb`: a layer has at most this size.
    Raises: RefusedError `apt`, `apt-needs-root`, `apt-not-allowed`, `disk-full`.
    """
    if request.get("image") or request["spec"].get("image"):
        raise RefusedError("apt", "apt_packages beside an image: put them into the image")
    for name in names:
        if not APT_NAME.match(name):
            raise RefusedError("apt", "apt package %r: want the exact name of one package" % name)
    missing = sorted({name for name in names if not _is_installed(name)})
    if not missing:
        return None
    if os.geteuid() != 0:
        raise RefusedError(
            "apt-needs-root",
            "apt packages %s: the node's account is not root" % (", ".join(missing)),
        )
    if not request.get("allows_apt_packages"):
        ready = load("packages.system_layers:ready")
        path: str = ready(
            folders, missing, owned=bool(request.get("owned")), disk_gb=request.get("disk_size_gb")
        )
        return path
    _install_here(folders, missing)
    return None


def _install_here(folders: Folders, missing: list[str]) -> None:
    options = {"env": dict(os.environ, DEBIAN_FRONTEND="noninteractive")}

    def run(words: str, arguments: list[str]) -> tuple[int, str]:
        return run_step(words, arguments, INSTALL_S, options)

    lock = lock_with_progress(os.path.join(folders.root, "apt.lock"))
    try:
        install(missing, run)
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


def install(
    missing: list[str], run: Callable[[str, list[str]], tuple[int, str]], *options: str
) -> None:
    """Install packages with apt, whose lists are refreshed when the packages cannot be had.

    run: runs one command, named by its words; returns its exit status and its output.
    options: further ones of `apt-get install`.
    Raises: RefusedError `apt`.
    """
    arguments = ["apt-get", "install", "-y", "-q", *APT_OPTIONS, *options, "--", *missing]
    words = "installing %s" % ", ".join(missing)
    try:
        code, output = -1, ""
        if not _unknown(missing):
            code, output = run(words, arguments)
        if code != 0:
            run("refreshing apt's lists", ["apt-get", "update", "-q"])
            unknown = _unknown(missing)
            if unknown:
                raise RefusedError("apt", "apt knows no package named %s" % ", ".join(unknown))
            code, output = run(words, arguments)
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
