"""The kernel's mount programs: what they are asked, and what is made of their words."""

import os
from pathlib import Path
from typing import Any

import pytest

from activities.agent.datastores import kernel
from activities.agent.datastores.child import UNREACHED
from activities.agent.datastores.share import Share
from activities.agent.errors import RefusedError
from activities.agent.folders import Folders

PROGRAM = """\
#!/bin/sh
echo "$@" >> {folder}/asked
[ -z "$PASSWD_FD" ] || cat "/proc/self/fd/$PASSWD_FD" > {folder}/password
cat {folder}/says >&2
exit $(cat {folder}/status)
"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with mount programs that say what a test has written there."""
    for name in ("mount.nfs", "mount.cifs"):
        (tmp_path / name).write_text(PROGRAM.format(folder=tmp_path))
        (tmp_path / name).chmod(0o755)
    (tmp_path / "says").touch()
    (tmp_path / "status").write_text("0")
    monkeypatch.setattr(kernel, "_PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(
        kernel, "_pinned", lambda share: share._replace(address="192.0.2.9"), raising=True
    )
    return tmp_path


def share(kind: str, **more: Any) -> Share:
    return Share(f"dst-{kind}", kind, "nas", None, "/data/sets", None, None)._replace(**more)


def mounted(programs: Path, datastore: Share) -> str:
    """The words that the mount program was called with."""
    kernel.mounted(Folders(str(programs / "root")), datastore)
    return (programs / "asked").read_text()


def test_the_checked_address_is_mounted_and_no_referral_followed(programs: Path) -> None:
    assert mounted(programs, share("nfs")).startswith("192.0.2.9:/data/sets ")
    asked = mounted(programs, share("smb", user="LAB\\ada", password="horse, battery"))
    options = asked.splitlines()[-1].split()[-1].split(",")
    assert {"ip=192.0.2.9", "nodfs", "nosuid", "nodev", "noexec", "domain=LAB"} <= set(options)
    assert "horse" not in asked
    assert (programs / "password").read_text() == "horse, battery\n"


@pytest.mark.parametrize(
    "said",
    [
        "mount error(111): could not connect to 192.0.2.9",
        "mount error(113): No route to host",
        "mount.nfs: Connection refused",
        "mount.nfs: Protocol not supported",
        "mount.nfs: requested NFS version or transport protocol is not supported",
        "",
    ],
    ids=range(6),
)
def test_where_no_server_has_answered_all_words_are_alike(programs: Path, said: str) -> None:
    (programs / "says").write_text(said)
    (programs / "status").write_text("32")
    with pytest.raises(RefusedError) as refused:
        mounted(programs, share("nfs"))
    found = refused.value.code, refused.value.message
    assert found == ("datastore-away", f"nfs://nas/data/sets: {UNREACHED}")


@pytest.mark.parametrize(
    "said",
    ["mount error(13): Permission denied", "mount error(6): No such device or address"],
    ids=["password", "share"],
)
def test_what_a_server_refuses_is_said(programs: Path, said: str) -> None:
    (programs / "says").write_text(said)
    (programs / "status").write_text("32")
    with pytest.raises(RefusedError, match="mount error") as refused:
        mounted(programs, share("smb", user="ada", password="x"))
    assert refused.value.code == "datastore-refused"


def test_a_kernel_without_the_file_system_is_no_failure_of_the_server(programs: Path) -> None:
    (programs / "says").write_text("mount.nfs: No such device")
    (programs / "status").write_text("32")
    with pytest.raises(kernel.NoMountError, match="the kernel has no nfs"):
        mounted(programs, share("nfs"))
