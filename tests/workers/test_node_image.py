"""`deploy/node/image/`: the definition of the boot drive's image, as far as no image is built."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from workers.runner.settings import CHECKOUT

IMAGE = CHECKOUT / "deploy" / "node" / "image"
INCLUDES = IMAGE / "config" / "includes.chroot_after_packages"
UNITS = INCLUDES / "usr/lib/systemd/system"
SCRIPTS = [
    *(IMAGE / name for name in ("build.sh", "auto/config")),
    *(IMAGE / "config" / "hooks").rglob("*.chroot"),
    INCLUDES / "usr/local/lib/baseload/boot-drive.sh",
    CHECKOUT / "deploy" / "node" / "join.sh",
]
LISTS = sorted((IMAGE / "config" / "package-lists").iterdir())


def ran(*command: str | Path, cwd: Path | None = None) -> str:
    """What a command says that must succeed."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_every_script_can_be_read_by_a_plain_shell_and_run(script: Path) -> None:
    ran("sh", "-n", script)
    assert script.stat().st_mode & 0o111
    if checker := shutil.which("shellcheck"):
        ran(checker, "--shell=sh", "--exclude=SC2016,SC1007,SC2174", script)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_every_unit_is_one_that_systemd_takes(tmp_path: Path) -> None:
    """Each in a root of its own, where the programs are that the units start."""
    there = tmp_path / "usr/lib/systemd/system"
    shutil.copytree(INCLUDES, tmp_path, dirs_exist_ok=True)
    ran("python3", CHECKOUT / "deploy" / "node" / "console.py", "units", there)
    units = sorted(path for path in there.iterdir() if path.is_file())
    for unit in units:
        text = re.sub(r"(?<=Exec)(Start=)/\S+/boot-drive\.sh", r"\1/bin/true", unit.read_text())
        unit.write_text(text)
    said = ran("systemd-analyze", "verify", "--man=no", *units)
    assert "baseload" not in said, said
    assert "mnt-drive" not in said, said


def test_every_unit_that_is_enabled_is_there_and_can_be(tmp_path: Path) -> None:
    ran("python3", CHECKOUT / "deploy" / "node" / "console.py", "units", tmp_path)
    hook = (IMAGE / "config/hooks/normal/0500-baseload.hook.chroot").read_text()
    ours = set(re.findall(r"\b(?:baseload-|var-lib-)[\w.-]+\.(?:service|timer|mount)\b", hook))
    assert len(ours) == 4
    for name in ours:
        unit = next(path for path in (UNITS / name, tmp_path / name) if path.exists())
        assert "[Install]" in unit.read_text(), name


@pytest.mark.skipif(shutil.which("lb") is None, reason="needs live-build")
def test_live_build_takes_the_configuration(tmp_path: Path) -> None:
    for name in ("auto", "config"):
        shutil.copytree(IMAGE / name, tmp_path / name)
    said = ran("lb", "config", cwd=tmp_path)
    assert not re.search(r"^[EW]:", said, re.MULTILINE), said
    for packages in LISTS:
        assert (
            tmp_path / "config/package-lists" / packages.name
        ).read_text() == packages.read_text()
    made = (tmp_path / "config/bootstrap").read_text() + (tmp_path / "config/binary").read_text()
    assert 'LB_DISTRIBUTION="bookworm"' in made
    assert 'LB_BOOTAPPEND_LIVE="boot=live' in made


def test_every_package_of_the_image_is_in_debian() -> None:
    """As far as this machine knows Debian 12; the driver's packages are of an area it may lack."""
    named = [
        line
        for path in LISTS
        if path.name != "nvidia.list.chroot"
        for line in path.read_text().split("\n")
        if line
    ]
    assert len(named) == len(set(named)) > 20
    known = set(ran("apt-cache", "pkgnames").split()) if shutil.which("apt-cache") else set()
    if "live-boot" not in known:
        pytest.skip("needs the package lists of Debian: apt-get update")
    assert set(named) <= known


def test_the_example_has_what_the_drive_reads() -> None:
    names = re.findall(r"^#?(\w+)=", (IMAGE / "baseload.conf.example").read_text(), re.MULTILINE)
    read = re.findall(
        r"\$\(value (\w+)\)", (INCLUDES / "usr/local/lib/baseload/boot-drive.sh").read_text()
    )
    assert sorted(names) == sorted(read)


def test_no_drive_has_a_host_key_or_a_log_in_of_its_image() -> None:
    hook = (IMAGE / "config/hooks/normal/0500-baseload.hook.chroot").read_text()
    assert "rm -f /etc/ssh/ssh_host_*" in hook
    assert "live-config" not in "".join(path.read_text() for path in LISTS), "it adds a user"
