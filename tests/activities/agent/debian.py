"""A tiny repository of Debian packages on this machine, and what apt needs to know of it."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

SCRIPT = "#!/bin/sh\nset -e\n"


class DebianRepository:
    """A folder that apt takes packages from, and no other place, with `environment`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.chmod(0o755)
        (folder / "sources.list").write_text(f"deb [trusted=yes] file:{folder} ./\n")
        (folder / "apt.conf").write_text(
            f'Dir::Etc::sourcelist "{folder}/sources.list";\nDir::Etc::sourceparts "/dev/null";\n'
        )
        self.environment = {"APT_CONFIG": str(folder / "apt.conf"), "PATH": os.environ["PATH"]}
        self._entries: dict[str, str] = {}

    def add(self, name: str, files: Mapping[str, str], set_up: str = "") -> None:
        """Add a package, or replace it: its files by path, all executable, and its postinst."""
        tree = self.folder / f"{name}.tree"
        for path, text in files.items():
            target = tree / path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
            target.chmod(0o755)
        control = (
            f"Package: {name}\nVersion: 1.0\nArchitecture: all\n"
            "Maintainer: Nobody <nobody@example.org>\nDescription: a package of a test\n"
        )
        (tree / "DEBIAN").mkdir(parents=True, exist_ok=True)
        (tree / "DEBIAN/control").write_text(control)
        script = tree / "DEBIAN/postinst"
        script.write_text(SCRIPT + set_up)
        script.chmod(0o755)
        package = self.folder / f"{name}_1.0_all.deb"
        subprocess.run(
            ["dpkg-deb", "--root-owner-group", "--build", str(tree), str(package)],
            check=True,
            capture_output=True,
        )
        content = package.read_bytes()
        self._entries[name] = (
            f"{control}Filename: ./{package.name}\nSize: {len(content)}\n"
            f"SHA256: {hashlib.sha256(content).hexdigest()}\n"
        )
        (self.folder / "Packages").write_text("\n".join(self._entries.values()))

    def vanish(self) -> None:
        """Nothing can be installed any more."""
        for path in self.folder.glob("*.deb"):
            path.unlink()
        (self.folder / "Packages").write_text("")


@pytest.fixture
def repository() -> Iterator[DebianRepository]:
    """A repository where set-up scripts may see it: not in folders that all may write to."""
    folder = Path(tempfile.mkdtemp(prefix="baseload-test-", dir="/opt"))
    yield DebianRepository(folder)
    shutil.rmtree(folder)


def is_on_this_machine(name: str) -> bool:
    """Whether dpkg knows a package, outside of any run."""
    done = subprocess.run(["dpkg-query", "-W", name], check=False, capture_output=True)
    return done.returncode == 0
