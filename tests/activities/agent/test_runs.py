"""Runs on a node: started once, measured, reported, with nothing of them left behind."""

import hashlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from activities.agent.host import processes
from tests.activities.agent.agent_process import LocalAgent, Refused, processes_of, spec
from tests.activities.archives import file, packed
from tests.activities.waiting import wait_for

pytestmark = pytest.mark.usefixtures("staged_before")

RUN = "job-r-0-1"
# Children that were told to stay, to leave the session, to daemonise and to ignore being asked.
FAMILY = """
trap '' TERM
sleep 6001 &
setsid sleep 6002 &
(setsid sh -c 'trap "" TERM; sleep 6003 & exec sleep 6004' &)
touch ready
while :; do sleep 6005; done
"""


def start_family(agent: LocalAgent) -> list[int]:
    agent.run(RUN, FAMILY)
    wait_for(agent.path(RUN, "work/ready").exists, "the family")
    return wait_for(lambda: _all_of(6), "six processes")


def alive(family: list[int]) -> list[int]:
    """Zombies that wait for init to collect them are not alive."""
    found = [processes.find(pid) for pid in family]
    return [one.pid for one in found if one is not None and one.state not in "ZX"]


def _all_of(count: int) -> list[int]:
    found = processes_of(RUN)
    return found if len(found) >= count else []


def test_an_exit_code_is_reported(agent: LocalAgent) -> None:
    agent.run(RUN, "echo hello; exit 3")
    found = agent.exit_of(RUN)
    assert (found["exit_code"], found["signal"], found["reason"]) == (3, None, "exited")
    assert agent.path(RUN, "log").read_bytes() == b"hello\n"
    assert found["log_bytes"] == 6


def test_a_signal_is_reported_by_name(agent: LocalAgent) -> None:
    agent.run(RUN, "kill -9 $$")
    found = agent.exit_of(RUN)
    assert (found["exit_code"], found["signal"], found["reason"]) == (None, 9, "signal")
    assert "SIGKILL" in found["message"]


def test_a_signal_that_the_shell_reports_for_its_last_command_is_a_signal(
    agent: LocalAgent,
) -> None:
    agent.run(RUN, "sh -c 'kill -11 $$'; exit $?")
    found = agent.exit_of(RUN)
    assert (found["exit_code"], found["signal"], found["reason"]) == (139, 11, "signal")


def test_a_command_that_does_not_exist_says_so(agent: LocalAgent) -> None:
    agent.run(RUN, "no-such-program --now")
    found = agent.exit_of(RUN)
    assert (found["exit_code"], found["reason"]) == (127, "command-not-found")
    assert "no-such-program" in found["message"]


def test_elapsed_seconds_are_those_of_the_command(agent: LocalAgent) -> None:
    began = time.monotonic()
    agent.run(RUN, "sleep 1")
    found = agent.exit_of(RUN)
    assert 1.0 <= found["elapsed_s"] <= time.monotonic() - began


def test_starting_twice_starts_once(agent: LocalAgent) -> None:
    agent.stage(RUN, "echo started; sleep 600")
    first = agent.call("start", run_id=RUN)
    second = agent.call("start", run_id=RUN)
    assert first["state"] == second["state"] == "running"
    assert first["pid"] == second["pid"]
    wait_for(lambda: agent.path(RUN, "log").stat().st_size, "a line")
    assert agent.path(RUN, "log").read_bytes() == b"started\n"


def test_starting_in_eight_places_at_once_starts_once(agent: LocalAgent) -> None:
    agent.stage(RUN, "echo started; sleep 600")
    callers = [agent.begin("start", run_id=RUN) for _ in range(8)]
    assert len({agent.answer(caller)["pid"] for caller in callers}) == 1
    wait_for(lambda: agent.path(RUN, "log").stat().st_size, "a line")
    assert agent.path(RUN, "log").read_bytes() == b"started\n"


def test_a_start_after_the_exit_starts_nothing(agent: LocalAgent) -> None:
    agent.run(RUN, "echo once")
    agent.exit_of(RUN)
    assert agent.call("start", run_id=RUN)["state"] == "exited"
    assert agent.path(RUN, "log").read_bytes() == b"once\n"


