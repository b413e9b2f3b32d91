"""How a virtual environment with a job's packages is built.

The folder is built at its final path, because the scripts in a virtual environment contain their
own path. The account that runs the set-up code of packages: `build_accounts.py`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from ..cache.location import answers
from ..errors import RefusedError
from ..folders import Folders
from ..host import file_tree
from ..host.steps import lock_with_progress, run_step
from . import build_accounts
from .environments import MARKER, is_whole

PIP_S = 3600.0
PIP_READ_S = "90"
"""How long pip waits for a byte, because the cache fetches and checks a file before serving it."""
PIP_RETRIES = "2"
"""Few retries, so that a cache that is gone delays a job for less than five minutes."""
ERROR_CHARACTERS = 2000


def build(
    folders: Folders,
    python: str,
    path: str,
    wanted: list[str],
    *,
    owned: bool,
    group: int | None,
    cache: str | None,
    layer: str | None,
) -> None:
    """Build the environment at `path`, unless another run has just built it.

    The arguments are those of `environments.environment`; cache: None, to ask the index itself.
    Raises: RefusedError `packages`, `job-user`, `disk-full`, `network-wall`.
    """
    lock = lock_with_progress(path + ".lock")
    try:
        if not is_whole(path):
            with build_accounts.building(
                folders, path, foreign=bool(wanted), owned=owned, group=group, layer=layer
            ) as options:
                _install(python, path, wanted, cache, options)
            _write_marker(os.path.join(path, MARKER), wanted)
    finally:
        os.close(lock)


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
