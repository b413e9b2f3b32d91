"""What a device writes while its datastore is away: real NFS and SMB servers."""

import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from activities.agent.devices import spool
from activities.agent.devices.state import Revision, Store
from activities.agent.folders import JOB_USER
from activities.agent.host import job_accounts
from tests.activities.agent.devices.conftest import MakeRevision
from tests.activities.agent.test_datastores import described, server
from tests.lab.file_servers import NfsServer, SmbServer
from tests.lab.fixtures import nfs_server, smb_server

__all__ = ["nfs_server", "server", "smb_server"]
AWAY = {
    "id": "dst-away",
    "type": "nfs",
    "host": "192.0.2.1",
    "root_path": "/lab",
    "networks": {"closed": ["192.0.2.1"]},
}


def shop(server: NfsServer | SmbServer, name: str = "shop-7") -> Path:
    """The folder of the device on the datastore, which it may write to."""
    folder = server.shared / name
    folder.mkdir()
    folder.chmod(0o777)
    return folder


def place(datastore: dict[str, Any], path: str = "shop-7") -> dict[str, Any]:
    return {"datastore": datastore, "path": path}


def write(revision: Revision, name: str, content: bytes, age_s: float) -> Path:
    path = Path(revision.at("output")) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    changed = time.time() - age_s
    os.utime(path, (changed, changed))
    return path


def test_what_was_written_while_the_datastore_was_away_follows_when_it_is_back(
    make_revision: MakeRevision, server: NfsServer | SmbServer
) -> None:
    revision = make_revision(output=place(AWAY))
    write(revision, "day/1.csv", b"one", 60)
    assert spool.copy(revision)
    found = spool.report([revision])
    assert (found["waiting_files"], found["away"] != "") == (1, True)
    revision.write(
        "spec.json", {**(revision.read("spec.json") or {}), "output": place(described(server))}
    )
    stored = shop(server)
    assert not spool.copy(revision)
    assert (stored / "day/1.csv").read_bytes() == b"one"
    assert spool.report([revision]) == {
        "waiting_files": 0,
        "waiting_bytes": 0,
        "dropped_files": 0,
        "dropped_bytes": 0,
        "away": "",
    }
    write(revision, "day/1.csv", b"one and more", 50)
    write(revision, "day/2.csv", b"two, which is being wri", 0)
    spool.copy(revision)
    assert (stored / "day/1.csv").read_bytes() == b"one and more"
    assert not (stored / "day/2.csv").exists()
    assert [one.path for one in spool.waiting(revision)] == ["day/2.csv"]


def test_a_full_spool_gives_up_what_is_stored_and_then_the_oldest(
    make_revision: MakeRevision, server: NfsServer | SmbServer
) -> None:
    # Of its own name, because a server may remember a folder that was there before.
    shop(server, "shop-8")
    revision = make_revision(output=place(described(server), "shop-8"))
    block = bytes(8192)
    stored = write(revision, "stored", block, 30)
    spool.copy(revision)
    oldest = write(revision, "oldest", block, 90)
    newest = write(revision, "newest", block, 20)
    spool.bound(revision, 2 * 8192)
    assert (stored.exists(), oldest.exists(), newest.exists()) == (False, True, True)
    assert spool.counts(revision)["dropped_files"] == 0
    spool.bound(revision, 8192)
    assert (oldest.exists(), newest.exists()) == (False, True)
    found = spool.report([revision])
    assert (found["dropped_files"], found["dropped_bytes"]) == (1, 8192)
    assert (found["waiting_files"], found["waiting_bytes"]) == (1, 8192)


def test_the_next_revision_writes_into_the_folders_that_the_one_before_has_made(
    make_revision: MakeRevision, server: NfsServer | SmbServer, store: Store
) -> None:
    shop(server, "shop-9")
    folder = place(described(server), "shop-9/of/detector")
    users = []
    for number in (1, 2):
        revision = make_revision(number, output=folder)
        users.append(job_accounts.claim(store.folders, revision.run_id, JOB_USER))
        spec = {**(revision.read("spec.json") or {}), "user": users[-1]}
        revision.write("spec.json", spec)
        for content in (b"first", b"second"):
            path = write(revision, f"day/{number}", content, 60)
            write(revision, "latest", content + b" %d" % number, 60)
            shutil.chown(path, users[-1])
            shutil.chown(revision.at("output"), users[-1])
            assert not spool.copy(revision), spool.counts(revision)["away"]
    assert len(set(users)) == 2
    stored = server.shared / "shop-9/of/detector"
    assert (stored / "latest").read_bytes() == b"second 2"
    assert [(stored / "day" / name).read_bytes() for name in "12"] == [b"second"] * 2


def test_no_link_of_the_command_leads_the_spool_elsewhere(
    make_revision: MakeRevision, tmp_path: Path
) -> None:
    revision = make_revision(output=place(AWAY))
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_bytes(bytes(8192))
    write(revision, "folder/kept", bytes(8192), 9)
    found = spool.files_of(revision)
    (Path(revision.at("output")) / "folder").rename(Path(revision.at("output")) / "moved")
    (Path(revision.at("output")) / "folder").symlink_to(outside)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spool, "files_of", lambda _: found)
        spool.bound(revision, 0)
    assert (outside / "kept").exists()
    assert spool.counts(revision)["dropped_files"] == 0
