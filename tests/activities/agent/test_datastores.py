"""Datastores on a node: real NFS and SMB servers, and what the kernel cannot mount."""

import os
import pwd
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from activities.agent.datastores import child, copying, kernel, share, verbs
from activities.agent.errors import RefusedError
from activities.agent.folders import Folders
from tests.activities.agent.agent_process import LocalAgent, Refused, spec
from tests.lab.file_servers import SMB_PASSWORD, SMB_UID, SMB_USER, NfsServer, SmbServer
from tests.lab.fixtures import nfs_server, smb_server

__all__ = ["nfs_server", "smb_server"]

RUN = "job-dst-0-1"
OUT_OF_ROOT = (
    "..", "../x", "a/../../x", "a/..", "/etc", "//x", "a//b", "./a", "a/./b", "..\\x", "a\\..\\b",
    "a\0b", "a\nb", "\uff0e\uff0e/x", "\u2024\u2024/x", "a/.. ", "... ", "a/\uff0e/b",
    "x" * 300, "a/" * 600,
)  # fmt: skip
"""Paths that leave the root, or that some server may read so."""


def nfs(server: NfsServer, **more: Any) -> dict[str, Any]:
    place = {"host": server.address, "root_path": str(server.shared)}
    return {"id": "dst-nfs", "type": "nfs", **place, **more}


def smb_share(server: SmbServer, **more: Any) -> dict[str, Any]:
    place = {"host": server.address, "root_path": "/data"}
    by = {"user": SMB_USER, "password": SMB_PASSWORD}
    return {"id": "dst-smb", "type": "smb", **place, **by, **more}


@pytest.fixture(params=["nfs", "smb"])
def server(request: pytest.FixtureRequest) -> Iterator[NfsServer | SmbServer]:
    found: NfsServer | SmbServer = request.getfixturevalue(f"{request.param}_server")
    for path in found.shared.iterdir():
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    yield found
    found.go_on()


def described(server: NfsServer | SmbServer, **more: Any) -> dict[str, Any]:
    return nfs(server, **more) if isinstance(server, NfsServer) else smb_share(server, **more)


def stage(agent: LocalAgent, command: str, datastores: dict[str, Any], **more: Any) -> None:
    agent.call("stage", run_id=RUN, spec=spec(command, **more), datastores=datastores)


def at(server: NfsServer | SmbServer, path: str, **more: Any) -> dict[str, Any]:
    return {"datastore": described(server, **more), "path": path}


@pytest.mark.parametrize("path", OUT_OF_ROOT)
def test_no_path_leaves_the_root_of_a_datastore(path: str) -> None:
    for is_smb in (False, True):
        with pytest.raises(RefusedError) as refused:
            share.parts_of(path, is_smb=is_smb)
        assert refused.value.code == "datastore-path"


@pytest.mark.parametrize("path", ["a:stream", "a*", "con|x", "x.", "x "])
def test_a_name_with_a_meaning_of_its_own_on_windows_is_refused_for_smb(path: str) -> None:
    with pytest.raises(RefusedError):
        share.parts_of(path, is_smb=True)


@pytest.mark.parametrize("path", ["", "/", "."])
def test_a_slash_is_all_of_a_datastore(path: str) -> None:
    assert share.parts_of(path, is_smb=True) == []


def test_a_name_that_only_looks_odd_is_a_name() -> None:
    assert share.parts_of("...a/%2e%2e/ä b/", is_smb=True) == ["...a", "%2e%2e", "ä b"]


def test_a_check_says_that_a_share_is_there_and_how_it_is_reached(
    agent: LocalAgent, server: NfsServer | SmbServer
) -> None:
    found = agent.call("check_datastore", datastore=described(server))
    assert (found["reachable"], found["writable"], found["reason"]) == (True, True, None)
    assert list(server.shared.iterdir()) == []  # the trial is gone
    assert found["way"] == "user-space"  # no kernel of a development machine has network mounts
    assert "No such device" in found["no_mount_reason"]


