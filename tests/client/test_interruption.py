"""An interrupted command that followed a job: what it says, and whether it ends the job."""

import asyncio
import io
import os
import pty
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from baseload.commands import submit
from baseload.errors import BaseloadError

from activities.db import tables
from tests.activities.cloud_rows import add_lease
from tests.client.conftest import Desk
from tests.client.served import wait_until
from tests.client.test_follow import JOB_FILE, Workflows, running

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


def on_a_rented_machine(desk: Desk, job: Workflows) -> None:
    """Let the job run on a machine that was leased an hour ago for 2.50 credits an hour."""
    region_id = asyncio.run(desk.person.region())
    began_at = datetime.now(UTC) - timedelta(hours=1)
    with desk.site.database.write() as session:
        region = session.get_one(tables.Region, region_id)
        region.provider_kind = "runpod"
        lease = add_lease(
            session, region, "nod-1", status="ready", began_at=began_at, created_at=began_at,
            microcredits_per_hour=2_500_000,
        )  # fmt: skip
        row = session.get_one(tables.Job, job.id)
        assignment = {"worker": 0, "lease_id": lease.id}
        row.workers = [{"index": 0, "status": "running", "assignment": assignment}]
    job.becomes("running")


@pytest.mark.parametrize(("answer", "verbs"), [("y", ["start", "cancel"]), ("n", ["start"])])
def test_at_a_terminal_the_answer_decides_whether_the_job_ends(
    desk: Desk, answer: str, verbs: list[str]
) -> None:
    (desk.folder / "job.yaml").write_text(JOB_FILE)
    ours, theirs = pty.openpty()
    try:
        with running(desk, "submit", "job.yaml", "--follow", stdin=theirs) as command:
            wait_until(lambda: desk.site.rows(tables.Job), "a job was submitted")
            job = Workflows(desk, tables.Job, desk.site.rows(tables.Job)[0].id)
            on_a_rented_machine(desk, job)
            job.prints("epoch 1\n")
            assert command.line() == "epoch 1"
            command.interrupt()
            wait_until(lambda: "End digits?" in command.err, "it asks whether the job ends")
            os.write(ours, f"{answer}\n".encode())
            ended = command.end()
    finally:
        os.close(ours)
        os.close(theirs)
    assert ended.code == 130
    assert "on 1 machine of runpod: 2.50 credits/h, 2.5" in ended.err
    assert ("goes on" in ended.err) is (answer == "n")
    assert [verb for verb, _ in desk.site.asked_of(job.id)] == verbs
