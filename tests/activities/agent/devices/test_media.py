"""Media devices that are plugged in later, shown to a command that does what it likes with its own
mount namespace."""

import os
import pwd
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from activities.agent.devices import media
from activities.agent.devices.media import Media
from tests.activities.agent.devices.conftest import MakeRevision

USER = "nobody"
NO_NAMESPACE = (
    f"the account {USER} can have no mount namespace of its own here: allow user namespaces with"
    " `sysctl user.max_user_namespaces=10000`, and where the host has these,"
    " kernel.unprivileged_userns_clone=1 and kernel.apparmor_restrict_unprivileged_userns=0"
)
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes device files")


@pytest.fixture
def own_namespace() -> Iterator[tuple[int, Path]]:
    """A process of an account that has a /dev of its own making, and the folder that this is."""
    folder = Path(tempfile.mkdtemp(prefix="baseload-device-", dir="/var/tmp"))
    os.chown(folder, pwd.getpwnam(USER).pw_uid, -1)
    words = f"mount --bind {folder} /dev && echo ready && exec sleep 60"
    act = ["setpriv", "--reuid", USER, "--clear-groups", "--no-new-privs"]
    act += ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", words]
    with subprocess.Popen(act, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                _miss(NO_NAMESPACE)
            yield process.pid, folder
        finally:
            process.kill()
    subprocess.run(["rm", "-rf", folder], check=True)


def _miss(what: str) -> NoReturn:
    """Skip, or with CI=true fail, for want of something that the host has to allow."""
    if os.environ.get("CI") == "true":
        pytest.fail(what)
    pytest.skip(what)


def test_nothing_is_made_where_a_command_has_put_its_own_folder_as_dev(
    make_revision: MakeRevision,
    own_namespace: tuple[int, Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Root would make files, and give files away, wherever the command lets /dev lead."""
    pid, folder = own_namespace
    monkeypatch.setattr(media, "there", lambda: {"video0": os.makedev(81, 0)})
    revision = make_revision(has_media=True, user=USER, runtime="process")
    revision.write("process.json", {"pid": pid})
    Media(revision).keep()
    assert list(folder.iterdir()) == []


@pytest.fixture
def roots_namespace() -> Iterator[int]:
    """A process that has a /dev of its own, which root has made for it."""
    words = "mount -t tmpfs -o mode=755 tmpfs /dev && echo ready && exec sleep 60"
    act = ["unshare", "--mount", "sh", "-c", words]
    with subprocess.Popen(act, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process.pid
        process.kill()


def test_a_device_is_made_where_root_has_made_the_dev_of_the_command(
    make_revision: MakeRevision, roots_namespace: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    revision = make_revision(has_media=True, user=USER, runtime="process")
    revision.write("process.json", {"pid": roots_namespace})
    shown = Media(revision)
    monkeypatch.setattr(media, "INTERVAL_S", 0.0)
    folder = Path(f"/proc/{roots_namespace}/root/dev")
    devices = {"video0": os.makedev(81, 0), "snd/controlC0": os.makedev(116, 0)}
    monkeypatch.setattr(media, "there", lambda: devices)
    shown.keep()
    made = (folder / "snd/controlC0").lstat()
    assert (made.st_rdev, made.st_uid) == (os.makedev(116, 0), pwd.getpwnam(USER).pw_uid)
    monkeypatch.setattr(media, "there", lambda: {"video0": os.makedev(81, 0)})
    shown.keep()
    assert [one.name for one in folder.iterdir() if not one.is_dir()] == ["video0"]


def test_a_device_that_comes_back_with_another_number_is_made_anew(
    make_revision: MakeRevision, roots_namespace: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A camera is plugged out and in again between two looks."""
    revision = make_revision(has_media=True, user=USER, runtime="process")
    revision.write("process.json", {"pid": roots_namespace})
    monkeypatch.setattr(media, "INTERVAL_S", 0.0)
    camera = Path(f"/proc/{roots_namespace}/root/dev/video0")
    shown = Media(revision)
    for number in (0, 1):
        found = {"video0": os.makedev(81, number)}
        monkeypatch.setattr(media, "there", lambda found=found: found)
        shown.keep()
        assert camera.lstat().st_rdev == os.makedev(81, number)


def test_a_link_in_the_dev_of_a_command_is_not_followed(
    make_revision: MakeRevision, roots_namespace: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    revision = make_revision(has_media=True, user=USER, runtime="process")
    revision.write("process.json", {"pid": roots_namespace})
    folder = Path(f"/proc/{roots_namespace}/root/dev")
    (folder / "elsewhere").mkdir()
    (folder / "snd").symlink_to("elsewhere")
    monkeypatch.setattr(media, "there", lambda: {"snd/controlC0": os.makedev(116, 0)})
    Media(revision).keep()
    assert list((folder / "elsewhere").iterdir()) == []


def test_a_namespace_of_the_commands_own_is_named_once_and_left_alone(
    make_revision: MakeRevision,
    own_namespace: tuple[int, Path],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    looks: list[int] = []

    def there() -> dict[str, int]:
        looks.append(1)
        return {"video0": os.makedev(81, len(looks))}

    monkeypatch.setattr(media, "there", there)
    monkeypatch.setattr(media, "INTERVAL_S", 0.0)
    revision = make_revision(has_media=True, user=USER, runtime="process")
    revision.write("process.json", {"pid": own_namespace[0]})
    shown = Media(revision)
    for _ in range(3):
        shown.keep()
    assert len(looks) == 1
    assert capfd.readouterr().err.count("the command has made the mount namespace") == 1