def test_a_node_says_how_it_would_reach_shares(agent: LocalAgent) -> None:
    """Here without network file systems, on most machines by the kernel."""
    prepared = agent.call("prepare", peers=[])
    for name, system in (("nfs_way", "nfs4"), ("smb_way", "cifs")):
        assert prepared[name] in ("kernel", f"user-space (kernel without {system})")


def test_a_check_says_that_a_share_can_only_be_read(
    agent: LocalAgent, server: NfsServer | SmbServer
) -> None:
    server.shared.chmod(0o755)
    try:
        found = agent.call("check_datastore", datastore=described(server))
    finally:
        server.shared.chmod(0o777)
    assert (found["reachable"], found["writable"]) == (True, False)
    assert "ermission denied" in found["reason"]


def test_a_check_words_what_is_wrong(
    agent: LocalAgent, nfs_server: NfsServer, smb_server: SmbServer
) -> None:
    wrong = (
        (smb_share(smb_server, password="wrong"), "Permission denied"),
        (smb_share(smb_server, root_path="/none"), "No such file"),
        (nfs(nfs_server, root_path="/none"), "NFS4ERR_NOENT"),
    )
    for datastore, words in wrong:
        found = agent.call("check_datastore", datastore=datastore)
        assert not found["reachable"]
        assert words in found["reason"]
        assert "wrong" not in found["reason"]


def test_no_failure_says_which_hosts_and_ports_answer(
    agent: LocalAgent, nfs_server: NfsServer, smb_server: SmbServer
) -> None:
    closed = {"closed": [nfs_server.address, smb_server.address]}
    asked = {
        "another server": smb_share(smb_server, host=nfs_server.address),
        "another port": smb_share(smb_server, port=446),
        "closed": smb_share(smb_server, networks=closed),
        "closed nfs": nfs(nfs_server, networks=closed),
        "loopback": nfs(nfs_server, host="127.0.0.1"),
        "loopback by name": nfs(nfs_server, host="localhost"),
        "metadata": nfs(nfs_server, host="169.254.169.254"),
        "no nfs": nfs(nfs_server, host=smb_server.address),
        "no name": nfs(nfs_server, host="none.invalid"),
        "private": nfs(nfs_server, networks={"is_public_only": True}),
    }
    for why, datastore in asked.items():
        found = agent.call("check_datastore", datastore=datastore)
        place = share.share_of(datastore).place
        assert (found["reachable"], found["refused"]) == (False, False), why
        assert found["reason"] == f"{place}: {child.UNREACHED}", why
    is_open = {"closed": closed["closed"], "open": [nfs_server.address + "/32"]}
    assert agent.call("check_datastore", datastore=nfs(nfs_server, networks=is_open))["reachable"]


def test_nfs_4_alone_serves_as_well(agent: LocalAgent, nfs_server: NfsServer) -> None:
    nfs_server.stop()
    nfs_server.start(protocols="4")
    try:
        (nfs_server.shared / "only4").mkdir()
        (nfs_server.shared / "only4").chmod(0o777)
        found = agent.call("check_datastore", datastore=nfs(nfs_server))
        assert (found["reachable"], found["writable"]) == (True, True)
        store(agent, nfs_server, "only4")
        assert (nfs_server.shared / "only4/deep/er/x").read_bytes() == b"x" * 10_000
        assert (nfs_server.shared / "only4/deep/er/x").stat().st_mode & 0o777 == 0o644
    finally:
        nfs_server.stop()
        nfs_server.start()


