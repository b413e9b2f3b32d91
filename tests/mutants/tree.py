"""A copy of the checkout, so that nothing in the checkout is ever changed, and its tests."""

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from tests.mutants.folders import ROOT, Folder
from tests.mutants.reach import Reach

_STAYS = (".git", ".venv", ".baseload", ".mypy_cache", ".ruff_cache", ".hypothesis")
_ALL_S = 1200.0
_OUTPUT = ROOT / ".baseload" / "mutants" / "tests.log"


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

    reach: where it is kept which tests enter what, where the folder has tests chosen.
    Raises: SystemExit, when they fail before anything is planted.
    """

    def __init__(self, folder: Folder, reach: Path) -> None:
        self._folder = folder
        self._process = subprocess.Popen(
            [".venv/bin/python", "-m", "tests.mutants.tester", *folder.options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=_OUTPUT.open("w"),
            text=True,
        )
        started = time.monotonic()
        self._reach: Reach | None = None
        if not (folder.most_s and reach.exists()) and self._fails(
            folder.tests, _ALL_S, written=reach if folder.most_s else None
        ):
            reach.unlink(missing_ok=True)
            raise SystemExit(
                f"these fail without a mutant: {' '.join(folder.tests)}; see {_OUTPUT}"
            )
        if folder.most_s:
            self._reach = Reach.read(reach)
        self._limit_s = 10 + 4 * (time.monotonic() - started)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()

    def sees(self, module: Path, line: int) -> bool:
        """Whether any test fails with the mutant in this line, or the tests do not end."""
        if self._reach is None:
            return self._fails(self._folder.tests, self._limit_s)
        chosen = self._reach.tests_of(module, line, self._folder.tests, self._folder.most_s)
        if not chosen:
            return False
        paths = list(dict.fromkeys(test.partition("::")[0] for test in chosen))
        return self._fails(paths, 30 + 4 * sum(chosen.values()), chosen=chosen)

    def _fails(
        self,
        paths: Sequence[str],
        limit_s: float,
        *,
        chosen: dict[str, float] | None = None,
        written: Path | None = None,
    ) -> bool:
        assert self._process.stdin
        assert self._process.stdout
        asked = {
            "paths": paths,
            "limit_s": limit_s,
            "chosen": chosen,
            "modules": [str(module) for module in self._folder.files()],
            "written": written and str(written),
        }
        self._process.stdin.write(f"{json.dumps(asked)}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit("the process that runs the tests has gone")
        return answer.strip() != "0"
