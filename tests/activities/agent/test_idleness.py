"""Runs that do nothing, as their node's watcher sees and tells them."""

import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from activities.agent.runs.idleness import UNOBSERVED_S
from tests.activities.agent.agent_process import LocalAgent
from tests.activities.agent.test_inspection import put_smi
from tests.activities.waiting import wait_for

pytestmark = pytest.mark.usefixtures("staged_before")

Idle = Callable[[], dict[str, float]]
QUIET = "sleep 100"
CHATTY = "while true; do echo on; sleep 0.05; done"


@contextmanager
def watched(agent: LocalAgent) -> Iterator[Idle]:
    """A watcher on the agent's machine; the runs that it has told to be idle, and since when."""
    process = subprocess.Popen(
        agent.command("watch"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=agent.environment,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps({"root": str(agent.root)}).encode() + b"\n")
    process.stdin.flush()
    told: dict[str, float] = {}
    reading = threading.Thread(target=_read, args=(process.stdout, told))
    reading.start()
    try:
        yield lambda: told
    finally:
        process.stdin.close()
        assert process.wait(timeout=20) == 0
        reading.join(timeout=20)
        process.stdout.close()


def _read(stream: Any, told: dict[str, float]) -> None:
    for line in stream:
        frame = json.loads(line)
        stream.read(frame.get("length", 0))
        if frame["kind"] == "idle":
            assert frame["run_id"] not in told, "told twice"
            told[frame["run_id"]] = frame["idle_s"]


def limited(agent: LocalAgent, name: str, command: str, *gpus: str, limit_s: float = 1.0) -> None:
    agent.run(name, command, idle_timeout_s=limit_s, gpu_uuids=list(gpus))


def test_a_run_without_gpus_is_idle_once_it_has_printed_nothing_for_its_limit(
    agent: LocalAgent,
) -> None:
    limited(agent, "job-chatty-0-1", CHATTY)
    agent.run("job-free-0-1", QUIET)
    limited(agent, "job-quiet-0-1", QUIET)
    with watched(agent) as idle:
        wait_for(idle, "the idle run")
        assert list(idle()) == ["job-quiet-0-1"]
        assert idle()["job-quiet-0-1"] >= 1.0
        assert agent.look("job-quiet-0-1")["idle_s"] >= 1.0
        assert agent.look("job-chatty-0-1")["idle_s"] < 1.0
        assert agent.look("job-free-0-1")["idle_s"] == 0.0


def test_a_run_whose_gpu_works_or_says_nothing_of_it_is_not_idle(
    agent: LocalAgent, tmp_path: Path
) -> None:
    put_smi(agent, tmp_path / "bin", "GPU-rests, 2\nGPU-works, 40\nGPU-mute, [N/A]\n")
    for gpus in (("GPU-works",), ("GPU-mute",), ("GPU-gone",), ("GPU-rests", "GPU-works")):
        limited(agent, f"job-{'-'.join(gpus).lower()}-0-1", QUIET, *gpus)
    limited(agent, "job-rests-0-1", QUIET, "GPU-rests")
    with watched(agent) as idle:
        wait_for(idle, "the idle run")
        assert list(idle()) == ["job-rests-0-1"]
        (tmp_path / "bin/output").write_text("GPU-rests, 0\nGPU-works, 0\nGPU-mute, [N/A]\n")
        wait_for(lambda: len(idle()) == 3, "those whose GPUs rest now")
        assert set(idle()) == {
            "job-rests-0-1", "job-gpu-works-0-1", "job-gpu-rests-gpu-works-0-1",
        }  # fmt: skip


def test_no_run_with_gpus_is_idle_where_their_driver_does_not_answer(
    agent: LocalAgent, tmp_path: Path
) -> None:
    put_smi(agent, tmp_path / "bin", "Unable to determine the device handle", status=9)
    limited(agent, "job-mute-0-1", QUIET, "GPU-1")
    limited(agent, "job-quiet-0-1", QUIET)
    with watched(agent) as idle:
        wait_for(idle, "the idle run")
        assert list(idle()) == ["job-quiet-0-1"]


def test_the_next_watcher_goes_on_where_the_last_one_was_and_forgets_what_nobody_saw(
    agent: LocalAgent,
) -> None:
    limited(agent, "job-quiet-0-1", QUIET, limit_s=5.0)
    idle_path = agent.path("job-quiet-0-1", "idle.json")
    with watched(agent) as idle:
        wait_for(lambda: agent.look("job-quiet-0-1")["idle_s"] >= 0.5, "some idleness")
        assert not idle()
    before = json.loads(idle_path.read_text())
    with watched(agent) as idle:
        wait_for(idle, "the idle run")
    assert json.loads(idle_path.read_text())["since_s"] == before["since_s"]

    long_ago = {**before, "since_s": 0.0, "seen_s": before["seen_s"] - UNOBSERVED_S - 1}
    idle_path.write_text(json.dumps(long_ago))
    with watched(agent) as idle:
        wait_for(idle, "the idle run")
        assert idle()["job-quiet-0-1"] < UNOBSERVED_S
