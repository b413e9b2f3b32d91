"""Runs that do nothing, as their node's watcher sees and tells them."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from activities.agent.runs.idleness import UNOBSERVED_S
from tests.activities.agent.agent_process import LocalAgent
from tests.activities.agent.test_inspection import put_smi
from tests.activities.agent.watcher import frames_of
from tests.activities.waiting import wait_for

pytestmark = pytest.mark.usefixtures("staged_before")

Idle = Callable[[], dict[str, float]]
QUIET = "sleep 100"
CHATTY = "while true; do echo on; sleep 0.05; done"


@contextmanager
def watched(agent: LocalAgent) -> Iterator[Idle]:
    """The runs that a watcher says are idle, each once, and since when."""
    with frames_of(agent, "idle") as frames:

        def idle() -> dict[str, float]:
            found = {frame["run_id"]: frame["idle_s"] for frame in frames()}
            assert len(found) == len(frames()), "said twice"
            return found

        yield idle


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


def test_a_watcher_warns_once_before_the_limit_of_an_idle_run(agent: LocalAgent) -> None:
    limited(agent, "job-quiet-0-1", QUIET)
    with frames_of(agent, "idle_soon") as warned, frames_of(agent, "idle") as said:
        wait_for(said, "the idle run")
        (frame,) = warned()
        assert frame["run_id"] == "job-quiet-0-1"
        assert 0.75 <= frame["idle_s"] < 1.0


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
