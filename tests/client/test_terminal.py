"""On a terminal there are colours and tables; a pipe of the same command has neither."""

import io
import json
import os
import pty
import subprocess
import sys
from datetime import UTC, datetime

import pytest
from baseload.commands.logs import LogPrinter
from baseload.commands.reason_lines import with_short_reasons, without_spare_columns
from baseload.commands.terminal import Screen, counted
from baseload.models import JobSubmission, SubmittedResources, SubmittedWorker

from activities.db import tables
from activities.settings import settings
from activities.storage.logs import log_store
from tests.api.http_server import Person
from tests.client.conftest import Desk
from workflows.contracts.jobs import run_id


def _on_a_terminal(desk: Desk, *arguments: str, width: int = 160) -> str:
    ours, theirs = pty.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "baseload", *arguments],
            cwd=desk.folder, stdin=theirs, stdout=theirs, stderr=theirs, check=False,
            env={**os.environ, "TERM": "xterm-256color", "COLUMNS": str(width)}, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, os.read(ours, 65536).decode()
        return os.read(ours, 65536).decode()
    finally:
        os.close(ours)
        os.close(theirs)


def test_a_terminal_gets_colours_and_a_pipe_does_not(desk: Desk) -> None:
    provider = desk.json("provider", "enable", "physical")
    desk.site.set(tables.Provider, provider["id"], status="ready")
    shown = _on_a_terminal(desk, "provider", "ls")
    assert "\x1b[32mready" in shown
    assert "─" in shown
    assert "\x1b" not in desk.baseload("provider", "ls").out


def test_json_on_a_terminal_is_plain_json(desk: Desk) -> None:
    assert "\x1b" not in _on_a_terminal(desk, "provider", "ls", "--json")


def test_a_name_cannot_move_the_cursor(desk: Desk) -> None:
    provider = desk.json("provider", "enable", "physical")
    reason = "\x1b[2Jgone\rover \x9b2J \u202eno"
    desk.site.set(tables.Provider, provider["id"], status_reason=reason)
    for shown in (_on_a_terminal(desk, "provider", "ls"), desk.baseload("provider", "ls").out):
        assert "\\x1b[2Jgone\\rover \\x9b2J \\u202eno" in shown
    shown = _on_a_terminal(desk, "provider", "ls", "--json")
    assert not {"\x1b", "\x9b", "\u202e"} & set(shown)
    assert json.loads(shown)["items"][0]["status_reason"] == reason


HOSTILE = b"epoch 1\x1b[2J\r\nepoch 2\rdone\n"
VISIBLE = "epoch 1\\x1b[2J\nepoch 2\ndone\n"


def test_a_log_cannot_move_the_cursor_but_a_pipe_of_ones_own_has_its_bytes(desk: Desk) -> None:
    with desk.client() as client:
        job = client.submit_job(
            JobSubmission(
                name="digits",
                type="training",
                resources=SubmittedResources(gpus="cpu", cpu_count=1),
                workers=[SubmittedWorker(command="true")],
            )
        )
    log_store(settings().storage).append(run_id(job.id, 0, 1), 0, HOSTILE)
    assert desk.baseload("logs", "digits").out.encode() == HOSTILE
    assert _on_a_terminal(desk, "logs", "digits").replace("\r\n", "\n") == VISIBLE
    other = desk.site.account("bob")
    desk.site.set(tables.Job, job.id, creator_account_id=other.account_id)
    assert desk.baseload("logs", "digits").out.encode() == HOSTILE
    share(desk, job.id, other)
    assert desk.baseload("logs", job.id).out == VISIBLE


def test_a_line_that_ends_in_two_pieces_ends_once() -> None:
    out = io.StringIO()
    printer = LogPrinter(1, out, is_own=False)
    for piece in ("one\r", "\ntwo\r", "three\x1b", "\r"):
        printer.piece(0, piece)
    assert out.getvalue() == "one\ntwo\nthree\\x1b"


def share(desk: Desk, job_id: str, owner: Person) -> None:
    """The job becomes one of the owner's, whose project the desk's person may read."""
    member = tables.ProjectMember(
        project_id=owner.project_id,
        user_id=desk.person.user_id,
        permissions={"job": "read"},
        created_at=datetime.now(UTC),
    )
    desk.site.write(member)
    values = {"account_id": owner.account_id, "project_id": owner.project_id}
    desk.site.set(tables.Job, job_id, **values)


def test_a_reason_of_several_lines_is_one_line_in_a_list_cut_to_the_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    columns, rows = ("id", "reason"), [["job-1", "\npip failed\nline 2"], ["job-2", "x" * 300]]
    plain = with_short_reasons(Screen(as_json=False), columns, rows)
    assert plain == [["job-1", "pip failed…"], ["job-2", "x" * 300]]
    monkeypatch.setattr(Screen, "is_rich", True)
    monkeypatch.setenv("COLUMNS", "60")
    shown = with_short_reasons(Screen(as_json=False), columns, rows)
    assert shown[1][1].endswith("x…")
    assert len("job-2") + 5 + len(shown[1][1]) == 60


@pytest.mark.parametrize("width", [40, 80, 120])
def test_a_narrow_list_of_jobs_has_every_id_and_name_whole(desk: Desk, width: int) -> None:
    name = "a-sweep-over-learning-rates-of-the-large-model-17"
    with desk.client() as client:
        job = client.submit_job(
            JobSubmission(
                name=name,
                type="training",
                resources=SubmittedResources(gpus="cpu", cpu_count=1),
                workers=[SubmittedWorker(command="true")],
            )
        )
    desk.site.set(tables.Job, job.id, status_reason="no machine has room for it " * 5)
    lines = _on_a_terminal(desk, "ps", width=width).splitlines()
    [shown] = [line.split() for line in lines if job.id in line]
    assert [name, "new"] == [word for word in shown if word in (name, "new")]
    assert not any("created" in line for line in lines)


def test_the_columns_of_a_list_that_are_needed_least_give_way_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    columns, rows = ("id", "node", "created", "reason"), [["i" * 20, "n" * 20, "c" * 20, "r" * 90]]
    spare = ("created", "node", "reason")
    screen = Screen(as_json=False)
    assert without_spare_columns(screen, columns, rows, spare) == ([*columns], rows)
    monkeypatch.setattr(Screen, "is_rich", True)
    for width, kept in ((91, [*columns]), (90, ["id", "node", "reason"]), (30, ["id"])):
        monkeypatch.setenv("COLUMNS", str(width))
        assert without_spare_columns(screen, columns, rows, spare)[0] == kept


@pytest.mark.parametrize(("count", "text"), [(0, "0 jobs"), (1, "1 job"), (2, "2 jobs")])
def test_one_of_something_is_said_in_the_singular(count: int, text: str) -> None:
    assert counted(count, "job") == text
    assert counted(1, "entry", "entries") == "1 entry"
    assert counted(3, "entry", "entries") == "3 entries"
