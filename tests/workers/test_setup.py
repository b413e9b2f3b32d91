"""The set-up scripts: what they find and make, and the line when something is missing."""

import base64
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from workers.runner.settings import CHECKOUT


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

    def calls(self, script: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a line of Python that uses the set-up scripts."""
        return subprocess.run(
            [sys.executable, "-c", script],
            env={
                **self.environment,
                "PYTHONPATH": str(self.checkout / "deploy" / "setup"),
                **environment,
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def with_pins(self) -> None:
        """Give the checkout what says which packages are installed."""
        (self.checkout / "client").mkdir()
        for name in ("uv.lock", "pyproject.toml", "client/pyproject.toml"):
            shutil.copy(CHECKOUT / name, self.checkout / name)

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
    done = person.calls(
        "import console; console.main_of(console.need_disk, console.CACHE, 1e9, 'the build')"
    )
    assert done.returncode == 1
    assert "the build needs 1e+09 GiB of free disk" in done.stderr
    assert done.stderr.count("\n") == 1


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def temporal_archive(program: bytes) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        entry = tarfile.TarInfo("temporal")
        entry.size = len(program)
        archive.addfile(entry, io.BytesIO(program))
    return packed.getvalue()


class Mirror:
    """A folder from which a person downloads Temporal, and the sum that the repository has."""

    def __init__(self, person: Person, folder: Path) -> None:
        folder.mkdir()
        sums = person.checkout / "deploy" / "temporal" / "archives.sha256"
        machine = os.uname().machine
        arch = {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)
        self.archive = folder / f"temporal_cli_1.5.1_linux_{arch}.tar.gz"
        self.asked = sha256(temporal_archive(b"the release"))
        sums.write_text(f"{self.asked}  {self.archive.name}\n")
        self.environment = {"BASELOAD_TEMPORAL_MIRROR": f"file://{folder}"}


def test_the_download_with_the_recorded_sum_is_kept(person: Person, tmp_path: Path) -> None:
    mirror = Mirror(person, tmp_path / "mirror")
    mirror.archive.write_bytes(temporal_archive(b"the release"))
    done = person.runs("temporal.py", **mirror.environment)
    assert done.returncode == 0, done.stderr
    assert Path(person.noted).read_bytes() == b"the release"
    assert os.access(person.noted, os.X_OK)


def test_a_download_of_other_bytes_is_refused_and_nothing_that_works_goes(
    person: Person, tmp_path: Path
) -> None:
    named = person.has("my-temporal", "exit 0")
    assert person.runs("temporal.py", BASELOAD_TEMPORAL=str(named)).returncode == 0
    mirror = Mirror(person, tmp_path / "mirror")
    changed = temporal_archive(b"something else")
    mirror.archive.write_bytes(changed)
    person.has("go", f": > {tmp_path}/built")
    done = person.runs("temporal.py", **mirror.environment)
    assert done.returncode == 1
    assert f"{mirror.archive.name}: asked the SHA-256 {mirror.asked}" in done.stderr
    assert f"found {sha256(changed)} in what came from file://{mirror.archive}" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (person.cache / "baseload" / "temporal-1.5.1").exists()
    assert not (tmp_path / "built").exists()
    assert person.noted == str(named)


def test_what_the_repository_has_no_sum_of_is_built_and_not_downloaded(
    person: Person, tmp_path: Path
) -> None:
    mirror = Mirror(person, tmp_path / "mirror")
    mirror.archive.write_bytes(temporal_archive(b"the release"))
    (person.checkout / "deploy" / "temporal" / "archives.sha256").write_text("")
    person.has("go", 'echo built > "$4"')
    done = person.runs("temporal.py", **mirror.environment)
    assert done.returncode == 0, done.stderr
    assert f"has no sum of {mirror.archive.name}" in done.stdout
    assert Path(person.noted).read_text() == "built\n"


class GoModules:
    """A module proxy with one small module, and a pin of it with its sums."""

    def __init__(self, folder: Path) -> None:
        self.files = {
            "go.mod": b"module example.com/tiny\n\ngo 1.21\n",
            "main.go": b"package main\n\nfunc main() {}\n",
        }
        self.served = folder / "proxy" / "example.com" / "tiny" / "@v"
        self.served.mkdir(parents=True)
        (self.served / "v1.0.0.info").write_text('{"Version": "v1.0.0"}')
        (self.served / "v1.0.0.mod").write_bytes(self.files["go.mod"])
        self.serve(self.files["main.go"])
        self.pin = folder / "pin"
        self.pin.mkdir()
        (self.pin / "go.mod").write_text(
            "module pin\n\ngo 1.21\n\nrequire example.com/tiny v1.0.0\n"
        )
        named = {f"example.com/tiny@v1.0.0/{name}": self.files[name] for name in self.files}
        self.asked = self.sum_of(named)
        self.sums = [
            f"example.com/tiny v1.0.0 {self.asked}\n",
            f"example.com/tiny v1.0.0/go.mod {self.sum_of({'go.mod': self.files['go.mod']})}\n",
        ]
        self.script = (
            "import console, gobuild, pathlib; console.main_of(gobuild.build, "
            f"pathlib.Path({str(self.pin)!r}), 'example.com/tiny', console.CACHE / 'tiny', 'soon')"
        )
        self.environment = {
            "PATH": os.environ["PATH"],
            "GOPROXY": f"file://{folder}/proxy",
            "GOSUMDB": "off",
            "GOFLAGS": "-modcacherw",
        }

    def serve(self, main: bytes) -> None:
        with zipfile.ZipFile(self.served / "v1.0.0.zip", "w") as archive:
            for name, content in {**self.files, "main.go": main}.items():
                archive.writestr(f"example.com/tiny@v1.0.0/{name}", content)

    @staticmethod
    def sum_of(files: dict[str, bytes]) -> str:
        lines = "".join(f"{sha256(files[name])}  {name}\n" for name in sorted(files))
        return "h1:" + base64.b64encode(hashlib.sha256(lines.encode()).digest()).decode()


needs_go = pytest.mark.skipif(shutil.which("go") is None, reason="no Go")


@needs_go
def test_a_go_module_of_other_bytes_is_refused(person: Person, tmp_path: Path) -> None:
    modules = GoModules(tmp_path)
    (modules.pin / "go.sum").write_text("".join(modules.sums))
    modules.serve(b"package main\n\nfunc main() { panic(1) }\n")
    done = person.calls(modules.script, **modules.environment)
    assert done.returncode == 1
    assert "is not what the repository has the sum of, and was not used" in done.stderr
    assert "verifying example.com/tiny@v1.0.0: checksum mismatch" in done.stderr
    assert f"go.sum:     {modules.asked}" in done.stderr
    assert not (person.cache / "baseload" / "tiny").exists()


@needs_go
def test_a_go_module_without_a_recorded_sum_is_refused(person: Person, tmp_path: Path) -> None:
    modules = GoModules(tmp_path)
    (modules.pin / "go.sum").write_text(modules.sums[1])
    done = person.calls(modules.script, **modules.environment)
    assert done.returncode == 1
    assert "missing go.sum entry" in done.stderr
    assert (modules.pin / "go.sum").read_text() == modules.sums[1]
    assert not (person.cache / "baseload" / "tiny").exists()


@needs_go
@pytest.mark.parametrize("pin", ["temporal", "tctl"])
def test_every_go_module_has_its_sum(pin: str) -> None:
    lines = (CHECKOUT / "deploy" / pin / "go.sum").read_text().splitlines()
    summed = {tuple(line.split()[:2]) for line in lines}
    done = subprocess.run(
        ["go", "mod", "edit", "-json", CHECKOUT / "deploy" / pin / "go.mod"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    required = {(each["Path"], each["Version"]) for each in json.loads(done.stdout)["Require"]}
    assert required <= summed


@pytest.mark.parametrize(
    ("recorded", "said"),
    [
        (True, "is not what the repository has the sum of, and was not used"),
        (False, "Hashes are required"),
    ],
)
def test_a_uv_without_the_recorded_bytes_is_refused_and_not_run(
    person: Person, tmp_path: Path, recorded: bool, said: str
) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    pins = person.checkout / "deploy" / "setup" / "uv.txt"
    version = re.findall(r"^uv==(\S+)", pins.read_text(), re.MULTILINE)[0]
    if not recorded:
        pins.write_text(f"uv=={version}\n")
    metadata = f"Metadata-Version: 2.1\nName: uv\nVersion: {version}\n"
    with zipfile.ZipFile(wheels / f"uv-{version}-py3-none-any.whl", "w") as wheel:
        for name, content in {
            "dist-info/METADATA": metadata,
            "dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            "dist-info/RECORD": "",
            "data/scripts/uv": f"#!/bin/sh\n: > {tmp_path}/ran\n",
        }.items():
            entry = zipfile.ZipInfo(f"uv-{version}.{name}")
            entry.external_attr = 0o755 << 16
            wheel.writestr(entry, content)
    person.with_pins()
    done = person.runs("environment.py", PIP_NO_INDEX="1", PIP_FIND_LINKS=str(wheels))
    assert done.returncode == 1
    assert said in done.stderr
    assert ("Expected sha256" in done.stderr) == recorded
    assert not (tmp_path / "ran").exists()
    assert not (person.checkout / ".baseload" / "tools" / "bin" / "uv").exists()


def test_the_client_is_installed_without_a_network_after_what_has_hashes(
    person: Person, tmp_path: Path
) -> None:
    said = tmp_path / "said"
    person.with_pins()
    made = person.checkout / ".venv" / "bin"
    made.mkdir(parents=True)
    (made / "python").symlink_to(shutil.which("true") or "/bin/true")
    person.has("uv", f'echo "$@" >> {said}')
    assert person.runs("environment.py").returncode == 0
    first, second = (line for line in said.read_text().splitlines() if line != "--version")
    assert first.endswith("--no-build --no-install-workspace")
    assert second.endswith("--offline")


def test_a_build_backend_of_other_bytes_is_named_and_nothing_is_installed_with_it(
    person: Person,
) -> None:
    person.has(
        "uv",
        '[ "$1" = --version ] && exit 0\n'
        "echo 'error: Failed to download `hatchling==1.33.0`'\n"
        "echo '  cause: Hash mismatch for `hatchling==1.33.0`'\n"
        "echo '         sha256:41e'\nexit 1",
    )
    person.with_pins()
    done = person.runs("environment.py")
    assert done.returncode == 1
    assert "is not what the repository has the sum of, and was not used" in done.stderr
    assert "Hash mismatch for `hatchling==1.33.0`" in done.stderr
    assert not (person.checkout / ".venv" / "baseload-lock").exists()


class Maven:
    """A stand-in for Maven: it copies the jars of a folder, whatever they are."""

    def __init__(self, person: Person, folder: Path) -> None:
        self.jars = folder / "jars"
        self.jars.mkdir()
        for name in ("server.jar", "library.jar"):
            (self.jars / name).write_bytes(name.encode())
        self.sums = person.checkout / "deploy" / "test-server" / "jars.sha256"
        self.sums.write_text(
            "".join(f"{sha256(name.encode())}  {name}\n" for name in ("server.jar", "library.jar"))
        )
        copy = shutil.which("cp")
        person.has(
            "mvn",
            f'for A in "$@"; do case "$A" in -DoutputDirectory=*) T=${{A#*=}} ;; esac; done\n'
            f'{shutil.which("mkdir")} -p "$T"; {copy} {self.jars}/* "$T"',
        )
        person.has("java", "exit 0")
        self.server = person.cache / "baseload" / "temporal-test-server-1.38.0"


def test_jars_with_the_recorded_sums_make_the_test_server(person: Person, tmp_path: Path) -> None:
    maven = Maven(person, tmp_path)
    done = person.runs("tests.py")
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (maven.server / "lib").iterdir()) == [
        "library.jar",
        "server.jar",
    ]
    assert [path.name for path in maven.server.parent.glob("build-*")] == []


@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        ("library.jar", b"other bytes", f"found {sha256(b'other bytes')}"),
        ("third.jar", b"no part of it", "asked the SHA-256 none"),
        ("server.jar", None, "found nothing of this name"),
    ],
)
def test_other_jars_than_the_recorded_ones_are_refused(
    person: Person, tmp_path: Path, name: str, content: bytes | None, found: str
) -> None:
    maven = Maven(person, tmp_path)
    if content is None:
        (maven.jars / name).unlink()
    else:
        (maven.jars / name).write_bytes(content)
    done = person.runs("tests.py")
    assert done.returncode == 1
    assert name in done.stderr
    assert found in done.stderr
    assert "deploy/test-server/jars.sha256" in done.stderr
    assert not maven.server.exists()
    assert [path.name for path in maven.server.parent.glob("build-*")] == []
