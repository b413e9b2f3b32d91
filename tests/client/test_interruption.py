"""An interrupted command that followed a job: what it says, and whether it ends the job."""

import io
import sys
from typing import Any

import pytest
from baseload.commands import submit
from baseload.errors import BaseloadError

JOB = {
    "id": "job-1", "name": "digits", "status": "running", "status_reason": None,
    "charged_microcredits": 0, "workers": [{"lease_id": "lea-1"}, {"lease_id": None}],
}  # fmt: skip
LEASE = {
    "id": "lea-1", "microcredits_per_hour": 2_500_000, "cost_microcredits": 1_250_000,
    "price_is_estimate": False, "provider_kind": "runpod",
}  # fmt: skip


class FakeSession:
    """An account with one job on a rented machine, and another machine that is not the job's."""

    def __init__(self, *, answers: bool = True) -> None:
        self.answers = answers
        self.said: list[str] = []
        self.asked: list[str] = []

    @property
    def screen(self) -> "FakeSession":
        return self

    def say(self, text: str) -> None:
        self.said.append(text)

    def get(self, _: str) -> dict[str, Any]:
        if not self.answers:
            raise BaseloadError("the API is away")
        return JOB

    def items(self, _: str, **__: Any) -> list[dict[str, Any]]:
        return [LEASE, LEASE | {"id": "lea-2"}]

    def post(self, path: str) -> dict[str, Any]:
        self.asked.append(path)
        return JOB | {"status": "canceled"}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def interrupted(
    monkeypatch: pytest.MonkeyPatch, answer: str | None, *, answers: bool = True
) -> FakeSession:
    monkeypatch.setattr(sys, "stdin", io.StringIO() if answer is None else Terminal(answer))
    session = FakeSession(answers=answers)
    submit._ask_to_end(session, JOB)  # type: ignore[arg-type]
    return session


def test_it_says_what_the_job_runs_on_and_what_that_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    session = interrupted(monkeypatch, None)
    assert "on 1 machine of runpod: 2.50 credits/h, 1.25 credits until now" in session.said[0]
    assert "goes on: baseload logs -f job-1" in session.said[-1]
    assert session.asked == []


def test_the_job_ends_if_a_person_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    session = interrupted(monkeypatch, "y\n")
    assert session.asked == ["/v1/jobs/job-1/cancel"]
    assert "canceled" in session.said[-1]


@pytest.mark.parametrize("answer", ["n\n", "\n", ""])
def test_the_job_goes_on_otherwise(monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    session = interrupted(monkeypatch, answer)
    assert session.asked == []
    assert "goes on" in session.said[-1]


def test_costs_that_are_not_known_are_not_taken_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    session = interrupted(monkeypatch, None, answers=False)
    assert "not known" in session.said[0]