def store(agent: LocalAgent, server: NfsServer | SmbServer, path: str) -> dict[str, Any]:
    command = (
        "mkdir -p $BASELOAD_OUTPUT/deep/er; cd $BASELOAD_OUTPUT; ln -s /etc/passwd out;"
        " head -c 10000 /dev/zero | tr '\\0' x > deep/er/x; echo one > one; : > empty"
    )
    stage(agent, command, {"output": at(server, path)}, user="baseload-job")
    agent.call("start", run_id=RUN)
    assert agent.exit_of(RUN)["exit_code"] == 0
    return agent.call("store_on_datastore", run_id=RUN, **at(server, path))


def test_input_is_copied_and_output_stored_by_the_account_of_the_run(
    agent: LocalAgent, server: NfsServer | SmbServer
) -> None:
    folder = server.shared / "set/ä b"
    folder.mkdir(parents=True)
    (folder / "a").write_text("first")
    (folder / "run.sh").write_text("echo ran")
    (folder / "big").write_bytes(os.urandom(3_000_000))
    (server.shared / "set").chmod(0o755)
    (server.shared / "results").mkdir(mode=0o777)
    (server.shared / "results").chmod(0o777)
    command = (
        "cat $BASELOAD_INPUT/a; cp $BASELOAD_INPUT/big $BASELOAD_OUTPUT/; mkdir $BASELOAD_OUTPUT/d"
    )
    places = {"input": at(server, "set/ä b"), "output": at(server, "results/run 1")}
    stage(agent, command, places, user="baseload-job")
    agent.call("start", run_id=RUN)
    assert agent.exit_of(RUN)["exit_code"] == 0, agent.path(RUN, "log").read_text()
    assert agent.path(RUN, "log").read_text() == "first"
    answer = agent.call("store_on_datastore", run_id=RUN, **places["output"])
    assert (answer["files"], answer["bytes"], answer["way"]) == (1, 3_000_000, "user-space")
    stored = server.shared / "results/run 1"
    assert (stored / "big").read_bytes() == (folder / "big").read_bytes()
    assert (stored / "d").is_dir()
    account = pwd.getpwnam(agent.document(RUN, "spec.json")["user"]).pw_uid
    writer = account if isinstance(server, NfsServer) else SMB_UID
    assert {path.stat().st_uid for path in (stored, stored / "big", stored / "d")} == {writer}


def test_all_squash_writes_as_the_account_that_the_export_names(
    agent: LocalAgent, nfs_server: NfsServer
) -> None:
    nfs_server.stop()
    nfs_server.start(squash="All_Squash", anonymous=5151)
    folder = nfs_server.shared / "of-one"
    folder.mkdir()
    os.chown(folder, 5151, 5151)
    try:
        store(agent, nfs_server, "of-one/run")
        assert (folder / "run/one").stat().st_uid == 5151
    finally:
        nfs_server.stop()
        nfs_server.start()


def test_what_is_stored_is_not_stored_again(
    agent: LocalAgent, server: NfsServer | SmbServer
) -> None:
    first = store(agent, server, "out")
    stored = server.shared / "out/one"
    seen = stored.stat().st_mtime_ns
    again = agent.call("store_on_datastore", run_id=RUN, **at(server, "out"))
    assert first == again
    assert (first["files"], first["left_out"]) == (3, 1)
    assert stored.stat().st_mtime_ns == seen
    assert not (server.shared / "out/out").exists()  # a link that leads out of the output


def test_names_that_mean_something_else_to_smb_are_left_out(
    agent: LocalAgent, smb_server: SmbServer
) -> None:
    (smb_server.shared / "victim").write_text("stays")
    (smb_server.shared / "odd").mkdir()
    (smb_server.shared / "odd").chmod(0o777)
    command = (
        "cd $BASELOAD_OUTPUT; echo x > '..\\..\\victim'; mkdir 'a\\b'; echo x > 'a\\b/c';"
        " echo x > 'a:stream'; echo good > good"
    )
    stage(agent, command, {"output": at(smb_server, "odd/run")})
    agent.call("start", run_id=RUN)
    assert agent.exit_of(RUN)["exit_code"] == 0
    answer = agent.call("store_on_datastore", run_id=RUN, **at(smb_server, "odd/run"))
    assert (answer["files"], answer["left_out"]) == (1, 4)
    assert [path.name for path in (smb_server.shared / "odd/run").iterdir()] == ["good"]
    assert (smb_server.shared / "victim").read_text() == "stays"


