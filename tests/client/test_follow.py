"""Following: a job to its end, a node to where it is wanted, events as they happen.

The commands are real processes; the test plays the workflows that would write the rows.
"""

import asyncio
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from activities.db import tables
from activities.db.ids import new_id
from activities.settings import settings
from activities.storage.log_times import LogTimes
from activities.storage.logs import log_store
from tests.api.http_server import host_key
from tests.api.running_jobs import lease_its_machine, running_job
from tests.client.conftest import Desk
from tests.client.served import Ended, wait_until
from workflows.contracts.jobs import run_id

JOB_FILE = """\
name: digits
type: training
resources: {gpus: cpu, cpu_count: 1}
workers: [{command: one}]
"""


@dataclass
class Command:
    """A command that runs: stdout line by line, stderr in a file."""

    process: "subprocess.Popen[str]"
    told: Path

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    @property
    def err(self) -> str:
        return self.told.read_text()

    def end(self) -> Ended:
        """Its exit code, what is left of stdout, and all of stderr."""
        assert self.process.stdout is not None
        rest = self.process.stdout.read()
        return Ended(self.process.wait(20), rest, self.err)

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)


@contextmanager
def running(desk: Desk, *arguments: str, stdin: int = subprocess.DEVNULL) -> Iterator[Command]:
    told = desk.folder.parent / "stderr"
    with (
        told.open("w") as err,
        subprocess.Popen(
            # A shell that runs the tests in the background has them ignore interrupts.
            ["env", "--default-signal=INT", sys.executable, "-m", "baseload", *arguments],
            cwd=desk.folder, stdin=stdin, stdout=subprocess.PIPE, stderr=err, text=True,
        ) as process,
    ):  # fmt: skip
        try:
            yield Command(process, told)
        finally:
            process.kill()


class Workflows:
    """Writes what the workflow of one resource would record."""

    def __init__(self, desk: Desk, table: type[tables.LifecycleRow], resource_id: str) -> None:
        self._desk = desk
        self._table = table
        self.id = resource_id
        self._sequence = 0

    def becomes(self, status: str, reason: str | None = None) -> None:
        self._desk.site.set(self._table, self.id, status=status, status_reason=reason)
        self._sequence += 1
        self._desk.site.write(
            tables.EventRow(
                id=new_id("evt"),
                account_id=self._desk.person.account_id,
                resource_id=self.id,
                sequence=self._sequence,
                type=f"thing.{status}",
                message=f"it is {status}",
                details={},
                at=datetime.now(UTC),
            )
        )

    def waits_for(self, detail: str, *, ever: bool) -> None:
        refusal = {"offer_id": "nod-1", "region_id": None, "code": "cpus", "detail": detail}
        self._desk.site.set(
            self._table,
            self.id,
            status="waiting_for_resources",
            placement_refusals=[{**refusal, "ever": ever}],
        )

    def prints(self, text: str, worker: int = 0) -> None:
        logs = log_store(settings().storage)
        run = run_id(self.id, worker, 1)
        logs.append(run, logs.length(run), text.encode())


@pytest.fixture
def job_file(desk: Desk) -> str:
    (desk.folder / "job.yaml").write_text(JOB_FILE)
    return "job.yaml"


def _submitted(desk: Desk) -> Workflows:
    wait_until(lambda: desk.site.rows(tables.Job), "a job was submitted")
    (row,) = desk.site.rows(tables.Job)
    return Workflows(desk, tables.Job, row.id)


def test_a_followed_job_prints_live_and_ends_with_its_end(desk: Desk, job_file: str) -> None:
    with running(desk, "submit", job_file, "--follow") as command:
        job = _submitted(desk)
        job.becomes("running")
        job.prints("epoch 1\nepo")
        assert command.line() == "epoch 1", "while the job runs"
        job.prints("ch 2 ä\n")
        desk.site.set(tables.Job, job.id, charged_microcredits=1_500_000)
        job.becomes("finished")
        ended = command.end()
    assert ended.code == 0
    assert ended.out == "epoch 2 ä\n"
    assert "digits: running" in ended.err
    assert ended.err.splitlines()[-1] == "digits: finished, charged 1.50 credits"
    assert "\x1b" not in ended.out + ended.err


@pytest.mark.parametrize("verb", ["submit", "logs"])
@pytest.mark.parametrize(
    ("ever", "words"), [(True, "waits"), (False, "no machine here can ever run it")]
)
def test_a_followed_job_that_waits_says_why_and_when_that_changes(
    desk: Desk, job_file: str, verb: str, ever: bool, words: str
) -> None:
    if verb == "logs":
        desk.baseload("submit", job_file)
    command = ("submit", job_file, "--follow") if verb == "submit" else ("logs", "-f", "digits")
    with running(desk, *command) as following:
        job = _submitted(desk)
        job.waits_for("machine-1: asked 64 CPUs, 2 there", ever=ever)
        told = f"digits: {words}: machine-1: asked 64 CPUs, 2 there"
        wait_until(lambda: told in following.err, "it says why")
        job.waits_for("machine-1: asked 64 CPUs, 8 there", ever=ever)
        wait_until(lambda: "8 there" in following.err, "it says what is new")
        job.becomes("canceled")
        ended = following.end()
    assert ended.err.count("2 there") == 1


