"""The room sees what is wrong with a job: its zeros mean something."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.chaos.job import RoomJob, counting, short_lines
from tests.chaos.kinds import KINDS
from tests.chaos.leftovers import beats, connections_left, folders_left, job_of
from tests.chaos.sessions import Ended, wrong_with
from tests.chaos.stack import PATIENCE_S, PatientPlatform, lose_patience
from tests.chaos.tally import MOST_MISSED, Tally
from tests.chaos.verdicts import CPU_SECOND_MICROCREDITS, Seen, notes, verdicts

SCRIPT = counting(3, 0.1)
ELAPSED_S = 7.5


def charge(begins: int, ends: int, attempt: int = 1) -> dict[str, Any]:
    details = {"from_s": begins, "through_s": ends, "attempt": attempt}
    amount = (ends - begins) * CPU_SECOND_MICROCREDITS
    return {"amount_microcredits": amount, "details": details}


def a_job(status: str = "finished", elapsed_s: float = ELAPSED_S) -> RoomJob:
    job = RoomJob("job-1", "plain", SCRIPT, 0.0)
    worker = {"elapsed_s": elapsed_s}
    charged = int(elapsed_s) * CPU_SECOND_MICROCREDITS
    job.row = {"status": status, "status_reason": None, "workers": [worker],
               "charged_microcredits": charged}  # fmt: skip
    return job


RIGHT = Seen(
    [("begin", 100.0), ("end", 107.4)],
    SCRIPT.text,
    [charge(0, 5), charge(5, 7)],
    ["0-1.tar.gz"],
)


def found(job: RoomJob, seen: Seen) -> set[str]:
    return {what for what, _ in verdicts(job, seen)}


def test_nothing_is_wrong_with_a_job_that_ran_once_and_was_billed_to_the_second() -> None:
    assert found(a_job(), RIGHT) == set()


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"ran": [*RIGHT.ran, ("begin", 108.0)]}, "doubled"),
        ({"ran": []}, "lost"),
        ({"ran": RIGHT.ran[:1]}, "lost"),
        ({"log": SCRIPT.text[:-1]}, "lost"),
        ({"log": SCRIPT.text * 2}, "lost"),
        ({"log": SCRIPT.text.replace(b"2", b"\0", 1)}, "lost"),
        ({"outputs": []}, "lost"),
        ({"outputs": ["0-1.tar.gz", "0-2.tar.gz"]}, "lost"),
        ({"charges": [charge(0, 5)]}, "billed"),
        ({"charges": [charge(0, 5), charge(0, 5), charge(5, 7)]}, "billed"),
        ({"charges": [charge(0, 5), charge(6, 7)]}, "billed"),
        ({"ran": [("begin", 100.0), ("end", 109.0)]}, "billed"),
    ],
)
def test_what_is_wrong_with_a_finished_job_is_found(change: dict[str, Any], what: str) -> None:
    assert what in found(a_job(), replace(RIGHT, **change))


def test_a_job_that_ended_as_it_may_not_is_lost() -> None:
    job = a_job("failed")
    assert found(job, RIGHT) == {"lost"}
    job.may("failed")
    assert found(job, RIGHT) == set()


def test_a_broken_off_job_has_the_seconds_and_the_log_that_its_disk_held() -> None:
    job = a_job("failed")
    job.breaks_off(7)
    job.least_log_bytes = 20
    cut_off = replace(RIGHT, ran=RIGHT.ran[:1], log=SCRIPT.text[:30])
    assert found(job, cut_off) == set()
    assert found(job, replace(cut_off, log=SCRIPT.text[:19])) == {"lost"}
    job.measured_s = 5
    assert found(job, cut_off) == {"billed"}


def test_attempts_that_were_broken_off_one_after_the_other_are_a_whole_log() -> None:
    job = a_job("canceled", 2.0)
    job.allowed, job.attempts = {"canceled"}, 2
    first, second = SCRIPT.text[: SCRIPT.text.index(b"line 3")], SCRIPT.text[:28]
    job.row["charged_microcredits"] = 3 * CPU_SECOND_MICROCREDITS
    bills = [charge(0, 1), charge(0, 2, attempt=2)]
    twice = Seen([("begin", 1.0), ("begin", 9.0)], first + second, bills)
    assert found(job, twice) == set()
    assert found(job, replace(twice, log=first + second[3:])) == {"lost"}


def test_a_discarded_output_that_is_stored_is_found() -> None:
    job = a_job("canceled")
    job.allowed, job.is_discarded = {"canceled"}, True
    assert found(job, replace(RIGHT, outputs=[])) == set()
    assert found(job, RIGHT) == {"left"}


def test_each_attempt_of_a_retried_job_is_billed_for_its_own_seconds_and_none_is_too_many() -> None:
    job = a_job(elapsed_s=7.5)
    job.retries, job.attempts = 1, 2
    job.row["charged_microcredits"] = 12 * CPU_SECOND_MICROCREDITS
    ran = [("begin", 10.0), ("fail", 15.1), ("begin", 20.0), ("end", 27.4)]
    bills = [charge(0, 5), charge(0, 7, attempt=2)]
    twice = Seen(ran, SCRIPT.text * 2, bills, ["0-2.tar.gz"])
    assert found(job, twice) == set()
    job.row["charged_microcredits"] = 10 * CPU_SECOND_MICROCREDITS
    assert found(job, replace(twice, charges=[charge(0, 3), bills[1]])) == {"billed"}
    job.row["charged_microcredits"] = 12 * CPU_SECOND_MICROCREDITS
    job.retries = 0
    job.attempts = 1
    assert "doubled" in found(job, twice)
    job.retries, job.attempts = 1, 3
    assert "doubled" in found(job, twice)


def test_a_session_that_breaks_off_says_why() -> None:
    def about(code: int | None, *, whole: bool, said: str) -> set[str]:
        return {what for what, _ in wrong_with(Ended("exec", code, whole, said))}

    assert about(0, whole=True, said="") == set()
    assert about(1, whole=False, said="baseload: the job has ended") == set()
    assert about(1, whole=False, said="") == {"lost"}
    assert about(0, whole=False, said="baseload: hello") == {"lost"}
    assert about(1, whole=False, said="Traceback (most recent call last)") == {"lost"}
    assert about(None, whole=False, said="waiting") == {"left"}


def test_a_connection_of_the_worker_to_the_api_is_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as api:
        url = f"http://127.0.0.1:{api.getsockname()[1]}"
        assert list(connections_left(os.getpid(), url)) == []
        with socket.create_connection(api.getsockname()):
            assert len(list(connections_left(os.getpid(), url))) == 1
        assert list(connections_left(None, url)) == []


def test_notes_that_a_power_cut_broke_off_are_left_out() -> None:
    assert notes("begin 1.50\nend") == [("begin", 1.5)]


def test_a_folder_of_a_run_is_left_behind_and_tells_its_last_beat(tmp_path: Path) -> None:
    run = tmp_path / "var/lib/baseload/runs/job-1-0-1"
    run.mkdir(parents=True)
    (run / "process.json").touch()
    (run / "beat.json").write_text('{"elapsed_s": 6.9}')
    assert len(list(folders_left("plain", tmp_path))) == 1
    assert job_of(run) == "job-1"
    assert beats(tmp_path) == {"job-1-0-1": 6}
    (run / "exit.json").touch()
    assert beats(tmp_path) == {}


def test_the_table_sums_what_was_found() -> None:
    tally = Tally()
    tally.rows["kill-worker"].times = 3
    tally.rows["power-cut"].times = 2
    tally.wrong("kill-worker", "lost", "a log")
    tally.wrong("power-cut", "lost", "a job")
    *_, sums = tally.table(60.0).splitlines()
    assert sums.split() == ["sum", "5", "0", "2", "0", "0", "0", "60"]
    assert not tally.is_clean


def test_a_fault_that_never_strikes_is_wrong() -> None:
    tally = Tally()
    tally.rows["kill-worker"].times, tally.rows["kill-worker"].missed = 1, 9
    tally.rows["host-key-changed"].missed = MOST_MISSED - 1
    tally.check_struck()
    assert tally.is_clean
    tally.rows["host-key-changed"].missed += 1
    tally.check_struck()
    assert tally.found == ["never: host-key-changed: was tried 5 times, and missed"]


def test_every_kind_of_fault_comes_in_rounds_but_the_longest() -> None:
    from tests.chaos import campaign

    assert campaign.MODULES
    assert len(KINDS) >= 30
    by_name_only = [kind.name for kind in KINDS.values() if not kind.often]
    assert by_name_only == ["away-for-ten-minutes"]


def test_short_lines_are_what_seq_prints() -> None:
    assert short_lines(11).text == b"1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n"


def test_a_room_that_closes_takes_no_other_room_its_patience() -> None:
    url, key = "http://[::1]:9", "key"
    closes = SimpleNamespace(platform=PatientPlatform(url, key))
    goes_on = SimpleNamespace(platform=PatientPlatform(url, key))
    lose_patience(closes)
    assert (closes.platform.patience_s, goes_on.platform.patience_s) == (0.0, PATIENCE_S)
