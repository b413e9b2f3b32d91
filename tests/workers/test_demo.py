"""`make demo`, less its set-up: the whole story on this machine, also after a kill midway."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from workers.runner.lifecycle import bring_down
from workers.runner.probes import free_port
from workers.runner.process_records import Record, read_record, wait_until
from workers.runner.settings import CHECKOUT

LONG_JOB = """
name: goes-on
type: training
resources: {gpus: cpu, cpu_count: 1, memory_gib: 1}
workers: [{command: sleep 600}]
"""
PROGRAMS = ("runner", "temporal", "sshd", "api", "worker", "planning")


class Demo:
    """One home, with ports of its own, in which the demo is run again and again."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._environment = {
            **os.environ,
            "BASELOAD_HOME": str(home),
            "BASELOAD_API": f"127.0.0.1:{free_port()}",
            "BASELOAD_TEMPORAL_PORT": str(free_port()),
            "BASELOAD_UI_PORT": str(free_port()),
        }

    def begin(self, output: Path) -> subprocess.Popen[bytes]:
        with output.open("wb") as told:
            return subprocess.Popen(
                [sys.executable, "-m", "workers.runner", "demo"],
                cwd=CHECKOUT,
                env=self._environment,
                stdout=told,
                stderr=subprocess.STDOUT,
            )

    def runner(self, verb: str) -> str:
        return self._said(sys.executable, "-m", "workers.runner", verb)

    def baseload(self, *arguments: str) -> str:
        return self._said(str(Path(sys.executable).parent / "baseload"), *arguments)

    def _said(self, *command: str) -> str:
        return subprocess.run(
            command,
            cwd=CHECKOUT,
            env=self._environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    def records(self) -> list[Record]:
        found = (read_record(self.home / "run", name) for name in PROGRAMS)
        return [record for record in found if record is not None]


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    story = Demo(tmp_path / "home")
    yield story
    bring_down(story.home, lambda _: None)


@pytest.mark.timeout(400)
def test_the_demo_works_at_once_after_everything_was_killed_in_its_middle(
    demo: Demo, tmp_path: Path
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    interrupted = demo.begin(first)
    assert wait_until(lambda: b"\nepoch " in first.read_bytes(), 180), first.read_text()
    killed = demo.records()
    assert [record.name for record in killed] == list(PROGRAMS)
    os.kill(interrupted.pid, signal.SIGKILL)
    for record in killed:
        os.kill(record.pid, signal.SIGKILL)
    interrupted.wait(10)

    assert demo.begin(second).wait(180) == 0, second.read_text()
    told = second.read_text()
    for words in ("$ baseload submit", "accuracy", "curve.png", "usage-fee", "make down"):
        assert words in told
    for status in ("new", "connecting", "inspecting", "preparing", "maintenance", "active"):
        assert re.search(rf"^  {status} +\d\d:\d\d:\d\d +\+\d+\.\d s  ", told, re.MULTILINE)
    for found in (r"CPUs +\d", r"memory +\d+\.\d GiB", r"disks +.*GB free", "nvme-drives "):
        assert re.search(rf"^  {found}", told, re.MULTILINE)
    assert re.search(r"^all +\d+\.\d$", told, re.MULTILINE)

    # The job that was killed in its middle has ended as well, and is billed once.
    assert wait_until(lambda: demo.baseload("ps").count("finished") == 2, 60), demo.baseload("ps")
    assert demo.baseload("bill").count("usage-fee") == 2
    job_file = tmp_path / "long.yaml"
    job_file.write_text(LONG_JOB)
    demo.baseload("submit", str(job_file))
    assert wait_until(lambda: "running" in demo.baseload("ps"), 60), demo.baseload("ps")
    before_down = demo.records()
    assert re.search(r"^  goes-on \(job-\w{26}\)$", demo.runner("down"), re.MULTILINE)
    assert not any(record.members() for record in before_down)
    demo.runner("up")
    demo.baseload("cancel", "goes-on")
    assert wait_until(lambda: "canceled" in demo.baseload("ps"), 60), demo.baseload("ps")