@pytest.mark.parametrize("status", ["failed", "canceled", "stopped"])
def test_a_followed_job_that_does_not_finish_is_a_failure(
    desk: Desk, job_file: str, status: str
) -> None:
    with running(desk, "submit", job_file, "--follow") as command:
        job = _submitted(desk)
        job.prints("no newline at the end")
        job.becomes(status, "worker 0: exit code 3")
        ended = command.end()
    assert ended.code == 1
    assert ended.out == "no newline at the end"
    assert f"digits: {status} (worker 0: exit code 3), charged 0.00 credits" in ended.err
    assert ended.err.count("exit code 3") == 1


def test_a_followed_job_as_json_is_one_document_on_stdout(desk: Desk, job_file: str) -> None:
    with running(desk, "submit", job_file, "--follow", "--json") as command:
        job = _submitted(desk)
        job.prints("hello\n")
        job.becomes("finished")
        ended = command.end()
    assert ended.code == 0
    assert json.loads(ended.out)["status"] == "finished"
    assert "hello\n" in ended.err


def test_interrupted_it_leaves_the_job_running_and_says_so(desk: Desk, job_file: str) -> None:
    with running(desk, "submit", job_file, "--follow") as command:
        job = _submitted(desk)
        job.prints("epoch 1\n")
        assert command.line() == "epoch 1"
        command.interrupt()
        ended = command.end()
    assert ended.code == 130
    assert f"goes on: baseload logs -f {job.id}" in ended.err
    assert [verb for verb, _ in desk.site.asked_of(job.id)] == ["start"]


@pytest.mark.parametrize(("status", "code"), [("finished", 0), ("failed", 1), ("canceled", 1)])
def test_followed_logs_end_as_a_followed_submission_does(
    desk: Desk, job_file: str, status: str, code: int
) -> None:
    desk.baseload("submit", job_file)
    job = _submitted(desk)
    with running(desk, "logs", "-f", "digits") as command:
        job.prints("said\n")
        assert command.line() == "said"
        job.becomes(status, "why")
        ended = command.end()
    assert ended.code == code
    assert f"digits: {status} (why), charged 0.00 credits" in ended.err


def test_the_end_of_a_job_on_leased_machines_says_what_these_have_cost(desk: Desk) -> None:
    async def made() -> str:
        return await running_job(desk.person, await desk.person.node(await desk.person.region()))

    job_id = asyncio.run(made())
    lease_its_machine(desk.site, job_id, microcredits_per_hour=2_500_000)
    job = Workflows(desk, tables.Job, job_id)
    with running(desk, "logs", "-f", job_id) as command:
        job.prints("said\n")
        assert command.line() == "said"
        job.becomes("finished")
        ended = command.end()
    assert ended.code == 0
    assert re.search(r"credits; leased machines 2\.50\d* at 2\.50/h", ended.err)


def test_logs_of_several_workers_are_whole_lines_that_say_whose_they_are(desk: Desk) -> None:
    (desk.folder / "job.yaml").write_text(JOB_FILE.replace("one}", "one}, {command: two}"))
    assert desk.baseload("submit", "job.yaml").code == 0
    job = _submitted(desk)
    with running(desk, "logs", "-f", "digits") as command:
        job.prints("from ")
        job.prints("two\n", worker=1)
        assert command.line() == "[1] two"
        job.prints("one\nrest")
        assert command.line() == "[0] from one"
        job.becomes("finished")
        ended = command.end()
    assert (ended.code, ended.out) == (0, "[0] rest\n")
    assert desk.baseload("logs", "digits").out == "[0] from one\n[0] rest\n[1] two\n"


def test_pieces_of_a_log_as_json_say_where_they_begin(desk: Desk, job_file: str) -> None:
    desk.baseload("submit", job_file)
    job = _submitted(desk)
    job.prints("ä\n")
    job.becomes("finished")
    stored = [json.loads(line) for line in desk.baseload("logs", job.id, "--json").out.splitlines()]
    followed = desk.baseload("logs", "-f", job.id, "--json").out.splitlines()
    assert stored == [{"worker": 0, "offset": 0, "text": "ä\n"}]
    assert [json.loads(line) for line in followed] == stored


