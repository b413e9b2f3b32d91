"""The runner, with stand-ins for the programs: what it starts, restarts, ends and survives."""

import contextlib
import json
import os
import re
import signal
import socket
import threading
from pathlib import Path

import pytest

from tests.workers.conftest import Running
from workers.runner import lifecycle
from workers.runner.lifecycle import StackError, program_states
from workers.runner.process_records import orphaned_processes, read_record, start_ticks, wait_until
from workers.runner.stack import Backoff, FirstStart, Program, Stack
from workers.runner.supervisor import say


def test_up_starts_every_program_and_notes_pid_and_start_time(running: Running) -> None:
    assert running.up()
    for name in ("listener", "sleeper", "runner"):
        noted = json.loads((running.home / "run" / f"{name}.json").read_text())
        assert start_ticks(noted["pid"]) == noted["start_ticks"]
        assert noted["started_at"].endswith("Z")
    assert all(state.ready for state in program_states(running.plan()))


def test_up_on_a_running_stack_changes_nothing(running: Running) -> None:
    running.up()
    before = running.records()
    assert not running.up()
    assert running.records() == before


def test_a_killed_program_is_started_again_and_the_runner_says_so(running: Running) -> None:
    running.up()
    killed = running.record("sleeper")
    os.kill(killed.pid, signal.SIGKILL)

    def replaced() -> bool:
        now = read_record(running.home / "run", "sleeper")
        return now is not None and now.pid != killed.pid and now.alive

    assert wait_until(replaced, 60)
    assert "sleeper ended by signal 9" in running.log()


def test_a_program_that_cannot_be_noted_is_tried_again_until_it_can(running: Running) -> None:
    running.up()
    processes = len(orphaned_processes(str(running.home)))
    killed = running.record("sleeper")
    record = running.home / "run" / "sleeper.json"
    record.unlink()
    record.mkdir()  # A write fails there, as it would on a full disk.
    os.kill(killed.pid, signal.SIGKILL)
    assert wait_until(lambda: running.log().count("its record cannot be written") >= 2, 60)
    record.rmdir()
    assert wait_until(lambda: read_record(running.home / "run", "sleeper") is not None, 60)
    assert len(orphaned_processes(str(running.home))) == processes


def test_a_runner_whose_log_is_on_a_full_disk_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr("sys.stdout", full)
        for _ in range(3):
            say("temporal ended by signal 9")
        monkeypatch.undo()
        with contextlib.suppress(OSError):
            full.close()
    say("temporal ended by signal 15")
    assert capsys.readouterr().out.endswith("temporal ended by signal 15\n"), (
        "as soon as there is room"
    )


def test_who_is_attached_is_told_what_the_runner_does(running: Running) -> None:
    running.up()
    with lifecycle.attached(running.home, running.said.append):
        os.kill(running.record("sleeper").pid, signal.SIGKILL)
        assert wait_until(lambda: "sleeper ended by signal 9" in "".join(running.said), 60)


def test_down_ends_all_of_it_also_what_the_programs_left_behind(running: Running) -> None:
    running.up(running.plan_with_a_stubborn_program)
    records = [*running.records(), running.record("stubborn")]
    # The stubborn program and the child that ignores SIGTERM are one session of two.
    assert wait_until(lambda: len(running.record("stubborn").members()) == 2, 60)
    running.down()
    assert [record.name for record in records if record.members()] == []
    assert list((running.home / "run").glob("*.json")) == [running.home / "run" / "stack.json"]


def test_after_everything_was_killed_up_works_at_once(running: Running) -> None:
    running.up()
    before = running.records()
    for record in before:
        os.kill(record.pid, signal.SIGKILL)
    assert wait_until(lambda: not any(record.alive for record in before), 60)
    assert running.up()
    assert all(state.ready for state in program_states(running.plan()))
    assert {record.pid for record in running.records()}.isdisjoint(each.pid for each in before)
    assert not any(record.members() for record in before)