def test_a_run_that_was_ended_before_its_start_never_starts(agent: LocalAgent) -> None:
    agent.stage(RUN, "echo started")
    ended = agent.call("end", run_id=RUN, grace_s=0)
    assert ended["exit"]["reason"] == "never-started"
    assert agent.call("start", run_id=RUN)["state"] == "exited"
    assert not agent.path(RUN, "log").exists()


def test_an_end_beside_a_start_leaves_one_story(agent: LocalAgent) -> None:
    for number in range(5):
        run_id = f"job-race-0-{number}"
        agent.stage(run_id, "sleep 600")
        starting = agent.begin("start", run_id=run_id)
        ending = agent.begin("end", run_id=run_id, grace_s=0)
        assert agent.answer(ending)["tree_gone"] is True
        agent.answer(starting)
        assert agent.look(run_id)["state"] == "exited"
        assert processes_of(run_id) == []


def test_a_run_that_was_not_staged_cannot_start(agent: LocalAgent) -> None:
    with pytest.raises(Refused) as caught:
        agent.call("start", run_id=RUN)
    assert caught.value.code == "not-staged"


@pytest.mark.parametrize("run_id", ["../x", "", "A", "a/b", "-a", "a" * 200])
def test_a_run_id_that_is_no_plain_name_is_refused(agent: LocalAgent, run_id: str) -> None:
    with pytest.raises(Refused) as caught:
        agent.call("stage", run_id=run_id, spec=spec("true"))
    assert caught.value.code == "bad-run-id"


def test_ending_ends_the_whole_tree_whatever_it_did_to_stay(agent: LocalAgent) -> None:
    family = start_family(agent)
    ended = agent.call("end", run_id=RUN, grace_s=0.2)
    assert ended["tree_gone"] is True
    assert (ended["exit"]["reason"], ended["exit"]["signal"]) == ("ended", 9)
    assert not alive(family)


def test_ending_gives_the_grace_that_was_asked_for(agent: LocalAgent) -> None:
    agent.run(RUN, "trap 'echo tidying; sleep 0.3; exit 7' TERM; touch ready; sleep 600 & wait")
    wait_for(agent.path(RUN, "work/ready").exists, "the trap")
    ended = agent.call("end", run_id=RUN, grace_s=20)
    assert (ended["exit"]["exit_code"], ended["exit"]["reason"]) == (7, "ended")
    assert agent.path(RUN, "log").read_bytes() == b"tidying\n"


def test_ending_twice_at_once_is_ending_once(agent: LocalAgent) -> None:
    start_family(agent)
    callers = [agent.begin("end", run_id=RUN, grace_s=0.2) for _ in range(3)]
    exits = [agent.answer(caller)["exit"] for caller in callers]
    assert exits[0] == exits[1] == exits[2]


def test_what_a_command_leaves_behind_is_ended_before_its_exit_is_told(agent: LocalAgent) -> None:
    agent.run(RUN, "setsid sleep 6100 & setsid sleep 6101 & exit 0")
    found = agent.exit_of(RUN)
    assert (found["exit_code"], found["tree_gone"]) == (0, True)
    assert processes_of(RUN) == []


def test_a_run_whose_supervisor_was_killed_is_lost_and_can_be_ended(agent: LocalAgent) -> None:
    family = start_family(agent)
    wait_for(agent.path(RUN, "beat.json").exists, "a beat")
    os.kill(agent.document(RUN, "process.json")["supervisor_pid"], signal.SIGKILL)
    lost = wait_for(lambda: _if_lost(agent), "the loss to show")
    assert lost["elapsed_s"] == agent.document(RUN, "beat.json")["elapsed_s"]
    assert alive(family) == family
    assert agent.call("start", run_id=RUN)["state"] == "lost"
    ended = agent.call("end", run_id=RUN, grace_s=0.2)
    assert ended["exit"]["reason"] == "ended-after-supervisor-loss"
    assert not alive(family)


def _if_lost(agent: LocalAgent) -> dict[str, object]:
    state = agent.look(RUN)
    return state if state["state"] == "lost" else {}


