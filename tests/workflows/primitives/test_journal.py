"""The steps of a lifecycle in virtual time: their numbers, and what a refused one leaves."""

import asyncio
from collections.abc import Callable

import pytest
from temporalio import workflow

from tests.simulation.contracts import Attempt, Sleep, Steps
from tests.simulation.engine.engine import Limits
from tests.workflows.primitives.played import ID, Part, played
from workflows.contracts.events import Event
from workflows.contracts.lifecycles import JobChanges, Record, Recorded
from workflows.primitives.journal import STALE, Journal

CHANGES = JobChanges()
SHORT = Limits(suggested_events=5)


class Row:
    """The row of one resource: it keeps each step, and answers as it is told to."""

    def __init__(self, *answers: Recorded, seconds: tuple[float, ...] = ()) -> None:
        self.steps: list[Record] = []
        self._answers = list(answers)
        self._seconds = list(seconds)

    def record(self, _: Attempt, step: Record) -> Recorded | Steps:
        answer = self._answers.pop(0) if self._answers else Recorded(applied=True)
        if self._seconds:
            return self._later(step, answer, self._seconds.pop(0))
        self.steps.append(step)
        return answer

    def _later(self, step: Record, answer: Recorded, seconds: float) -> Steps:
        yield Sleep(seconds)
        self.steps.append(step)
        return answer


def journal() -> Journal:
    """Of a job whose last run has written four steps."""
    return Journal("job-1", "acc-1", 4, "it waited")


def test_steps_are_numbered_on_and_keep_what_they_are_given() -> None:
    row = Row()
    placed = Event(type="job.queued", message="no place")

    async def story() -> None:
        written = journal()
        await written.write("queued", CHANGES, placed, reason="no place")
        await written.write("running", CHANGES)
        assert (written.sequence, written.status, written.reason) == (6, "running", None)

    engine = played(story, {"record": row.record})
    assert engine.describe(ID).status == "completed"
    first, second = row.steps
    assert (first.resource_id, first.account_id) == ("job-1", "acc-1")
    assert [(one.sequence, one.status, one.status_reason) for one in row.steps] == [
        (5, "queued", "no place"),
        (6, "running", None),
    ]
    assert (first.events, second.events) == ((placed,), ())
    assert first.changes == CHANGES
    assert first.run_id == engine.describe(ID).run_id
    assert first.history_length > 0
    assert first.at <= second.at <= engine.now()


def test_steps_of_two_writers_are_recorded_one_after_the_other() -> None:
    row = Row(seconds=(1.5, 0.1))

    async def story() -> None:
        written = journal()
        await asyncio.gather(
            written.write("queued", CHANGES, reason="first"),
            written.write("queued", CHANGES, reason="second"),
        )

    played(story, {"record": row.record})
    assert [(one.sequence, one.status_reason) for one in row.steps] == [(5, "first"), (6, "second")]


def test_a_step_that_is_not_confirmed_leaves_status_and_reason() -> None:
    row = Row(Recorded(applied=True), Recorded(applied=False, confirmed=False))
    told: list[object] = []

    async def story() -> None:
        written = journal()
        await written.write("queued", CHANGES, reason="no place")
        recorded = await written.write("running", CHANGES, reason="placed")
        told.extend([recorded.confirmed, written.status, written.reason, written.sequence])
        told.append(workflow.get_current_details())

    engine = played(story, {"record": row.record})
    assert told == [False, "queued", "no place", 6, "**queued** since step 6\n\nno place"]
    assert engine.describe(ID).search_attributes["ResourceStatus"] == "queued"


def test_what_a_workflow_shows_is_its_last_step() -> None:
    told: list[str] = []

    async def story() -> None:
        written = journal()
        await written.write("queued", CHANGES, reason="no place")
        await written.write("queued", CHANGES, reason="no money")
        told.append(workflow.get_current_details())
        await written.write("running", CHANGES)
        told.append(workflow.get_current_details())

    engine = played(story, {"record": Row().record})
    assert told == ["**queued** since step 6\n\nno money", "**running** since step 7"]
    shown = engine.history(ID).count("UpsertWorkflowSearchAttributes")
    assert shown == 2, "one for each status"


async def _writes(written: Journal) -> None:
    await written.write("running", CHANGES)


async def _looks(written: Journal) -> None:
    await written.stop_if_behind(9)


async def _looks_at_its_own_step(written: Journal) -> None:
    await written.stop_if_behind(4)


@pytest.mark.parametrize("act", [_writes, _looks])
def test_a_run_whose_row_is_ahead_goes_no_further(act: Callable[[Journal], object]) -> None:
    row = Row(Recorded(applied=False, is_stale=True, sequence=9))
    told: list[str] = []

    async def story() -> None:
        await act(journal())  # type: ignore[misc]
        told.append("went on")

    engine = played(story, {"record": row.record})
    assert told == []
    shown = engine.describe(ID)
    assert (shown.status, shown.search_attributes["ResourceStatus"]) == ("running", STALE)


def test_a_run_whose_row_has_its_own_step_goes_on() -> None:
    async def story() -> None:
        await _looks_at_its_own_step(journal())

    assert played(story).describe(ID).status == "completed"


def continued(next_run: Part | None, limits: Limits, told: list[str]) -> bool:
    """Whether a loop has begun a new run, which it might while a signal is being handled."""
    runs: list[str] = []

    async def is_busy() -> None:
        await workflow.sleep(30)
        told.append("handled")

    async def story() -> None:
        runs.append(workflow.info().run_id)
        workflow.set_signal_handler("hear", is_busy)
        written = journal()
        if next_run is not None:
            written.next_run = lambda: next_run
        await workflow.sleep(10)
        await written.continue_when_long()
        told.append("went on")
        await workflow.wait_condition(workflow.all_handlers_finished)

    engine = played(story, limits=limits, signals={"hear": 1})
    assert engine.describe(ID).status == "completed"
    return engine.describe(ID).run_id not in runs


def test_a_long_run_continues_as_new_when_its_handlers_have_ended() -> None:
    told: list[str] = []
    assert continued(Part(number=2), SHORT, told)
    assert told == ["handled"]


@pytest.mark.parametrize(
    ("next_run", "limits"), [(None, SHORT), (Part(number=2), Limits())], ids=["busy", "short"]
)
def test_a_run_that_is_short_or_cannot_resume_now_goes_on(
    next_run: Part | None, limits: Limits
) -> None:
    told: list[str] = []
    assert not continued(next_run, limits, told)
    assert "went on" in told
