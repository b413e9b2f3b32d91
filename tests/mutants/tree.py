"""A copy of the checkout, so that nothing in the checkout is ever changed, and its tests."""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from tests.mutants.folders import ROOT, Folder

_STAYS = (".git", ".venv", ".baseload", ".mypy_cache", ".ruff_cache", ".hypothesis")


@contextmanager
def copied_tree() -> Iterator[None]:
    """Stand in a copy of the checkout, which goes at the end."""
    with tempfile.TemporaryDirectory(prefix="baseload-mutants-") as folder:
        copy = f"{folder}/checkout"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*_STAYS), symlinks=True)
        os.symlink(ROOT / ".venv", f"{copy}/.venv")  # noqa: PTH211
        os.environ["PYTHONPATH"] = f"{copy}/client/src"
        before = os.getcwd()  # noqa: PTH109
        os.chdir(copy)
        try:
            yield
        finally:
            os.chdir(before)


class Tester:
    """The tests of a folder, in the copy, as often as one asks.

    Raises: SystemExit, when they fail before anything is planted.
    """

    def __init__(self, folder: Folder) -> None:
        self._process = subprocess.Popen(
            [".venv/bin/python", "-m", "tests.mutants.tester", *folder.options, *folder.tests],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        started = time.monotonic()
        self._timeout_s = 600.0
        if self.sees():
            raise SystemExit(f"these fail without a mutant: {' '.join(folder.tests)}")
        self._timeout_s = 10 + 4 * (time.monotonic() - started)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()

    def sees(self) -> bool:
        """Whether any test fails now, or the tests do not end."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(f"{self._timeout_s}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit("the process that runs the tests has gone")
        return answer.strip() != "0"