def test_links_of_a_share_lead_nowhere_else(agent: LocalAgent, nfs_server: NfsServer) -> None:
    top = nfs_server.shared
    (top / "inside").mkdir()
    (top / "inside/file").write_text("secret")
    (top / "linked").mkdir()
    (top / "linked/a").write_text("a")
    for name, to in (("out", "/etc/passwd"), ("up", "../inside/file"), ("stays", "a")):
        (top / "linked" / name).symlink_to(to)
    (top / "link").symlink_to("inside")
    stage(agent, "true", {"input": at(nfs_server, "linked")})
    assert sorted(path.name for path in agent.path(RUN, "input").iterdir()) == ["a", "stays"]
    assert (agent.path(RUN, "input") / "stays").readlink() == Path("a")
    with pytest.raises(Refused, match="follows no links") as refused:
        agent.call(
            "stage",
            run_id="job-dst-1-1",
            spec=spec("true"),
            datastores={"input": at(nfs_server, "link")},
        )
    assert refused.value.code == "datastore-path"
    with pytest.raises(Refused, match="follows no links"):
        agent.call("store_on_datastore", run_id=RUN, **at(nfs_server, "link/x"))


def test_input_that_is_too_large_is_refused(agent: LocalAgent, nfs_server: NfsServer) -> None:
    (nfs_server.shared / "large").mkdir()
    with (nfs_server.shared / "large/zeros").open("wb") as file:
        file.truncate(20_000_000)
    with pytest.raises(Refused, match=r"more bytes than resources\.disk_size_gb"):
        agent.call(
            "stage",
            run_id=RUN,
            spec=spec("true"),
            disk_size_gb=0.01,
            datastores={"input": at(nfs_server, "large")},
        )


def test_a_share_that_hangs_holds_neither_the_agent_nor_a_process(
    agent: LocalAgent, server: NfsServer | SmbServer
) -> None:
    found = share.share_of(described(server))
    server.hang()
    before = _children()
    with pytest.raises(RefusedError, match="cannot be reached") as refused:
        child.in_child(
            "share", lambda _: verbs.opened(found, None) and None, stall_s=1.0, limit_s=20.0
        )
    assert refused.value.code == "datastore-away"
    assert _children() <= before
    server.go_on()
    assert agent.call("check_datastore", datastore=described(server))["reachable"]


def _children() -> set[str]:
    """The processes that this one has started, and not collected yet."""
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


def test_a_copy_that_was_cut_off_goes_on(agent: LocalAgent, nfs_server: NfsServer) -> None:
    folder = nfs_server.shared / "parts"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / name).write_text(name * 100)
    stage(agent, "true", {"input": at(nfs_server, "parts")})
    agent.path(RUN, "input").rename(agent.path(RUN, "input.part"))
    agent.path(RUN, "spec.json").unlink()
    part = agent.path(RUN, "input.part")
    found = (folder / "b").stat()
    # What has arrived of b says that it is the beginning of this b, and is taken for it.
    name = copying.part_name("b", found.st_size, int(found.st_mtime))
    (part / "b").rename(part / name)
    (part / name).write_text("B" * 50)
    kept = part / "a"
    inode = kept.stat().st_ino
    stage(agent, "true", {"input": at(nfs_server, "parts")})
    assert {path.name for path in agent.path(RUN, "input").iterdir()} == {"a", "b"}
    assert (agent.path(RUN, "input") / "a").stat().st_ino == inode
    assert (agent.path(RUN, "input") / "b").read_text() == "B" * 50 + "b" * 50


