"""What `make demo-data` is made of. All of it takes a minute, and is not run among the tests."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from activities.settings import Settings
from tests.demo_data import __main__ as demo
from tests.demo_data.stack import plan
from tests.demo_data.story import JOB, SERVICE
from workers.runner.settings import RunnerSettings
from workflows.contracts.job_submission import JobSubmission


def test_the_web_server_of_the_story_may_be_a_source(tmp_path: Path) -> None:
    settings = RunnerSettings(home=tmp_path, api="127.0.0.1:8701", temporal_port=7301)
    programs = plan(settings).programs
    assert "sshd" not in {each.name for each in programs}
    (networks,) = {each.environment["BASELOAD_SOURCE_NETWORKS"] for each in programs}
    assert str(Settings(source_networks=networks).source_networks) == networks == "127.0.0.1/32"


def test_its_job_is_one_that_the_api_takes() -> None:
    written = JOB.format(name="first", dataset="dat-1", sets="dst-1", results="dst-2")
    job = JobSubmission.model_validate(yaml.safe_load(written))
    assert job.data.datasets == ("dat-1",)
    assert (job.data.input is None, job.data.output is None) == (False, False)
    served = JobSubmission.model_validate(yaml.safe_load(SERVICE))
    assert (served.type, served.reservation_id) == ("endpoint", "front")


def test_without_namespaces_it_says_why_and_starts_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("BASELOAD_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(demo, "set_environment", lambda: None)
    monkeypatch.setattr(demo, "obstacle", lambda: "needs root: run `make test` as root")
    assert demo.main([]) == 1
    assert "run `make demo-data` as root" in capsys.readouterr().out
    assert not (tmp_path / "home").exists()
