"""`baseload top`: once into a pipe, again and again on a terminal, JSON for scripts."""

import asyncio
import os
import pty
import signal
import subprocess
import sys

import pytest

from activities.nodes.utilisation import utilisation_reader
from tests.api.running_jobs import running_job
from tests.api.test_utilisation import HARDWARE, of_job
from tests.client.conftest import Desk


@pytest.fixture
def job_id(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> str:
    """A job that runs on a node which has measured it."""

    async def made() -> tuple[str, str]:
        node_id = await desk.person.node(
            await desk.person.region(), gpu_type="A100", gpu_count=2, cpu_count=8, hardware=HARDWARE
        )
        return node_id, await running_job(desk.person, node_id)

    node_id, job_id = asyncio.run(made())

    async def of_nodes(*_: object) -> object:
        return {node_id: of_job(job_id)}

    monkeypatch.setattr(type(utilisation_reader), "of_nodes", of_nodes)
    return job_id


@pytest.mark.usefixtures("job_id")
def test_a_pipe_gets_what_runs_once_and_as_plain_text(desk: Desk) -> None:
    ended = desk.baseload("top")
    assert (ended.code, "\x1b" in ended.out) == (0, False)
    assert "jobs running: 1, GPUs held: 1, 0.25 credits per hour" in ended.out
    (row,) = [line for line in ended.out.splitlines() if line.startswith("digits")]
    for words in ("n1", "30 min", "250%", "87%", "1.0 GiB of 80.0 GiB", "0.25/h"):
        assert words in row
    assert "1 of 2" in ended.out
    assert desk.baseload("top", "--once").out.splitlines()[1:] == ended.out.splitlines()[1:]


def test_json_is_the_answer_of_the_api(desk: Desk, job_id: str) -> None:
    found = desk.json("top")
    assert [worker["job_id"] for worker in found["workers"]] == [job_id]
    assert found["microcredits_per_hour"] == 250_000


@pytest.mark.usefixtures("job_id")
def test_a_terminal_is_refreshed_in_place_until_it_is_interrupted(desk: Desk) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        ["env", "--default-signal=INT", sys.executable, "-m", "baseload", "top", "--every", "2"],
        cwd=desk.folder, stdin=theirs, stdout=theirs, stderr=theirs,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "200", "LINES": "40"},
    ) as process:  # fmt: skip
        os.close(theirs)
        shown = ""
        while shown.count("credits per hour") < 2:
            shown += os.read(ours, 65536).decode(errors="replace")
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 130
    os.close(ours)
    assert "\x1b[?1049h" in shown, "on a screen of its own"
    assert "250%" in shown
