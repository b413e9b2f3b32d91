"""How a job ends, by what it was asked and what has happened: the decision alone, in order."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio import workflow
from temporalio.exceptions import ApplicationError, CancelledError

from tests.workflows.fake_world import node_address
from workflows.contracts.errors import JOB_ENDED
from workflows.contracts.jobs import (
    EndRequest,
    Exit,
    JobRequest,
    WorkerAssignment,
    WorkerProgress,
)
from workflows.contracts.statuses import JobStatus, JobType, WorkerStatus
from workflows.jobs.termination import Termination
from workflows.jobs.worker import Worker

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
WANTED = EndRequest(reason="asked for by usr-1")
REMOVED = EndRequest(reason="nod-1 is removed", code="node-removed")
HAS_FAILED = ApplicationError("exit code 1", type=JOB_ENDED)
Act = Callable[[Termination], object]


@pytest.fixture(autouse=True)
def at_noon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workflow, "now", lambda: NOW)
    monkeypatch.setattr(workflow, "patched", lambda _: True)


def termination(**changes: Any) -> Termination:
    return Termination(
        JobRequest(
            job_id="job-1", account_id="acc-1", project_id="prj-1", name="digits",
            type=JobType.TRAINING, **changes,
        )
    )  # fmt: skip


def worker(code: int | None = 0, *, elapsed_s: float = 90.5, began: datetime = NOW) -> Worker:
    """One whose command has ended with this code; None: with its machine."""
    status = WorkerStatus.LOST if code is None else WorkerStatus.EXITED
    exit_ = None if code is None else Exit(exit_code=code, reason="exited")
    return Worker(
        "job-1",
        1,
        WorkerProgress(
            index=0, status=status, exit=exit_, elapsed_s=elapsed_s, started_at=began,
            run_id="job-1-0-1", assignment=WorkerAssignment(worker=0, node=node_address()),
        ),
    )  # fmt: skip


CANCELS: Act = lambda it: it.cancel(WANTED)  # noqa: E731
STOPS: Act = lambda it: it.stop(WANTED, is_service=True)  # noqa: E731
STOPS_NO_SERVICE: Act = lambda it: it.stop(WANTED, is_service=False)  # noqa: E731
IS_REMOVED: Act = lambda it: it.stop(REMOVED, is_service=False)  # noqa: E731
LOSES: Act = lambda it: it.lose_machine("nod-1 is lost")  # noqa: E731
LEAVES: Act = lambda it: it.reschedule("nod-1 ends")  # noqa: E731
FAILS: Act = lambda it: it.decide(HAS_FAILED)  # noqa: E731
BREAKS: Act = lambda it: it.decide(ApplicationError("no disk", type="Refused"))  # noqa: E731
IS_CANCELED_IN_TEMPORAL: Act = lambda it: it.decide(CancelledError("canceled"))  # noqa: E731
KEEPS_FILES: Act = lambda it: setattr(it, "keeps_files", True)  # noqa: E731
DECIDES: Act = lambda it: it.decide()  # noqa: E731

WAITS = JobStatus.WAITING_FOR_RESOURCES
FINISHED, FAILED, CANCELED, STOPPED = (
    JobStatus.FINISHED,
    JobStatus.FAILED,
    JobStatus.CANCELED,
    JobStatus.STOPPED,
)
ASKED = "asked for by usr-1"
LOST_ONCE = "nod-1 is lost; restarts (1 of 3)"
RESCHEDULED = "nod-1 ends; is rescheduled on other nodes"
RETRIED = "exit code 1; waits 10 s before retry 1 of 2"


@pytest.mark.parametrize(
    ("acts", "outcome", "reason"),
    [
        ([CANCELS, DECIDES], CANCELED, ASKED),
        ([STOPS, DECIDES], STOPPED, ASKED),
        ([STOPS_NO_SERVICE, DECIDES], CANCELED, ASKED),
        ([IS_REMOVED, DECIDES], FAILED, "nod-1 is removed"),
        ([LOSES, DECIDES], WAITS, LOST_ONCE),
        ([LEAVES, DECIDES], WAITS, RESCHEDULED),
        # The first request wins,
        ([CANCELS, LOSES, LEAVES, DECIDES], CANCELED, ASKED),
        ([IS_REMOVED, LOSES, DECIDES], FAILED, "nod-1 is removed"),
        ([LEAVES, LOSES, DECIDES], WAITS, RESCHEDULED),
        ([LOSES, LEAVES, DECIDES], WAITS, LOST_ONCE),
        # but a cancellation replaces a stop, and a person's request the next attempt.
        ([STOPS, CANCELS, DECIDES], CANCELED, ASKED),
        ([CANCELS, STOPS, DECIDES], CANCELED, ASKED),
        ([LOSES, CANCELS, DECIDES], CANCELED, ASKED),
        ([LEAVES, STOPS, DECIDES], STOPPED, ASKED),
        ([LEAVES, IS_REMOVED, DECIDES], WAITS, RESCHEDULED),
        # What has failed by itself is tried again; a person's request decides even then.
        ([FAILS], WAITS, RETRIED),
        ([LEAVES, FAILS], WAITS, RESCHEDULED),
        ([BREAKS], FAILED, "no disk"),
        ([KEEPS_FILES, BREAKS], STOPPED, "no disk"),
        ([IS_CANCELED_IN_TEMPORAL], CANCELED, "canceled in Temporal"),
        ([LOSES, IS_CANCELED_IN_TEMPORAL], CANCELED, "canceled in Temporal"),
    ],
)
def test_a_job_ends_as_it_was_asked_or_by_what_has_happened(
    acts: list[Act], outcome: JobStatus, reason: str
) -> None:
    it = termination(max_retries=2)
    for act in acts:
        act(it)
    assert (it.outcome, it.reason) == (outcome, reason)
    assert it.will_restart is (outcome is WAITS)


@pytest.mark.parametrize(
    ("codes", "is_service", "acts", "outcome", "reason"),
    [
        ([0, 0], False, [], FINISHED, None),
        ([0], True, [], STOPPED, "its command ended"),
        ([0, 1], False, [], WAITS, None),
        ([1], False, [LEAVES], WAITS, None),
        ([1], False, [CANCELS], CANCELED, ASKED),
        ([None], True, [], WAITS, None),
        ([None], False, [], WAITS, None),
    ],
)
def test_a_job_whose_commands_have_all_ended_ends_by_their_exits(
    codes: list[int | None],
    is_service: bool,
    acts: list[Act],
    outcome: JobStatus,
    reason: str | None,
) -> None:
    it = termination(max_retries=2)
    for act in acts:
        act(it)
    it.conclude([worker(code) for code in codes], is_service=is_service)
    assert it.outcome is outcome
    assert it.reason == reason or outcome is WAITS
    assert it.is_retried is (outcome is WAITS and not is_service)


@pytest.mark.parametrize(
    ("act", "limits", "reason"),
    [
        (LOSES, {"max_restarts": 2}, "nod-1 is lost; has restarted 2 times, which is the limit"),
        (LOSES, {"max_restarts": 0}, "nod-1 is lost; has restarted 0 times, which is the limit"),
        (FAILS, {"max_retries": 1}, "exit code 1; was tried again 1 time, which is the limit"),
        (FAILS, {"max_retries": 0}, "exit code 1"),
    ],
)
def test_a_job_goes_on_as_often_as_its_limit_says(
    act: Act, limits: dict[str, int], reason: str
) -> None:
    it = termination(**limits)
    for _ in range(max(limits.values())):
        act(it)
        it.reconsider() if it.request is None else it.decide()
        assert it.outcome is WAITS
        it.start_next_attempt([worker()])
    act(it)
    if it.request is not None:
        it.decide()
    assert it.outcome is FAILED
    assert str(it.reason).startswith(reason)


@pytest.mark.parametrize(
    ("act", "counts"),
    [(LOSES, (1, 0, 0)), (FAILS, (0, 1, 0)), (LEAVES, (0, 0, 1))],
    ids=["restart", "retry", "reschedule"],
)
def test_restarts_retries_and_reschedules_are_counted_apart(
    act: Act, counts: tuple[int, int, int]
) -> None:
    it = termination(max_retries=2)
    act(it)
    if it.outcome is not WAITS:
        it.decide()
    reason = it.reason
    assert (it.next_restarts, it.next_retries, it.next_ran_s([worker()])) == (*counts[:2], 90)
    it.start_next_attempt([worker(elapsed_s=30), worker()])
    assert (it.restarts, it.retries, it.reschedules) == counts
    assert (it.ran_s, it.before, it.request) == (90, reason, None)
    assert (it.outcome, it.reason) == (FINISHED, None)


def test_a_job_that_a_person_starts_again_counts_anew() -> None:
    it = termination(max_retries=2)
    FAILS(it)
    it.start_next_attempt([worker()])
    STOPS(it)
    it.decide()
    assert (it.next_restarts, it.next_retries, it.next_ran_s([worker()])) == (0, 1, 90)
    it.start_next_attempt([worker()])
    assert (it.restarts, it.retries, it.reschedules, it.ran_s, it.before) == (0, 0, 0, 0, None)


def test_a_request_during_the_teardown_replaces_the_next_attempt() -> None:
    for act, outcome in ((CANCELS, CANCELED), (STOPS, STOPPED), (LEAVES, WAITS)):
        it = termination()
        LOSES(it)
        it.decide()
        act(it)
        it.reconsider()
        assert it.outcome is outcome


def test_a_cancellation_during_the_teardown_replaces_a_stop_and_no_other_end() -> None:
    it = termination()
    STOPS(it)
    it.decide()
    CANCELS(it)
    it.reconsider()
    assert it.outcome is CANCELED
    failed = termination()
    BREAKS(failed)
    CANCELS(failed)
    failed.reconsider()
    assert (failed.outcome, failed.reason) == (FAILED, "no disk")


def test_a_request_that_comes_after_the_next_attempt_was_decided_is_kept() -> None:
    it = termination()
    LOSES(it)
    it.decide()
    CANCELS(it)
    it.start_next_attempt([worker()])
    assert it.request == WANTED
    assert it.restarts == 1


@pytest.mark.parametrize(
    ("act", "word"), [(LOSES, "restarted"), (LEAVES, "rescheduled"), (FAILS, "tried again")]
)
def test_no_attempt_follows_one_that_was_not_seen_to_end(act: Act, word: str) -> None:
    it = termination(max_retries=2)
    act(it)
    it.refuse_next_attempt(3)
    assert it.outcome is FAILED
    assert f"is not {word}, because the end of worker 3 could not be confirmed" in str(it.reason)


def test_an_unconfirmed_end_changes_nothing_for_a_job_that_does_not_go_on() -> None:
    for act in (CANCELS, BREAKS):
        it = termination()
        act(it)
        if it.outcome is FINISHED:
            it.decide()
        before = it.outcome, it.reason
        it.refuse_next_attempt(3)
        assert (it.outcome, it.reason) == before


def test_a_second_cancellation_may_discard_the_output() -> None:
    it = termination()
    CANCELS(it)
    assert not it.discards
    it.cancel(EndRequest(reason="again"))
    assert it.request == WANTED
    it.cancel(EndRequest(reason="again", discards=True))
    assert it.discards
    assert it.request == WANTED.model_copy(update={"discards": True})


def test_what_is_asked_is_told_apart() -> None:
    expected = {
        CANCELS: (True, False, False, False),
        STOPS: (False, False, False, True),
        LEAVES: (False, True, False, False),
        FAILS: (False, False, True, False),
    }
    for act, told in expected.items():
        it = termination(max_retries=2)
        assert not it.is_asked
        act(it)
        assert it.is_asked
        assert (it.is_canceled, it.is_rescheduled, it.is_retried, it.stops) == told


@pytest.mark.parametrize(
    ("acts", "kind", "message"),
    [
        ([CANCELS, DECIDES], "job.canceled", ASKED),
        ([LOSES, DECIDES], "job.restarting", LOST_ONCE),
        ([LEAVES, DECIDES], "job.rescheduled", RESCHEDULED),
        ([BREAKS], "job.failed", "no disk"),
        (
            [KEEPS_FILES, BREAKS],
            "job.stopped",
            "no disk; it is stopped, and can be started again with its files",
        ),
        ([STOPS, DECIDES], "job.stopped", ASKED),
        ([lambda it: it.conclude([], is_service=False)], "job.finished", "finished"),
    ],
)
def test_the_event_of_an_outcome_says_why(acts: list[Act], kind: str, message: str) -> None:
    it = termination()
    it.has_stored_files = True
    for act in acts:
        act(it)
    event = it.event()
    assert (event.type, event.message) == (kind, message)
    assert event.details == ({"reschedules": 1} if kind == "job.rescheduled" else {})


def test_a_retry_waits_for_its_pause_and_then_says_which_it_is() -> None:
    it = termination(max_retries=2)
    FAILS(it)
    it.plan_pause()
    assert it.retry_at == NOW + timedelta(seconds=10)
    it.start_next_attempt([worker()])
    assert it.pause_left() == timedelta(seconds=10)
    it.end_pause()
    assert it.before == "exit code 1; retry 1 of 2"
    assert it.pause_left() == timedelta(0)


def test_a_pause_can_be_skipped_and_is_a_retrys_alone() -> None:
    it = termination(max_retries=2)
    it.skip_pause()
    assert it.retry_at is None
    LOSES(it)
    it.decide()
    it.plan_pause()
    assert it.retry_at is None
    again = termination(max_retries=2)
    FAILS(again)
    again.plan_pause()
    again.skip_pause()
    assert again.retry_at == NOW


@pytest.mark.parametrize(
    ("limit_s", "ran_s", "left_s"), [(None, 0, None), (100, 0, 40), (100, 30, 10), (100, 40, 0)]
)
def test_a_job_may_run_for_so_long_in_all_attempts(
    limit_s: int | None, ran_s: int, left_s: int | None
) -> None:
    it = termination(max_duration_s=limit_s)
    it.ran_s = ran_s
    minute = NOW - timedelta(seconds=60)
    workers = [worker(began=NOW), worker(began=minute)]
    assert it.time_left(workers) == (None if left_s is None else timedelta(seconds=left_s))
    end = it.end_of_duration(workers)
    assert (end is not None) is (left_s == 0)
    if end is not None:
        told = (end.reason, end.code)
        assert told == ("has run for 100 s (safety.max_duration_s)", "max-duration")


def test_time_that_nothing_ran_is_not_counted() -> None:
    assert termination(max_duration_s=100).time_left([]) is None


def test_what_the_row_keeps_of_an_end_is_what_a_later_run_goes_on_with() -> None:
    for acts, stops in (([CANCELS], False), ([STOPS], True), ([BREAKS], False)):
        it = termination()
        for act in acts:
            act(it)
        kept = it.progress(removes=True)
        assert kept is not None
        assert (kept.stops, kept.removes) == (stops, True)
        wanted = EndRequest(reason="no disk", code="failed") if BREAKS in acts else WANTED
        assert kept.request == wanted
    assert termination().progress(removes=True) is None