def _node(desk: Desk, *arguments: str) -> list[str]:
    provider = desk.json("provider", "enable", "physical")
    desk.site.set(tables.Provider, provider["id"], status="ready")
    region = desk.json("region", "create", "home")
    desk.site.set(tables.Region, region["id"], status="healthy")
    return ["node", "add", "n1", "--region", "home", "--minion-id", host_key()[1], *arguments]


def test_adding_a_node_waits_and_tells_each_state(desk: Desk) -> None:
    with running(desk, *_node(desk, "--wait", "--json")) as command:
        wait_until(lambda: desk.site.rows(tables.Node), "a node was added")
        node = Workflows(desk, tables.Node, desk.site.rows(tables.Node)[0].id)
        for status in ("connecting", "inspecting", "preparing"):
            node.becomes(status)
            wait_until(lambda: f"n1: {status}" in command.err, f"{status} is told")  # noqa: B023
        node.becomes("maintenance")
        ended = command.end()
    assert ended.code == 0
    assert json.loads(ended.out)["status"] == "maintenance"


def test_a_node_that_fails_while_it_is_waited_for_ends_the_wait_with_its_reason(
    desk: Desk,
) -> None:
    with running(desk, *_node(desk, "--wait")) as command:
        wait_until(lambda: desk.site.rows(tables.Node), "a node was added")
        node = Workflows(desk, tables.Node, desk.site.rows(tables.Node)[0].id)
        node.becomes("failed", "gpus: asked one model, found two")
        ended = command.end()
    assert ended.code == 1
    assert "n1 is failed: gpus: asked one model, found two" in ended.err


def test_a_wait_has_a_limit(desk: Desk) -> None:
    ended = desk.baseload(*_node(desk, "--wait", "--timeout", "0"))
    assert ended.code == 1
    assert "still" in ended.err


def test_events_are_followed_without_loss_from_those_shown(desk: Desk, job_file: str) -> None:
    desk.baseload("submit", job_file)
    job = _submitted(desk)
    with running(desk, "events", job.id, "-f", "--json") as command:
        lines = [command.line()]
        job.becomes("running")
        job.becomes("finished")
        lines += [command.line(), command.line()]
        command.interrupt()
        ended = command.end()
    assert [json.loads(line)["type"] for line in lines] == [
        "job.requested",
        "thing.running",
        "thing.finished",
    ]
    assert ended.code == 130


def test_parts_of_a_log_are_its_last_lines_what_is_young_and_lines_with_times(
    desk: Desk, job_file: str
) -> None:
    desk.baseload("submit", job_file)
    job = _submitted(desk)
    job.prints("one\ntwo\nthree\n")
    run = run_id(job.id, 0, 1)
    LogTimes(settings().storage, lambda: time.time() - 3600).note(run, 0, 8)
    LogTimes(settings().storage, lambda: time.time() - 60).note(run, 8, 14)
    job.becomes("finished")
    assert desk.baseload("logs", "digits", "--tail", "1").out == "three\n"
    assert desk.baseload("logs", "digits", "--since", "10m").out == "three\n"
    assert desk.baseload("logs", "digits", "-f", "--tail", "2").out == "two\nthree\n"
    lines = desk.baseload("logs", "digits", "--timestamps").out.splitlines()
    assert [line.split()[1] for line in lines] == ["one", "two", "three"]
    assert all(line.split()[0].endswith("Z") for line in lines)
    assert desk.baseload("logs", "digits", "--since", "soon").code == 2


def test_followed_logs_tell_the_events_in_one_order_with_what_the_job_prints(
    desk: Desk, job_file: str
) -> None:
    desk.baseload("submit", job_file)
    job = _submitted(desk)
    both = 'exec 2>&1; exec env --default-signal=INT "$@"'
    command = [sys.executable, "-m", "baseload", "logs", "-f", "digits"]
    with subprocess.Popen(
        ["sh", "-c", both, "sh", *command], cwd=desk.folder, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        job.becomes("running")
        job.prints("epoch 1\n")
        lines = [process.stdout.readline() for _ in range(3)]
        job.becomes("finished")
        lines += process.stdout.read().splitlines(keepends=True)
    assert [line.rstrip("\n") for line in lines] == [
        "digits: requested: job digits was requested",
        "digits: running: it is running",
        "epoch 1",
        "digits: finished: it is finished",
        "digits: finished, charged 0.00 credits",
    ]


def test_the_end_of_a_log_is_followed_without_the_events_of_before(
    desk: Desk, job_file: str
) -> None:
    desk.baseload("submit", job_file)
    job = _submitted(desk)
    job.becomes("running")
    job.prints("epoch 1\nepoch 2\n")
    with running(desk, "logs", "-f", "digits", "--tail", "1") as command:
        assert command.line() == "epoch 2"
        job.becomes("finished")
        ended = command.end()
    assert (ended.code, ended.out) == (0, "")
    assert "running" not in ended.err
    assert "digits: finished: it is finished" in ended.err
