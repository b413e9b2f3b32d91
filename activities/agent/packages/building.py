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

from ..cache.location import PackageCache, answers
from ..errors import RefusedError
from ..folders import Folders
from ..host import file_tree, outages
from ..host.steps import lock_with_progress, run_step, sync
from . import build_accounts, conda
from .environments import MARKER, Wanted, environment, take
from .requirements import CONDA, PIP, UV

PIP_S = 3600.0
PIP_READ_S = "90"
"""How long pip waits for a byte, because the cache fetches and checks a file before serving it."""
PIP_RETRIES = "2"
"""Few retries, so that a cache that is gone delays a job for less than five minutes."""
REASON_CHARACTERS = 300
END_OF_BUILD = "[end of output]"
UV_PACKAGE = "uv>=0.8,<1"
"""What reads a uv.lock; it comes from the package index as other packages do."""


def build(
    folders: Folders,
    python: str,
    path: str,
    wanted: Wanted,
    *,
    owned: bool,
    group: int | None,
    cache: PackageCache | None,
    layer: str | None,
) -> None:
    """Build the environment at `path`, unless another run has just built it.

    The arguments are those of `environments.environment`; cache: None, to ask the index itself.
    Raises: RefusedError `packages`, `job-user`, `disk-full`, `network-wall`.
    """
    uv = _uv_for(folders, wanted, owned=owned, cache=cache)
    lock = lock_with_progress(path + ".lock")
    try:
        if not take(path):
            files = wanted.requirements.files if wanted.requirements else {}
            with build_accounts.building(
                folders,
                path,
                foreign=bool(wanted),
                owned=owned,
                group=group,
                layer=layer,
                files=files,
            ) as options:
                _Build(python, path, wanted, cache, options).install(uv)
            _write_marker(os.path.join(path, MARKER), wanted.lines())
    finally:
        os.close(lock)


def _uv_for(
    folders: Folders, wanted: Wanted, *, owned: bool, cache: PackageCache | None
) -> str | None:
    """The program that reads a uv.lock, in an environment of its own; None: nothing needs it."""
    if wanted.requirements is None or wanted.requirements.kind != UV:
        return None
    path, _ = environment(folders, Wanted([UV_PACKAGE]), owned=owned, cache=cache)
    return os.path.join(path, "bin", "uv")


class _Build:
    """The steps that fill one environment, by the account of `options`."""

    def __init__(
        self,
        python: str,
        path: str,
        wanted: Wanted,
        cache: PackageCache | None,
        options: dict[str, Any],
    ) -> None:
        self.python = python
        self.path = path
        self.wanted = wanted
        self.cache = cache
        self.options = options
        self.files = os.path.join(str(options.get("cwd")), build_accounts.FILES)
        self.fills = (os.path.dirname(path),)

    def install(self, uv: str | None) -> None:
        """Make the environment and install what is wanted. Raises: RefusedError `packages`."""
        wanted, asked = self.wanted, self.wanted.requirements
        if asked is not None and asked.kind == CONDA:
            self._install_by_conda(asked.main)
            asked = None
        else:
            words = "making the Python environment"
            _step(words, [self.python, "-m", "venv", "--without-pip", self.path], self.options)
        if asked is None:
            if wanted.packages:
                words = _installing(wanted.packages)
                self._pip(words, ["--", *wanted.packages])
            return
        words = "installing %s" % asked.main
        if asked.kind == PIP:  # At once, so that versions are found that suit all.
            self._pip(words, ["-r", self._at(asked.main), "--", *wanted.packages])
            return
        main = self._at(asked.main)
        if uv is not None:
            main = self._exported(uv, main)
        self._pip(words, ["--no-deps", "-r", main])
        if wanted.packages:
            words = _installing(wanted.packages)
            self._pip(words, ["--", *wanted.packages])

    def _at(self, name: str) -> str:
        return os.path.join(self.files, name)

    def _exported(self, uv: str, lock: str) -> str:
        """Write what a uv.lock names in pip's format, with hashes; the file's path."""
        target = self._at("uv.lock.txt")
        project = os.path.dirname(lock)
        command = [uv, "export", "--quiet", "--frozen", "--offline", "--no-config", "--no-cache"]
        command += ["--no-emit-workspace", "--no-dev", "--python", self.python]
        _step(
            "reading uv.lock",
            [*command, "--project", project, "--output-file", target],
            self.options,
        )
        return target

    def _install_by_conda(self, name: str) -> None:
        program = conda.program()
        if program is None:
            raise RefusedError("packages", "conda: it is not on this node any more")
        meta = os.path.join(self.path, conda.META)
        begin = "import os, sys; os.mkdir(sys.argv[1]); open(sys.argv[1] + '/history', 'w').close()"
        _step("making the environment", [self.python, "-I", "-c", begin, meta], self.options)
        command = conda.command(program, self.path, self._at(name))
        _step("installing %s" % name, command, self.options, self.fills)
        if not os.access(os.path.join(self.path, "bin", "python"), os.X_OK):
            words = "%s: names no python among its dependencies, which a job needs"
            raise RefusedError("packages", words % name)

    def _pip(self, words: str, arguments: list[str]) -> None:
        install = ["install", "--no-input", "--disable-pip-version-check", *arguments]
        installer = _installer(self.python, self.path, self.options)
        command = [*installer, *install]
        if self.cache and _install_through(self.cache, words, command, self.options, self.fills):
            return
        code, output = run_step(words, command, PIP_S, self.options, self.fills)
        away = outages.of_index(output)
        if code != 0 and not away and outages.may_hide_index(output):
            wordy = [*installer, "-vv", *install]
            again, pages = run_step(words + " again", wordy, PIP_S, self.options, self.fills)
            if again == 0:
                return
            away = outages.of_pages(pages)
        if code != 0:
            raise _refused(words, code, output, away=away)