def test_a_password_is_on_no_command_line_and_in_no_file(
    agent: LocalAgent, smb_server: SmbServer
) -> None:
    (smb_server.shared / "in").mkdir()
    (smb_server.shared / "in/x").write_text("x")
    smb_server.hang()
    asked = agent.begin("check_datastore", datastore=smb_share(smb_server))
    seen: list[bytes] = []
    until = time.monotonic() + 3
    while time.monotonic() < until:
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                seen += [path.read_bytes(), path.with_name("environ").read_bytes()]
            except OSError:
                continue
    smb_server.go_on()
    agent.answer(asked)
    stage(agent, "sleep 60", {"input": at(smb_server, "in"), "output": at(smb_server, "in")})
    agent.call("start", run_id=RUN)
    secret = SMB_PASSWORD.encode()
    assert not [text for text in seen if secret in text]
    files = [path for path in agent.root.rglob("*") if path.is_file() and not path.is_symlink()]
    assert not [path for path in files if secret in path.read_bytes()]


def test_a_mounted_datastore_is_shown_to_the_run_alone(
    agent: LocalAgent, nfs_server: NfsServer
) -> None:
    """Where the kernel mounts it, here in the shape of a folder of this machine."""
    (nfs_server.shared / "mounted").mkdir()
    (nfs_server.shared / "mounted/a").write_text("of the share")
    (nfs_server.shared / "mounted-out").mkdir()
    (nfs_server.shared / "mounted-out").chmod(0o777)
    (nfs_server.shared / "mounted-link").symlink_to("/etc")
    folder = Path(kernel.folder_of(Folders(str(agent.root)), "dst-nfs"))
    folder.mkdir(parents=True)
    subprocess.run(["mount", "--bind", nfs_server.shared, folder], check=True)
    try:
        found = agent.call("check_datastore", datastore=nfs(nfs_server))
        assert (found["way"], found["writable"]) == ("kernel", True)
        command = (
            "cat $BASELOAD_INPUT/a; echo done > $BASELOAD_OUTPUT/result;"
            " echo x > $BASELOAD_SCRATCH/x; touch $BASELOAD_INPUT/b;"
            " cp /bin/true $BASELOAD_OUTPUT/t; $BASELOAD_OUTPUT/t; ls " + str(folder)
        )
        places = {
            "input": at(nfs_server, "mounted"),
            "output": at(nfs_server, "mounted-out/new"),
            "scratch": at(nfs_server, "mounted-out/tmp"),
        }
        stage(agent, command, places, user="baseload-job")
        agent.call("start", run_id=RUN)
        agent.exit_of(RUN)
        log = agent.path(RUN, "log").read_text()
        assert "of the share" in log
        assert "Read-only file system" in log
        assert log.count("Permission denied") == 2  # a program on it, and the mount itself
        result = nfs_server.shared / "mounted-out/new/result"
        assert result.read_text() == "done\n"
        account = pwd.getpwnam(agent.document(RUN, "spec.json")["user"]).pw_uid
        assert result.stat().st_uid == account
        answer = agent.call("store_on_datastore", run_id=RUN, **places["output"])
        assert answer["way"] == "kernel"
        assert list(agent.path(RUN, "output").iterdir()) == []
        scratch = nfs_server.shared / "mounted-out/tmp" / RUN
        assert (scratch / "x").read_text() == "x\n"
        agent.call("clean", run_ids=[RUN])
        assert result.exists()
        assert not scratch.exists()
        assert scratch.parent.exists()
        with pytest.raises(Refused, match="follows no links"):
            agent.call(
                "stage",
                run_id="job-dst-2-1",
                spec=spec("true"),
                datastores={"input": at(nfs_server, "mounted-link")},
            )
        kernel.unmount(Folders(str(agent.root)), "dst-nfs")
        assert not kernel.is_mounted(str(folder))
        assert result.exists()
    finally:
        subprocess.run(["umount", "-l", folder], check=False, capture_output=True)
