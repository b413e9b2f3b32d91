"""What runs use of their machine, as the node's watcher measures and tells it."""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.activities.agent.agent_process import LocalAgent
from tests.activities.agent.test_inspection import put_smi
from tests.activities.agent.watcher import frames_of
from tests.activities.waiting import wait_for

pytestmark = pytest.mark.usefixtures("staged_before")

Said = Callable[[], list[dict[str, Any]]]
BUSY = "while :; do :; done"
QUIET = "sleep 100"
HOLDS = f"exec {sys.executable} -c 'import time; held = bytearray(1 << 27); time.sleep(100)'"
"""A command with 128 MiB."""


def measured(agent: LocalAgent, every_s: float = 0.2) -> AbstractContextManager[Said]:
    """What a watcher says of utilisation."""
    return frames_of(agent, "utilisation", utilisation_s=every_s)


def last(said: Said) -> dict[str, dict[str, Any]]:
    """The runs of the last frame, by name."""
    return {run["run_id"]: run for run in said()[-1]["runs"]} if said() else {}


def test_a_run_is_measured_with_all_that_it_has_started(agent: LocalAgent) -> None:
    agent.run("job-uses-busy-0-1", f"({BUSY}) & wait")
    agent.run("job-uses-quiet-0-1", QUIET)
    agent.run("job-uses-holds-0-1", HOLDS)
    with measured(agent) as said:
        wait_for(lambda: (last(said).get("job-uses-busy-0-1") or {}).get("cpu_percent"), "CPU time")
        wait_for(lambda: last(said)["job-uses-holds-0-1"]["memory_bytes"] >= 1 << 27, "its memory")
        wait_for(lambda: last(said)["job-uses-busy-0-1"]["cpu_percent"] > 20, "a busy run")
        found = last(said)
    assert found["job-uses-quiet-0-1"]["cpu_percent"] < 20
    assert found["job-uses-quiet-0-1"]["memory_bytes"] < 1 << 26
    assert said()[0]["gpus"] == []


def test_the_work_of_children_that_have_ended_counts(agent: LocalAgent) -> None:
    short = "while :; do (i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done); done"
    agent.run("job-uses-forks-0-1", short)
    with measured(agent) as said:
        wait_for(
            lambda: (last(said).get("job-uses-forks-0-1") or {}).get("cpu_percent"), "CPU time"
        )
        wait_for(lambda: last(said)["job-uses-forks-0-1"]["cpu_percent"] > 20, "a busy run")
        found = last(said)
    assert list(found) == ["job-uses-forks-0-1"]
    assert found["job-uses-forks-0-1"]["memory_bytes"] > 0


def test_gpus_are_told_as_their_driver_tells_them(agent: LocalAgent, tmp_path: Path) -> None:
    put_smi(agent, tmp_path / "bin", "GPU-1, 87, 1024, 81920\nGPU-2, [N/A], [N/A], 81920\n")
    agent.run("job-uses-gpu-0-1", QUIET, gpu_uuids=["GPU-1"])
    with measured(agent) as said:
        wait_for(said, "a measurement")
        assert said()[-1]["gpus"] == [
            {"uuid": "GPU-1", "percent": 87, "memory_used_mib": 1024, "memory_total_mib": 81920},
            {"uuid": "GPU-2", "percent": None, "memory_used_mib": None, "memory_total_mib": 81920},
        ]


def test_a_driver_that_fails_leaves_cpu_and_memory(agent: LocalAgent, tmp_path: Path) -> None:
    put_smi(agent, tmp_path / "bin", "Unable to determine the device handle", status=9)
    agent.run("job-uses-gpu-0-1", QUIET, gpu_uuids=["GPU-1"])
    with measured(agent) as said:
        wait_for(said, "a measurement")
        assert said()[-1]["gpus"] == []
        assert list(last(said)) == ["job-uses-gpu-0-1"]


def test_a_node_without_runs_says_nothing_and_after_the_last_run_once_more(
    agent: LocalAgent,
) -> None:
    with measured(agent) as said:
        agent.run("job-uses-short-0-1", "sleep 1")
        wait_for(lambda: said() and not said()[-1]["runs"], "the last measurement")
        assert last(said) == {}
        assert [len(frame["runs"]) for frame in said()].count(0) == 1