def test_a_supervisor_that_does_not_answer_is_ended_with_its_tree(agent: LocalAgent) -> None:
    family = start_family(agent)
    supervisor = agent.document(RUN, "process.json")["supervisor_pid"]
    os.kill(supervisor, signal.SIGSTOP)
    ended = agent.call("end", run_id=RUN, grace_s=0.1, margin_s=0.3)
    assert ended["tree_gone"] is True
    assert not alive(family)


def test_a_run_of_before_a_restart_of_the_machine_is_lost_and_harms_nobody(
    agent: LocalAgent,
) -> None:
    agent.run(RUN, "sleep 600")
    document = agent.document(RUN, "process.json")
    bystander = processes.find(document["pid"])
    assert bystander is not None
    agent.path(RUN, "process.json").write_text(json.dumps({**document, "boot_id": "earlier"}))
    assert agent.look(RUN)["state"] == "lost"
    agent.path(RUN, "process.json").write_text(json.dumps(document))
    assert agent.look(RUN)["state"] == "running"


def test_binary_output_is_kept_byte_by_byte(agent: LocalAgent) -> None:
    content = os.urandom(3_000_000)
    agent.stage(RUN, "cat given; printf 'to stderr' >&2")
    agent.path(RUN, "work/given").write_bytes(content)
    agent.call("start", run_id=RUN)
    found = agent.exit_of(RUN)
    assert agent.path(RUN, "log").read_bytes() == content + b"to stderr"
    assert found["log_bytes"] == len(content) + 9


def test_ten_megabytes_without_a_line_end_are_kept(agent: LocalAgent) -> None:
    agent.run(RUN, "head -c 10000000 /dev/zero | tr '\\0' x")
    assert agent.exit_of(RUN)["log_bytes"] == 10_000_000
    digest = hashlib.sha256(agent.path(RUN, "log").read_bytes()).digest()
    assert digest == hashlib.sha256(b"x" * 10_000_000).digest()


def test_the_command_finds_its_folders_and_variables(agent: LocalAgent) -> None:
    agent.run(RUN, "env; pwd", environment={"EPOCHS": "20"}, gpu_uuids=["GPU-1", "GPU-2"])
    agent.exit_of(RUN)
    lines = agent.path(RUN, "log").read_text().splitlines()
    run = agent.path(RUN)
    assert {
        "BASELOAD_JOB_ID=job-r",
        "BASELOAD_WORKER=0",
        "BASELOAD_WORKERS=1",
        f"BASELOAD_RUN_ID={RUN}",
        f"BASELOAD_INPUT={run}/input",
        f"BASELOAD_OUTPUT={run}/output",
        f"BASELOAD_STATE={run}/state",
        f"HOME={run}/work",
        "CUDA_VISIBLE_DEVICES=GPU-1,GPU-2",
        "EPOCHS=20",
        "PYTHONUNBUFFERED=1",
    } <= set(lines)
    assert lines[-1] == f"{run}/work"
    assert not [line for line in lines if line.startswith(("PIP_", "SSH_", "PYTEST"))]


def test_a_command_holds_nothing_of_its_supervisors(agent: LocalAgent) -> None:
    agent.run(RUN, "ls -l /proc/self/fd; read line || echo no input")
    agent.exit_of(RUN)
    text = agent.path(RUN, "log").read_text()
    assert "lock" not in text
    assert text.endswith("no input\n")


def test_variables_are_never_on_a_command_line(agent: LocalAgent) -> None:
    secret = "s3cret-in-no-command-line"
    agent.run(RUN, "sleep 600", environment={"TOKEN": secret})
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            assert secret.encode() not in _command_line(folder)
    assert agent.path(RUN, "spec.json").stat().st_mode & 0o777 == 0o600


def test_a_command_is_on_no_command_line_and_gone_when_the_run_is_over(agent: LocalAgent) -> None:
    secret = "s3cret-of-a-command"
    agent.run(RUN, f"TOKEN={secret}; touch ready; while ! [ -e go ]; do sleep 0.02; done; exit 7")
    wait_for(agent.path(RUN, "work/ready").exists, "the command")
    shown = [folder for folder in Path("/proc").iterdir() if folder.name.isdigit()]
    assert not [folder for folder in shown if secret.encode() in _command_line(folder)]
    assert agent.path(RUN, "command").stat().st_mode & 0o777 == 0o400
    agent.path(RUN, "work/go").touch()
    assert agent.exit_of(RUN)["exit_code"] == 7
    assert not agent.path(RUN, "command").exists()


