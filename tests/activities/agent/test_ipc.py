"""What a job's account keeps when all its processes are gone: in the kernel, and on disk."""

import os
import pwd
import shlex
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from activities.agent.host import ipc, job_accounts
from activities.agent.host.spawn import DEFAULT_PATH
from tests.activities.agent.agent_process import LocalAgent
from tests.activities.waiting import wait_for

RUN = "job-ipc-0-1"
ACCOUNT = "baseload-job-901"  # of no other test that runs beside this one
OTHER_ACCOUNT = "baseload-job-902"
UID, OTHER_UID = 64201, 64202
KINDS = ("shm", "sem", "msg")
MAKE = (
    "import ctypes; libc = ctypes.CDLL(None); assert libc.shmget(0, 4096, 0o1666) >= 0; "
    "assert libc.semget(0, 1, 0o1666) >= 0; assert libc.msgget(0, 0o1666) >= 0"
)

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root may become another user: run as root"
)


def kept(uid: int) -> list[int]:
    return [len(ipc.owned(kind, uid)) for kind in KINDS]


@pytest.fixture
def uid(agent: LocalAgent) -> int:
    agent.call("prepare", exclusive=False, authorized_key="", peers=[])
    return pwd.getpwnam(job_accounts.make(ACCOUNT)).pw_uid


def test_all_that_an_account_left_is_removed_and_nothing_of_another() -> None:
    python = shutil.which("python3", path=DEFAULT_PATH)
    assert python is not None
    try:
        for owner in (UID, OTHER_UID):
            subprocess.run([python, "-c", MAKE], user=owner, group=owner, check=True)
        assert kept(UID) == [1, 1, 1]
        ipc.remove_of(UID)
        assert kept(UID) == [0, 0, 0]
        assert kept(OTHER_UID) == [1, 1, 1]
    finally:
        ipc.remove_of(UID)
        ipc.remove_of(OTHER_UID)


def test_a_job_that_ends_gives_its_shared_memory_back(agent: LocalAgent, uid: int) -> None:
    agent.run(RUN, f"python3 -c {shlex.quote(MAKE)} && echo made", user=ACCOUNT)
    assert agent.exit_of(RUN)["exit_code"] == 0
    assert agent.path(RUN, "log").read_text() == "made\n"
    assert kept(uid) == [0, 0, 0]


def test_a_job_that_has_lost_its_supervisor_gives_it_back_when_it_is_ended(
    agent: LocalAgent, uid: int
) -> None:
    agent.run(RUN, f"python3 -c {shlex.quote(MAKE)} && sleep 600", user=ACCOUNT)
    wait_for(lambda: kept(uid) == [1, 1, 1], "it has made them")
    os.kill(agent.document(RUN, "process.json")["supervisor_pid"], signal.SIGKILL)
    assert agent.call("end", run_id=RUN, grace_s=0)["tree_gone"]
    assert kept(uid) == [0, 0, 0]


def test_what_an_account_left_where_all_may_write_goes_and_what_it_was_given_stays(
    uid: int, node_root: Path
) -> None:
    """Another root of this machine may use an account of the same number."""
    shared = node_root.parent / "shared"
    given = node_root.parent / "packages" / "set" / "lib"
    left = [Path("/var/tmp") / f"left-{uid}", shared / "left", shared / "deep" / "er"]
    for folder in (*left, given):
        folder.mkdir(parents=True)
        (folder / "file").touch()
        for path in (folder, folder / "file"):
            os.chown(path, uid, -1)
    os.chown(given.parent, uid, -1)
    os.chown(shared / "deep", uid, -1)
    shared.chmod(0o777)
    closed = shared / "closed"
    closed.mkdir(0o700)
    closed_in = closed / "in"
    closed_in.mkdir()
    closed_in.chmod(0o777)
    (closed_in / "file").touch()
    os.chown(closed_in / "file", uid, -1)
    (shared / "of another").touch()
    (shared / "link").symlink_to(given)
    os.lchown(shared / "link", uid, -1)
    job_accounts.forget_files(ACCOUNT)
    assert [folder for folder in left if folder.exists()] == []
    assert {path.name for path in shared.iterdir()} == {"of another", "closed"}
    assert (closed_in / "file").exists()
    assert (given / "file").exists()


def test_what_an_account_left_in_the_closed_folder_of_another_job_goes_too(
    uid: int, node_root: Path
) -> None:
    """Nothing else would remove it: neither account owns all of the folder."""
    other = pwd.getpwnam(job_accounts.make(OTHER_ACCOUNT)).pw_uid
    folder = node_root.parent / "of another job"
    (folder / "inner").mkdir(parents=True)
    for path, owner in ((folder / "inner" / "file", uid), (folder / "own", other)):
        path.touch()
        os.chown(path, owner, -1)
    for path in (folder, folder / "inner"):
        os.chown(path, other, -1)
        path.chmod(0o700)
    job_accounts.forget_files(ACCOUNT)
    assert [path.name for path in sorted(folder.rglob("*"))] == ["inner", "own"]
