"""Jobs by names and patterns: many at once, only after a yes; waiting for them, and once more."""

import io
from datetime import UTC, datetime, timedelta

import pytest

from activities.db import tables
from tests.client.conftest import Desk
from tests.client.served import wait_until
from tests.client.test_follow import Workflows, running

JOB = "{name: NAME, type: training, resources: {gpus: cpu, cpu_count: 1}, workers: [{command: a}]}"
NOTEBOOK = JOB.replace("training", "notebook").replace("workers", "port: 8888, workers")


def _jobs(desk: Desk, *names: str, text: str = JOB) -> dict[str, str]:
    """The ids of new jobs by their names."""
    path = desk.folder / "job.yaml"
    found = {}
    for name in names:
        path.write_text(text.replace("NAME", name))
        found[name] = str(desk.json("submit", "job.yaml")["id"])
    return found


def _verbs(desk: Desk, job_id: str) -> list[str]:
    return [verb for verb, _ in desk.site.asked_of(job_id)][1:]


class Terminal(io.StringIO):
    """A person at stdin who types these lines."""

    def isatty(self) -> bool:
        return True


def test_a_pattern_changes_many_jobs_only_after_a_yes(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = _jobs(desk, "sweep-1", "sweep-2", "other")
    desk.site.set(tables.Job, _jobs(desk, "sweep-3")["sweep-3"], status="finished")
    refused = desk.baseload("cancel", "sweep-*")
    assert refused.code == 2
    assert "End 2 jobs (sweep-2, sweep-1) for good?" in refused.err
    assert "--yes" in refused.err
    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    assert desk.baseload("cancel", "sweep-*").code == 2
    assert [_verbs(desk, each) for each in jobs.values()] == [[], [], []]
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    assert desk.baseload("cancel", "sweep-*").code == 0
    assert [_verbs(desk, each) for each in jobs.values()] == [["cancel"], ["cancel"], []]


def test_several_names_need_no_question(desk: Desk) -> None:
    jobs = _jobs(desk, "a", "b", "c")
    done = desk.json("cancel", "a", "b", "a")
    assert [each["name"] for each in done["items"]] == ["a", "b"]
    assert [_verbs(desk, each) for each in jobs.values()] == [["cancel"], ["cancel"], []]
    for job_id in jobs.values():
        desk.site.set(tables.Job, job_id, status="finished")
    ended = desk.baseload("cancel", "[abc]", "--yes")
    assert (ended.code, "nothing to do" in ended.err) == (0, True), "all of them have ended"
    none = desk.baseload("cancel", "nothing-*")
    assert (none.code, "a name like 'nothing-*'" in none.err) == (2, True)


def test_lists_take_patterns_too(desk: Desk) -> None:
    jobs = _jobs(desk, "sweep-1", "other", "sweep-2")
    found = desk.json("ps", "sweep-*", jobs["other"])["items"]
    assert [each["name"] for each in found] == ["sweep-2", "other", "sweep-1"]
    shown = desk.json("show", "sweep-*")["items"]
    assert [each["name"] for each in shown] == ["sweep-2", "sweep-1"]
    assert desk.json("show", "other")["id"] == jobs["other"]
    assert desk.baseload("show", "other", "sweep-1").out.count("workflow") == 2


def test_a_pattern_means_the_jobs_that_a_command_is_for(desk: Desk) -> None:
    jobs = _jobs(desk, "nb-1", "nb-2", text=NOTEBOOK) | _jobs(desk, "nb-train")
    desk.site.set(tables.Job, jobs["nb-2"], status="stopped")
    assert desk.baseload("stop", "nb-*").code == 0
    assert desk.baseload("start", "nb-*").code == 0
    desk.site.set(tables.Job, jobs["nb-train"], status="failed")
    assert desk.baseload("rm", "nb-*", "--yes").code == 0
    assert [_verbs(desk, each) for each in jobs.values()] == [
        ["stop"],
        ["start_again", "remove"],
        ["start"],
    ]


def test_the_refusal_of_one_job_does_not_hold_up_the_others(desk: Desk) -> None:
    jobs = _jobs(desk, "a", "b")
    desk.site.set(tables.Job, jobs["a"], status="finished")
    ended = desk.baseload("cancel", jobs["a"], jobs["b"])
    assert (ended.code, "cannot be canceled" in ended.err) == (3, True)
    assert _verbs(desk, jobs["b"]) == ["cancel"]


def test_a_wait_ends_with_the_last_job_and_is_a_failure_if_one_did_not_finish(desk: Desk) -> None:
    jobs = _jobs(desk, "a", "b")
    desk.site.set(tables.Job, jobs["a"], status="finished")
    with running(desk, "wait", "a", "b") as command:
        wait_until(lambda: "waiting for b" in command.err, "it waits for what has not ended")
        Workflows(desk, tables.Job, jobs["b"]).becomes("failed", "exit code 3")
        ended = command.end()
    assert ended.code == 1
    assert "b: failed (exit code 3)" in ended.err
    assert "1 of 2 did not finish: b" in ended.err
    desk.site.set(tables.Job, jobs["b"], status="finished")
    assert desk.baseload("wait", "a", "b").code == 0


def test_a_wait_has_a_timeout_that_leaves_the_job(desk: Desk) -> None:
    jobs = _jobs(desk, "a")
    with running(desk, "wait", "a", "--timeout", "0s") as command:
        ended = command.end()
    assert (ended.code, "a: not ended after 0s" in ended.err) == (1, True)
    assert "a: not ended after 0 s" in desk.baseload("wait", "a", "--timeout", "0").err
    assert _verbs(desk, jobs["a"]) == []
    assert desk.baseload("wait", "a", "--timeout", "soon").code == 2


def test_a_wait_may_be_for_a_status_and_ends_with_the_job(desk: Desk) -> None:
    jobs = _jobs(desk, "a", text=NOTEBOOK)
    desk.site.set(tables.Job, jobs["a"], status="running")
    assert desk.baseload("wait", "a", "--for", "running").code == 0
    desk.site.set(tables.Job, jobs["a"], status="failed")
    ended = desk.baseload("wait", "a", "--for", "running")
    assert (ended.code, "ended without being running: a" in ended.err) == (1, True)
    unknown = desk.baseload("wait", "a", "--for", "runing")
    assert (unknown.code, "did you mean running?" in unknown.err) == (3, True)


def test_a_stop_may_wait_until_the_job_can_be_started_again(desk: Desk) -> None:
    jobs = _jobs(desk, "a", text=NOTEBOOK)
    with running(desk, "stop", "a", "--wait") as command:
        wait_until(lambda: "waiting for a" in command.err, "it waits")
        Workflows(desk, tables.Job, jobs["a"]).becomes("stopped")
        ended = command.end()
    assert (ended.code, "a: stopped" in ended.err) == (0, True)
    assert desk.baseload("start", "a").code == 0


def test_a_job_is_submitted_again_as_it_was(desk: Desk) -> None:
    (desk.folder / "train.py").write_text("print()")
    (desk.folder / "job.yaml").write_text(
        JOB.replace("NAME", "a")[:-1] + ", code: {path: .}, environment: {variables: {A: '1'}}}"
    )
    first = desk.json("submit", "job.yaml")
    desk.site.set(tables.Job, first["id"], status="failed")
    again = desk.json("retry", "a")
    assert again["id"] != first["id"]
    assert (again["code"], again["commands"]) == (first["code"], first["commands"])
    desk.site.set(tables.Upload, first["code"]["upload_id"], removed_at=datetime.now(UTC))
    gone = desk.baseload("retry", "a")
    assert (gone.code, "its code is not kept any more" in gone.err) == (1, True)


def test_an_array_shows_its_retries_and_its_jobs_are_started_canceled_and_submitted_again(
    desk: Desk,
) -> None:
    (desk.folder / "job.yaml").write_text(
        JOB.replace("NAME", "sweep")[:-1] + ", safety: {max_retries: 3}, array: [{LR: a}, {LR: b}]}"
    )
    desk.json("submit", "job.yaml")
    jobs = {each["name"]: each["id"] for each in desk.json("ps")["items"]}
    assert sorted(jobs) == ["sweep-0", "sweep-1"]
    until = datetime.now(UTC) + timedelta(minutes=5)
    reason = "worker 0: failed; waits 40 s before retry 3 of 3"
    desk.site.set(
        tables.Job, jobs["sweep-0"], status="waiting_for_resources", status_reason=reason,
        attempt=3, retries=3, retry_at=until,
    )  # fmt: skip
    desk.site.set(tables.Job, jobs["sweep-1"], status="running", attempt=3, retries=2)
    listed = desk.baseload("ps", "sweep-*").out
    assert "pausing before retry 3 of 3" in listed
    assert "running: retry 2 of 3" in listed
    shown = desk.baseload("show", "sweep-0").out
    assert reason in shown
    assert f"3 (retry 3 of 3 begins {until:%Y-%m-%d %H:%M:%S})" in shown
    assert "3 (retry 2 of 3)" in desk.baseload("show", "sweep-1").out

    assert desk.baseload("start", "sweep-*").code == 0
    again = desk.json("retry", "sweep-1")
    assert (again["name"], again["attempt"], again["retries"]) == ("sweep-1", 1, 0)
    assert sorted(again["environment"]["variables"]) == [
        "BASELOAD_ARRAY_INDEX", "BASELOAD_ARRAY_SIZE", "LR",
    ]  # fmt: skip
    assert desk.baseload("cancel", "sweep-*", "--yes").code == 0
    assert _verbs(desk, jobs["sweep-0"]) == ["start_again", "cancel"]
    assert _verbs(desk, jobs["sweep-1"]) == _verbs(desk, again["id"]) == ["cancel"]


def test_what_is_asked_of_a_job_is_said_and_with_wait_how_it_ended(desk: Desk) -> None:
    jobs = _jobs(desk, "a", "b") | _jobs(desk, "nb", text=NOTEBOOK)
    desk.site.set(tables.Job, jobs["a"], status="running")
    assert desk.baseload("cancel", "a").out == f"{jobs['a']}  a  canceling\n"
    told = desk.baseload("cancel", "a", "--discard").out
    assert told == f"{jobs['a']}  a  canceling, without its output\n"
    assert desk.baseload("stop", "nb").out == f"{jobs['nb']}  nb  stopping\n"
    desk.site.set(tables.Job, jobs["nb"], status="stopped")
    assert desk.baseload("start", "nb").out == f"{jobs['nb']}  nb  starting\n"
    with running(desk, "cancel", "b", "nb", "--wait") as command:
        wait_until(lambda: "waiting for b, nb" in command.err, "it waits, for what is stopped too")
        assert "b: canceling\n" in command.err
        for job_id in (jobs["b"], jobs["nb"]):
            Workflows(desk, tables.Job, job_id).becomes("canceled")
        ended = command.end()
    assert (ended.code, ended.out) == (
        0, f"{jobs['b']}  b  canceled\n{jobs['nb']}  nb  canceled\n",
    )  # fmt: skip
    assert desk.baseload("rm", "b").out == f"{jobs['b']}  b  removing\n"


ENDING = (
    "cancel", "stop", "start", "rm", "kill-all", "kill", "node rm", "node reboot", "region rm",
    "provider rm", "provider disable", "secret rm", "key rm", "profile rm",
)  # fmt: skip


@pytest.mark.parametrize("name", ENDING)
def test_every_command_that_ends_or_removes_takes_yes(desk: Desk, name: str) -> None:
    said = desk.baseload(*name.split(), "--help").out
    assert "--yes" in said
    assert "-y" in said


def test_a_question_that_nobody_can_answer_is_a_mistake_everywhere(desk: Desk) -> None:
    _jobs(desk, "a")
    for command, question in (
        ("kill-all", "End 1 job for good?"),
        ("kill lea-1", "End 1 machine?"),
    ):
        refused = desk.baseload(*command.split())
        assert refused.code == 2
        assert f"{question} Nobody can be asked here: say --yes" in refused.err