@pytest.mark.parametrize("command", ["sleep 600", "true; exec sleep 600"])
def test_a_single_program_takes_the_place_of_its_shell(agent: LocalAgent, command: str) -> None:
    agent.run(RUN, command)
    process = Path(f"/proc/{agent.document(RUN, 'process.json')['pid']}")
    wait_for(lambda: (process / "comm").read_text() == "sleep\n", "the program")
    assert (process / "task" / process.name / "children").read_text() == "", "nothing else runs"


def test_variables_are_gone_from_the_disk_when_the_run_is_over(agent: LocalAgent) -> None:
    agent.run(RUN, "true", environment={"TOKEN": "s3cret-of-a-run"})
    agent.exit_of(RUN)
    files = [path for path in agent.path(RUN).rglob("*") if path.is_file()]
    assert agent.path(RUN, "spec.json") in files
    assert not [path for path in files if b"s3cret-of-a-run" in path.read_bytes()]


def _command_line(folder: Path) -> bytes:
    try:
        return (folder / "cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user: run as root")
def test_a_job_runs_as_its_own_user_and_cannot_read_what_is_not_its_own(
    agent: LocalAgent,
) -> None:
    prepared = agent.call("prepare", exclusive=False, authorized_key="", peers=[])
    assert prepared["job_user"] == "baseload-job"
    agent.put_input("job-other-0-1", packed(file("given", b"hidden")))
    assert agent.path("job-other-0-1", "input").stat().st_mode & 0o077 == 0
    hidden = "cat $BASELOAD_INPUT/given > work; sleep 600"
    other = agent.run("job-other-0-1", hidden, user="baseload-job", environment={"TOKEN": "x"})
    copied = agent.path("job-other-0-1", "work/work")
    wait_for(lambda: copied.exists() and copied.read_bytes() == b"hidden", "what it was given")
    files = [
        agent.path("job-other-0-1", "spec.json"),
        copied,
        agent.path("job-other-0-1", "input/given"),
        agent.path(RUN, "spec.json"),
        agent.path("job-other-0-1", "command"),
    ]
    command = f"id -un; cat {' '.join(map(str, files))}; touch $BASELOAD_OUTPUT/mine"
    agent.run(
        RUN,
        command + f"; cat /proc/{other['pid']}/cmdline || echo hidden; touch $BASELOAD_INPUT/x; "
        "grep NoNewPrivs /proc/self/status",
        user="baseload-job",
    )
    agent.exit_of(RUN)
    text = agent.path(RUN, "log").read_text()
    user = agent.document(RUN, "spec.json")["user"]
    assert text.startswith(f"{user}\n")
    assert user != agent.document("job-other-0-1", "spec.json")["user"]
    assert text.count("Permission denied") == 6
    assert "\nhidden\n" in text
    assert "NoNewPrivs:\t1" in text
    assert agent.path(RUN, "output/mine").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user: run as root")
def test_what_is_put_into_a_staged_run_stays_its_own(agent: LocalAgent) -> None:
    agent.call("prepare", exclusive=False, authorized_key="", peers=[])
    agent.stage(RUN, "cat ../input/given", user="baseload-job")
    before = agent.path(RUN, "input").stat()
    agent.put_input(RUN, packed(file("given", b"late")))
    after = agent.path(RUN, "input").stat()
    assert (after.st_uid, after.st_mode) == (before.st_uid, before.st_mode)
    assert after.st_mode & 0o077 == 0
    agent.call("start", run_id=RUN)
    assert agent.exit_of(RUN)["exit_code"] == 0
    assert agent.path(RUN, "log").read_bytes() == b"late"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user: run as root")