def _write_marker(marker: str, lines: list[str]) -> None:
    """Write the marker, and first remove what a package may have put at its path."""
    if os.path.isdir(marker) and not os.path.islink(marker):
        file_tree.remove(marker)
    elif os.path.lexists(marker):
        os.unlink(marker)
    sync(os.path.dirname(marker))  # Else a power cut may leave the marker and empty files.
    with open(marker, "x") as file:
        file.write("\n".join(lines))


def _installer(python: str, path: str, options: dict[str, Any]) -> list[str]:
    """The pip that installs into an environment; installs one first if the node's is too old."""
    inside = os.path.join(path, "bin", "python")
    if _pip_version(python, options) >= (22, 3):
        return [python, "-m", "pip", "--python", inside]
    _step("installing pip", [inside, "-m", "ensurepip", "--upgrade"], options)
    return [inside, "-m", "pip"]


def _install_through(
    cache: PackageCache,
    words: str,
    command: list[str],
    options: dict[str, Any],
    fills: Sequence[str],
) -> bool:
    """Whether the packages were installed through the cache, whose failure never fails a job."""
    if not answers(cache.address):
        sys.stderr.write("the region's cache does not answer: asking the index itself\n")
        return False
    host = cache.address.rpartition(":")[0]
    variables = dict(options.get("env") or os.environ)
    variables.update(
        PIP_TIMEOUT=PIP_READ_S,
        PIP_RETRIES=PIP_RETRIES,
        NO_PROXY=",".join(filter(None, (variables.get("NO_PROXY"), host))),
        no_proxy=",".join(filter(None, (variables.get("no_proxy"), host))),
    )
    variables.pop("PIP_TRUSTED_HOST", None)
    trust = {"PIP_TRUSTED_HOST": host}
    if cache.authorities:  # The second of these, where the machine has it, wins over the first.
        trust = dict.fromkeys(("PIP_CERT", "REQUESTS_CA_BUNDLE"), cache.authorities)
    scheme = "https" if cache.authorities else "http"
    variables.update(trust, PIP_INDEX_URL="%s://%s/simple/" % (scheme, cache.address))
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


def _installing(packages: list[str]) -> str:
    return "installing %d package%s" % (len(packages), "" if len(packages) == 1 else "s")


def _step(
    words: str, arguments: list[str], options: dict[str, Any], fills: Sequence[str] = ()
) -> None:
    code, output = run_step(words, arguments, PIP_S, options, fills)
    if code != 0:
        raise _refused(words, code, output, away=outages.of_index(output))


def _refused(words: str, code: int, output: str, *, away: bool) -> RefusedError:
    """The error of a step that has failed; away: because a package index was."""
    reason = "%s (%s: exit %d)" % (reason_in(output), words, code)
    kind = "packages-away" if away else "packages"
    return RefusedError(kind, reason, "%s: exit %d\n%s" % (words, code, output))


def reason_in(output: str) -> str:
    """The one line of the output of pip, or of a program like it, that says why it has failed."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for number, line in enumerate(lines):
        if line.startswith(END_OF_BUILD) and number:  # What the build of a package said last.
            return _shortened(lines[number - 1])
    for mark in ("ERROR: ", "error: "):
        found = [line for line in lines if line.startswith(mark)]
        if found:
            return _shortened(found[-1][len(mark) :])
    return _shortened(lines[-1] if lines else "it said nothing")


def _shortened(line: str) -> str:
    return line if len(line) <= REASON_CHARACTERS else line[:REASON_CHARACTERS] + "…"
