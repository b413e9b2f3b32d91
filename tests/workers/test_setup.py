"""The set-up scripts: what they find and make, and the line when something is missing."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from workers.runner.settings import CHECKOUT

SETUP = CHECKOUT / "deploy" / "setup"


class Person:
    """Someone with a home, a cache and a PATH of their own, at a copy of the set-up scripts."""

    def __init__(self, folder: Path) -> None:
        self.programs = folder / "bin"
        self.cache = folder / "cache"
        self.checkout = folder / "checkout"
        shutil.copytree(CHECKOUT / "deploy", self.checkout / "deploy")
        self.programs.mkdir()
        self.environment = {
            "HOME": str(folder),
            "PATH": str(self.programs),
            "XDG_CACHE_HOME": str(self.cache),
        }

    def has(self, name: str, script: str) -> Path:
        path = self.programs / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    def runs(self, script: str, **environment: str) -> subprocess.CompletedProcess[str]:
        interpreter = "/bin/sh" if script.endswith(".sh") else sys.executable
        return subprocess.run(
            [interpreter, str(self.checkout / "deploy" / "setup" / script)],
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    @property
    def noted(self) -> str:
        return (self.checkout / ".baseload" / "temporal-binary").read_text().strip()


@pytest.fixture
def person(tmp_path: Path) -> Person:
    someone = Person(tmp_path)
    for tool in ("dirname", "sh"):
        (someone.programs / tool).symlink_to(shutil.which(tool) or f"/usr/bin/{tool}")
    return someone


# Nobody listens there, so a download fails at once, as on a machine without a network.
OFFLINE = {"https_proxy": "http://127.0.0.1:9"}


def test_a_python_that_is_too_old_is_passed_over_for_a_newer_one(person: Person) -> None:
    person.has("python3", "exit 1")
    newer = person.has("python3.12", "exit 0")
    assert person.runs("python.sh").stdout.strip() == str(newer)


def test_the_python_of_the_distribution_comes_before_another_on_path(person: Person) -> None:
    person.has("python3", "exit 0")
    path = f"{person.programs}:/usr/bin"
    assert person.runs("python.sh", PATH=path).stdout.strip() == "/usr/bin/python3"


def test_the_python_that_is_named_comes_first_and_is_refused_when_too_old(person: Person) -> None:
    person.has("python3", "exit 0")
    named = person.has("my-python", "exit 0")
    assert person.runs("python.sh", BASELOAD_PYTHON=str(named)).stdout.strip() == str(named)
    person.has("my-python", '[ "$1" = --version ] && echo Python 3.9.2 || exit 1')
    done = person.runs("python.sh", BASELOAD_PYTHON=str(named))
    assert (done.returncode, done.stdout) == (1, "")
    assert "found: Python 3.9.2" in done.stderr


def test_without_a_python_that_is_new_enough_one_line_says_so(person: Person) -> None:
    person.has("python3", '[ "$1" = --version ] && echo Python 3.9.2 || exit 1')
    done = person.runs("python.sh")
    assert done.returncode == 1
    assert "needs Python 3.11 or newer, found: Python 3.9.2" in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_temporal_binary_that_is_named_comes_first(person: Person) -> None:
    person.has("temporal", "exit 0")
    named = person.has("my-temporal", "exit 0")
    assert person.runs("temporal.py", BASELOAD_TEMPORAL=str(named)).returncode == 0
    assert person.noted == str(named)


def test_a_named_temporal_binary_that_is_none_is_refused(person: Person) -> None:
    done = person.runs("temporal.py", BASELOAD_TEMPORAL="/nowhere/temporal")
    assert done.returncode == 1
    assert done.stderr == (
        "BASELOAD_TEMPORAL=/nowhere/temporal is not a program: unset or correct it\n"
    )


def test_the_temporal_binary_on_path_comes_before_the_cached_one(person: Person) -> None:
    cached = person.cache / "baseload" / "temporal-1.5.1"
    cached.parent.mkdir(parents=True)
    cached.touch(mode=0o755)
    assert person.runs("temporal.py").returncode == 0
    assert person.noted == str(cached)
    on_path = person.has("temporal", "exit 0")
    assert person.runs("temporal.py").returncode == 0
    assert person.noted == str(on_path)


def test_where_it_cannot_be_downloaded_it_is_built_from_the_pin_and_cached(
    person: Person,
) -> None:
    # A stand-in for Go: checks that it is in a copy of the pin, and makes the program.
    person.has("go", '[ -f go.sum ] && [ "$3" = -o ] && echo built > "$4"')
    done = person.runs("temporal.py", **OFFLINE)
    assert done.returncode == 0, done.stderr
    assert "the download failed" in done.stdout
    assert "building temporal-1.5.1 from its Go module" in done.stdout
    assert Path(person.noted) == person.cache / "baseload" / "temporal-1.5.1"
    assert Path(person.noted).read_text() == "built\n"
    assert [path.name for path in Path(person.noted).parent.glob("build-*")] == []


def test_a_build_that_fails_says_why_and_leaves_nothing_in_the_cache(person: Person) -> None:
    person.has("go", "echo 'dial tcp: lookup proxy.golang.org: no such host' >&2; exit 1")
    done = person.runs("temporal.py", **OFFLINE)
    assert done.returncode == 1
    assert "building temporal-1.5.1 failed: the network" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (person.cache / "baseload" / "temporal-1.5.1").exists()


def test_without_go_one_line_says_what_to_do(person: Person) -> None:
    done = person.runs("temporal.py", **OFFLINE)
    assert done.returncode == 1
    assert "Install Go 1.25 or newer" in done.stderr


def test_a_cache_without_room_is_refused_before_it_is_filled(person: Person) -> None:
    script = "import console; console.main_of(console.need_disk, console.CACHE, 1e9, 'the build')"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **person.environment, "PYTHONPATH": str(SETUP)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "the build needs 1e+09 GiB of free disk" in done.stderr
    assert done.stderr.count("\n") == 1
