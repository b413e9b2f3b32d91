"""What a job leaves behind in bad faith: it stops no supervisor, no cleaning and no other run."""

import json
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from activities.agent.folders import Folders
from activities.agent.host import cgroups, job_accounts, process_tree
from activities.site.answers import reading
from tests.activities.agent.agent_process import LocalAgent, removed
from tests.activities.waiting import wait_for

pytestmark = pytest.mark.usefixtures("staged_before")

RUN, OTHER = "job-bad-0-1", "job-good-0-1"
DEPTH = 1500
needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root may become another user: run as root"
)
# A child that nothing but its account tells of: of another session, another parent, another name.
ESCAPE = "(setsid env -i sleep 6401 &) ; (setsid env -i setsid sleep 6402 &) ; touch ready; "


def make_deep(top: Path, depth: int = DEPTH, owner: int = -1) -> None:
    """Folders in each other, deeper than Python recurses and than a path is long."""
    descriptor = os.open(top, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("deep", dir_fd=descriptor)
        inner = os.open("deep", os.O_RDONLY, dir_fd=descriptor)
        os.fchown(inner, owner, -1)
        os.close(descriptor)
        descriptor = inner
    odd = os.open(b"odd\n\xff", os.O_CREAT | os.O_WRONLY, dir_fd=descriptor)
    os.fchown(odd, owner, -1)
    os.close(odd)
    os.close(descriptor)


def sleepers(*seconds: str) -> list[int]:
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and (folder / "cmdline").read_bytes().split(b"\0")[:2] in [
                [b"sleep", one.encode()] for one in seconds
            ]:
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def test_a_run_with_very_deep_folders_is_supervised_ended_and_removed(agent: LocalAgent) -> None:
    agent.stage(RUN, "sleep 600", disk_size_gb=1)
    for name in ("work", "output", "state"):
        make_deep(agent.path(RUN, name))
    agent.call("start", run_id=RUN)
    wait_for(agent.path(RUN, "beat.json").exists, "a beat")
    assert agent.call("end", run_id=RUN, grace_s=0)["exit"]["reason"] == "ended"
    assert agent.call("clean", run_ids=[RUN])["removed"] == [RUN]
    assert list(agent.path(RUN).parent.iterdir()) == []


def test_very_deep_remains_keep_nothing_else_from_being_pruned(agent: LocalAgent) -> None:
    before = agent.root / "runs" / ".removed-job-before-0-1.1" / "run"
    unused = agent.root / "code" / ("0" * 64)
    for folder in (before, unused):
        folder.mkdir(parents=True)
        make_deep(folder)
        os.utime(folder, (0, 0))
    pruned = agent.call("prune", max_age_s=3600, keep_code=[])["removed"]
    assert pruned == [f"code/{unused.name}"]
    assert not before.exists()
    assert not unused.exists()


@needs_root
def test_what_one_account_left_in_tmp_keeps_no_other_run_from_being_removed(
    agent: LocalAgent,
) -> None:
    remains = Path("/dev/shm") / f"baseload-remains-{os.getpid()}"
    remains.mkdir()
    try:
        make_deep(remains)
        agent.call("prepare", exclusive=False, authorized_key="", peers=[])
        agent.stage(OTHER, "true", user="baseload-job")
        uid = pwd.getpwnam(agent.document(OTHER, "spec.json")["user"]).pw_uid
        own = remains.with_name(remains.name + "-own")
        own.mkdir()
        make_deep(own, owner=uid)
        os.chown(own, uid, -1)
        assert agent.call("clean", run_ids=[OTHER])["removed"] == [OTHER]
        assert [path.exists() for path in (remains, own / "deep")] == [True, False]
    finally:
        for path in (remains, remains.with_name(remains.name + "-own")):
            subprocess.run(["rm", "-rf", "--", str(path)], check=True)


def run_with_children(agent: LocalAgent, **more: str) -> None:
    """A run whose two children have left its session, its parent and its name."""
    agent.run(RUN, ESCAPE + "sleep 600", **more)
    wait_for(agent.path(RUN, "work/ready").exists, "its children")
    wait_for(lambda: len(sleepers("6401", "6402")) == 2, "both to sleep")


def end_all(agent: LocalAgent) -> None:
    """End the run without its supervisor; nothing of it is left."""
    os.kill(agent.document(RUN, "process.json")["supervisor_pid"], signal.SIGKILL)
    wait_for(lambda: agent.look(RUN)["state"] == "lost", "the loss of its supervisor")
    assert agent.call("end", run_id=RUN, grace_s=0)["tree_gone"]
    assert sleepers("6401", "6402") == []


@needs_root
def test_ending_a_run_ends_all_of_its_account_whatever_it_has_forked(agent: LocalAgent) -> None:
    agent.call("prepare", exclusive=False, authorized_key="", peers=[])
    run_with_children(agent, user="baseload-job")
    end_all(agent)


@needs_root
def test_ending_a_run_ends_what_is_in_its_cgroup_without_an_account(agent: LocalAgent) -> None:
    if not cgroups.folders_of(Folders(str(agent.root)).run(RUN)):
        assert os.environ.get("CI") != "true", "this machine has no cgroups"
        pytest.skip("this machine has no cgroups")
    run_with_children(agent)
    end_all(agent)


@needs_root
def test_ending_a_run_ends_all_of_its_account_that_has_left_its_cgroup(agent: LocalAgent) -> None:
    agent.call("prepare", exclusive=False, authorized_key="", peers=[])
    run_with_children(agent, user="baseload-job")
    for folder in cgroups.folders_of(Folders(str(agent.root)).run(RUN)):
        for pid in sleepers("6401", "6402"):
            (Path(folder).parent.parent / "cgroup.procs").write_text(str(pid))
    end_all(agent)


@needs_root
@pytest.mark.parametrize("place", ["../input", "/tmp", "/var/tmp/own"])
def test_what_a_run_writes_beside_its_own_folders_counts(agent: LocalAgent, place: str) -> None:
    agent.call("prepare", exclusive=False, authorized_key="", peers=[])
    fills = f"mkdir -p {place}; chmod u+w {place}; yes | head -c 30M > {place}/$BASELOAD_RUN_ID"
    agent.run(RUN, f"{fills}; sleep 600", user="baseload-job", disk_size_gb=0.01, grace_s=0)
    try:
        assert agent.exit_of(RUN)["reason"] == "disk-full"
    finally:
        agent.end_all()
        agent.call("clean", run_ids=[RUN])


@pytest.fixture
def elsewhere(agent: LocalAgent) -> Iterator[LocalAgent]:
    """An agent whose root is in no folder that everybody may write to."""
    root = Path(tempfile.mkdtemp(prefix="baseload-own-", dir="/var/lib"))
    root.chmod(0o755)
    found = LocalAgent(root / "agent")
    found.call("prepare", exclusive=False, authorized_key="", peers=[])
    try:
        yield found
    finally:
        found.end_all()
        removed(root)


@needs_root
@pytest.mark.parametrize("place", ["/tmp", "/var/tmp", "/run/lock"])
def test_a_run_finds_nothing_of_others_where_everybody_may_write(
    elsewhere: LocalAgent, place: str
) -> None:
    name = f"taken-{os.getpid()}"
    first, second = f"{RUN}", "job-another-0-1"
    elsewhere.run(first, f"echo mine > {place}/{name} && sleep 600", user="baseload-job")
    wait_for(lambda: _size_of(elsewhere, first, name), "its file")
    assert not Path(place, name).exists()
    script = f"ls {place}; echo yours > {place}/{name}; cat {place}/{name}; stat -c %a {place}"
    elsewhere.run(second, script, user="baseload-job")
    assert elsewhere.exit_of(second)["exit_code"] == 0
    assert elsewhere.path(second, "log").read_text() == "yours\n1777\n"
    elsewhere.call("end", run_id=first, grace_s=0)
    elsewhere.call("clean", run_ids=[first, second])
    assert not elsewhere.path(first).exists()


def _size_of(agent: LocalAgent, run_id: str, name: str) -> int:
    return sum(path.stat().st_size for path in agent.path(run_id).glob(f"own/*/{name}"))


@needs_root
def test_what_a_run_writes_to_its_own_temporary_folder_counts(elsewhere: LocalAgent) -> None:
    fills = "yes | head -c 30M > /tmp/big; sleep 600"
    elsewhere.run(RUN, fills, user="baseload-job", disk_size_gb=0.01, grace_s=0)
    assert elsewhere.exit_of(RUN)["reason"] == "disk-full"


# Its first thread has ended, so that it looks like a zombie; another one goes on.
HALF_ENDED = """
import ctypes, os, threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
with open("pid", "w") as file:
    file.write(str(os.getpid()))
ctypes.CDLL(None).syscall(60, 0)
"""


@needs_root
def test_ending_a_run_ends_processes_whose_first_thread_has_ended(agent: LocalAgent) -> None:
    agent.call("prepare", exclusive=False, authorized_key="", peers=[])
    python = shutil.which("python3", path="/usr/bin")
    escape = f"(setsid env -i {python} -c '{HALF_ENDED}' &) ; sleep 600"
    agent.run(RUN, escape, user="baseload-job")
    noted = agent.path(RUN, "work/pid")
    pid = int(wait_for(lambda: noted.exists() and noted.read_text(), "its process"))
    stat = Path(f"/proc/{pid}/stat")
    wait_for(lambda: ") Z " in stat.read_text(), "the end of its first thread")
    os.kill(agent.document(RUN, "process.json")["supervisor_pid"], signal.SIGKILL)
    wait_for(lambda: agent.look(RUN)["state"] == "lost", "the loss of its supervisor")
    try:
        assert agent.call("end", run_id=RUN, grace_s=0)["tree_gone"]
        assert not stat.exists() or stat.read_text().split(") ")[1].split()[17] == "1"
    finally:
        subprocess.run(["kill", "-9", str(pid)], check=False, capture_output=True)


@needs_root
def test_an_account_with_a_process_is_given_to_nobody(
    node_root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(job_accounts, "ACCOUNTS", str(tmp_path / "accounts"))
    folders = Folders(str(node_root))
    alive = job_accounts.claim(folders, RUN, "baseload-job")
    program = "import ctypes, time; ctypes.CDLL(None).prctl(4, 0); print(1, flush=True); "
    python = shutil.which("python3", path="/usr/bin")
    assert python is not None
    process = subprocess.Popen(  # it hides from who looks at its folder in /proc
        [python, "-c", program + "time.sleep(600)"], user=alive, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        process.stdout.read(1)
        assert job_accounts.claim(folders, OTHER, "baseload-job") != alive
        process_tree.end_account(pwd.getpwnam(alive).pw_uid)
        process.stdout.close()
        assert process.wait() == -signal.SIGKILL
    finally:
        process.kill()
        process.wait()


@needs_root
def test_two_roots_on_a_machine_never_share_an_account(agent: LocalAgent, node_root: Path) -> None:
    agent.call("prepare", exclusive=False, authorized_key="", peers=[])
    second = LocalAgent(node_root.parent / "second")
    for one in (agent, second):
        one.stage(RUN, "true", user="baseload-job")
    users = [one.document(RUN, "spec.json")["user"] for one in (agent, second)]
    assert len(set(users)) == 2


@needs_root
def test_the_kernel_ends_a_command_before_its_supervisor_and_bounds_its_processes(
    agent: LocalAgent,
) -> None:
    agent.call("prepare", exclusive=False, authorized_key="", peers=[])
    asked = "cat /proc/self/oom_score_adj; grep processes /proc/self/limits; sleep 600"
    agent.run(RUN, asked, user="baseload-job", most_tasks=300)
    lines = wait_for(
        lambda: (found := agent.path(RUN, "log").read_text().split())[1:] and found, "two lines"
    )
    supervisor = agent.document(RUN, "process.json")["supervisor_pid"]
    assert int(lines[0]) > int(Path(f"/proc/{supervisor}/oom_score_adj").read_text())
    assert lines[1:5] == ["Max", "processes", "300", "300"]
    tops = cgroups.folders_of(Folders(str(agent.root)).run(RUN))
    bounds = [Path(top) / "pids.max" for top in tops if (Path(top) / "pids.max").exists()]
    assert {path.read_text().strip() for path in bounds} <= {"300"}
    assert bounds or os.environ.get("CI") != "true", "this machine has no cgroups of processes"


def test_terabytes_of_holes_are_not_packed_and_files_of_the_allowed_size_are(
    agent: LocalAgent,
) -> None:
    agent.stage(RUN, "true", disk_size_gb=0.01)
    (agent.path(RUN, "output") / "given").write_bytes(b"x" * 1000)
    asked = json.dumps({"root": str(agent.root), "run_id": RUN}).encode() + b"\n"

    def pack() -> subprocess.CompletedProcess[bytes]:
        command = agent.command("pack_output")
        return subprocess.run(command, input=asked, capture_output=True, check=False)

    assert pack().returncode == 0
    with (agent.path(RUN, "output") / os.fsdecode(b"hole \xff")).open("wb") as hole:
        hole.truncate(64 << 20)
    refused = pack()
    assert refused.returncode == 3
    line = refused.stderr.splitlines()[-1]  # Of whatever bytes a name is, the platform reads it.
    found = reading.read_refusal(line, reading.Speaker("nod-1", "pack_output"))
    assert found is not None
    assert found.code == "too-large"