def test_a_jobs_account_is_used_again_only_after_its_run_was_cleaned(agent: LocalAgent) -> None:
    agent.call("prepare", exclusive=False, authorized_key="", peers=[])
    runs = [f"job-account-0-{number}" for number in range(3)]
    accounts = []
    for run_id in runs:
        agent.run(run_id, "true", user="baseload-job")
        agent.exit_of(run_id)
        accounts.append(agent.document(run_id, "spec.json")["user"])
    assert len({*accounts, "baseload-job"}) == 4
    agent.call("clean", run_ids=[runs[1]])
    again: list[str] = []
    while accounts[1] not in again:  # Other tests beside this one take accounts as well.
        agent.stage(f"job-again-0-{len(again)}", "true", user="baseload-job")
        again.append(agent.document(f"job-again-0-{len(again)}", "spec.json")["user"])
        assert accounts[0] not in again
        assert accounts[2] not in again
        assert len(again) < 20


def test_a_job_that_writes_more_than_its_disk_is_ended_for_that(agent: LocalAgent) -> None:
    agent.stage(
        RUN,
        "head -c 3000000 /dev/urandom > big; touch ready; sleep 600",
        disk_size_gb=0.002,
        grace_s=0.1,
    )
    agent.call("start", run_id=RUN)
    found = agent.exit_of(RUN)
    assert found["reason"] == "disk-full"
    assert "disk_size_gb is 0.002" in found["message"]


DELETED = {
    "open": "exec 3> big; rm big; head -c 200000000 /dev/zero >&3; sleep 600",
    "mapped": """exec python3 -c '
import mmap, os, time
number = os.open("big", os.O_RDWR | os.O_CREAT)
os.unlink("big")
for _ in range(200):
    os.write(number, bytes(1000000))
mapped = mmap.mmap(number, 200000000)
os.closerange(3, 100)
time.sleep(600)'""",
}


@pytest.mark.parametrize("how", DELETED)
def test_a_file_that_a_job_has_deleted_counts_for_as_long_as_the_job_has_it(
    agent: LocalAgent, how: str
) -> None:
    agent.stage(RUN, DELETED[how], disk_size_gb=0.1, grace_s=0.1)
    agent.call("start", run_id=RUN)
    found = agent.exit_of(RUN)
    assert found["reason"] == "disk-full"
    assert "the job has written 0.2 GB, its disk_size_gb is 0.1" in found["message"]


def test_memory_without_a_name_is_no_disk_use(agent: LocalAgent) -> None:
    script = (
        "import os; number = os.memfd_create('m'); os.write(number, bytes(9000000));"
        "open('/dev/shm/' + str(os.getpid()), 'wb').write(bytes(9000000));"
        "shared = os.open('/dev/shm/' + str(os.getpid()), os.O_RDONLY);"
        "os.unlink('/dev/shm/' + str(os.getpid()));"
        "print('ready', flush=True); import time; time.sleep(600)"
    )
    agent.stage(RUN, f'exec python3 -c "{script}"', disk_size_gb=0.001, grace_s=0.1)
    agent.call("start", run_id=RUN)
    wait_for(lambda: b"ready" in agent.path(RUN, "log").read_bytes(), "the memory")
    begun_s = agent.document(RUN, "beat.json")["elapsed_s"]
    wait_for(
        lambda: agent.document(RUN, "beat.json")["elapsed_s"] > begun_s + 11,
        "two measurements",
        30,
    )
    assert not agent.path(RUN, "exit.json").exists()
    agent.call("end", run_id=RUN, grace_s=0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk: run as root")
def test_a_job_that_fills_the_nodes_disk_is_ended_for_that_with_its_log_kept(
    agent: LocalAgent,
) -> None:
    runs = agent.root / "runs"
    runs.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=80m", "tmpfs", str(runs)], check=True)
    try:
        agent.run("job-unfilled-0-1", "sleep 600")
        agent.run(RUN, "echo begun; cat /dev/zero > big; echo full; sleep 600", grace_s=0.1)
        found = agent.exit_of(RUN)
        assert found["reason"] == "disk-full"
        assert agent.path(RUN, "log").read_text().startswith("begun\n")
        assert processes_of(RUN) == []
        assert agent.look("job-unfilled-0-1")["state"] == "running"
    finally:
        agent.end_all()
        subprocess.run(["umount", str(runs)], check=True)