def test_after_the_runner_alone_was_killed_its_programs_are_found_and_ended(
    running: Running,
) -> None:
    running.up()
    runner, *programs = running.records()
    os.kill(runner.pid, signal.SIGKILL)
    running.down()
    assert not any(record.alive for record in (runner, *programs))


def test_a_program_without_a_record_is_found_by_its_mark(running: Running) -> None:
    running.up()
    records = running.records()
    os.kill(records[0].pid, signal.SIGKILL)
    (running.home / "run" / "listener.json").unlink()
    running.down()
    assert not any(record.alive for record in records)
    assert orphaned_processes(str(running.home)) == []


def test_a_record_of_a_pid_that_is_somebody_elses_by_now_ends_nothing(running: Running) -> None:
    running.up()
    running.down()
    stale = {"name": "sleeper", "pid": os.getpid(), "started_at": "2026-01-01T00:00:00Z"}
    (running.home / "run" / "sleeper.json").write_text(json.dumps({**stale, "start_ticks": 1}))
    running.down()
    assert not (running.home / "run" / "sleeper.json").exists()


def test_a_port_in_use_is_named_with_its_holder_before_anything_starts(running: Running) -> None:
    with socket.create_server(("127.0.0.1", running.port)), pytest.raises(StackError) as refused:
        running.up()
    words = str(refused.value)
    assert f"127.0.0.1:{running.port}" in words
    assert f"pid {os.getpid()}" in words
    assert "LISTENER_PORT=PORT" in words
    assert not (running.home / "run" / "listener.json").exists()


def test_of_two_ups_at_once_one_starts_and_the_other_uses_it(running: Running) -> None:
    outcomes: list[bool] = []
    both = [threading.Thread(target=lambda: outcomes.append(running.up())) for _ in range(2)]
    for each in both:
        each.start()
    for each in both:
        each.join()
    assert sorted(outcomes) == [False, True]


def test_a_program_that_never_gets_ready_is_named_with_the_end_of_its_log(
    running: Running,
) -> None:
    broken = Program(name="broken", command=("sh", "-c", "echo the cause; exit 3"))
    silent = Program(name="silent", command=("sleep", "9"), ready=running.plan().programs[0].ready)

    def plan() -> Stack:
        update = {
            "programs": (broken, silent),
            "ready_limit_s": 1.5,
            "backoff": Backoff(first_s=30),
        }
        return running.plan().model_copy(update=update)

    with pytest.raises(StackError) as refused:
        running.up(plan)
    words = str(refused.value)
    assert re.search(r"broken does not run .*the end of .*broken.log:\n {2}the cause", words)
    assert f"silent does not answer (tcp://127.0.0.1:{running.port})" in words


def test_what_a_first_start_left_half_made_is_discarded(running: Running, tmp_path: Path) -> None:
    half, marker = tmp_path / "database", tmp_path / "created"
    half.write_text("half")
    first = FirstStart(marker=marker, discard=(half,))

    def plan() -> Stack:
        listener, *others = running.plan().programs
        with_first = listener.model_copy(update={"bootstrap": first})
        return running.plan().model_copy(update={"programs": (with_first, *others)})

    running.up(plan)
    assert not half.exists()
    assert marker.exists()
    half.write_text("whole")
    running.down()
    running.up(plan)
    assert half.read_text() == "whole"


@pytest.mark.parametrize(
    ("failures", "delay_s"), [(1, 0.5), (2, 1), (3, 2), (6, 16), (7, 30), (99, 30)]
)
def test_restarts_back_off_to_half_a_minute(failures: int, delay_s: float) -> None:
    assert Backoff().delay_s(failures) == delay_s


def test_a_disk_without_room_is_said_before_anything_starts(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "DISK_NEEDED_MIB", 10**9)
    with pytest.raises(StackError, match=r"home has \d+ MiB of free disk, 1000000000 are needed"):
        running.up()
    assert list((running.home / "run").glob("*.json")) == []
