"""What `make demo-gcp` is made of. All of it takes two minutes, and is not run among the tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from activities.settings import Settings
from tests.demo_gcp import __main__ as demo
from tests.demo_gcp.bill import disagreements, table
from tests.demo_gcp.cloud import Charge, SimulatedCloud
from tests.demo_gcp.stack import CLOUD, plan
from tests.demo_gcp.story import JOBS, WENT_ON
from tests.doubles.gcp.double import GcpDouble
from tests.doubles.gcp.fixtures import gcp
from tests.doubles.gcp.google_clients import Clients, Machine, network_of
from workers.runner.lifecycle import StackError
from workers.runner.settings import RunnerSettings

__all__ = ["gcp"]
BEGAN = datetime(2026, 11, 22, tzinfo=UTC)


def charge(name: str, seconds: float) -> Charge:
    return Charge(name, "us-central1-a", "a2-highgpu-1g", True, seconds, is_running=False)


def lease(name: str, seconds: float, cost: int) -> dict[str, Any]:
    return {
        "name": name,
        "began_at": BEGAN.isoformat(),
        "ended_at": (BEGAN + timedelta(seconds=seconds)).isoformat(),
        "cost_microcredits": cost,
    }


def test_a_lease_and_the_meter_disagree_from_a_second_on() -> None:
    charges = [charge("a", 10.0), charge("b", 20.0)]
    assert disagreements([lease("a", 10.9, 5), lease("b", 19.1, 10)], charges) == []
    (said,) = disagreements([lease("a", 11.1, 5), lease("b", 20.0, 10)], charges)
    assert said == "a: 11.1 s by its lease, 10.0 s by the meter"


def test_what_only_one_of_both_knows_is_a_disagreement() -> None:
    refused = {"name": "c", "began_at": None, "ended_at": None, "cost_microcredits": 0}
    found = disagreements([lease("b", 3.0, 7), refused], [charge("a", 10.0)])
    assert [line.partition(":")[0] for line in found] == ["a", "b"]


def test_the_table_sums_up_what_all_leases_have_cost() -> None:
    leases = [lease("a", 10.0, 1_500_000), lease("b", 20.0, 250_000)]
    *_, last = table(leases, [charge("a", 10.2), charge("b", 20.1)])
    assert last.split() == ["all", "30.3", "1.750000"]


def test_the_cloud_tells_what_it_runs_and_charges_for_and_takes_it_back(
    gcp: GcpDouble, tmp_path: Path
) -> None:
    google = Clients(gcp)
    with closing(SimulatedCloud(gcp.url)) as cloud:
        assert (cloud.left(), cloud.machines(), cloud.spot_machine()) == ([], [], None)
        machine = Machine(gcp, google)
        network_of(gcp, google)
        machine.made()
        (charged,) = cloud.charges()
        assert cloud.machines() == [charged.name] == [machine.name]
        assert any(machine.name in path for path in cloud.left())
        assert charged.is_running
        cloud.download_key(tmp_path / "key.json")
        assert (tmp_path / "key.json").stat().st_mode & 0o77 == 0
        assert json.loads((tmp_path / "key.json").read_text())["type"] == "service_account"
        assert cloud.spot_machine() == machine.name
        cloud.preempt(machine.name)
        with pytest.raises(StackError, match="preempted"):
            cloud.preempt(machine.name)


def test_everything_of_ours_reaches_the_simulated_cloud_which_is_there_before_it(
    tmp_path: Path,
) -> None:
    settings = RunnerSettings(home=tmp_path, api="127.0.0.1:8701", temporal_port=7301)
    first, *others = plan(settings, (8901, 8902)).programs
    assert first.name == CLOUD
    assert "sshd" not in {each.name for each in others}
    for program in others:
        assert program.environment["BASELOAD_GCP_ENDPOINT"] == "http://127.0.0.1:8901"
        assert program.environment["PUBSUB_EMULATOR_HOST"] == "127.0.0.1:8902"


def test_the_training_lasts_long_enough_for_its_state_to_be_copied(tmp_path: Path) -> None:
    settings = RunnerSettings(home=tmp_path, api="127.0.0.1:8701", temporal_port=7301)
    programs = plan(settings, (8901, 8902)).programs
    told = {each.environment.get("BASELOAD_STATE_INTERVAL_S") for each in programs[1:]}
    (interval_s,) = [float(value) for value in told if value is not None]
    assert Settings(state_interval_s=int(interval_s)).state_interval_s == interval_s
    job = yaml.safe_load((JOBS / "job.yaml").read_text())
    lasts_s = float(job["environment"]["variables"]["EPOCHS"])  # a second each
    assert lasts_s >= 2 * interval_s


def test_the_database_of_a_stack_of_the_users_is_left_alone() -> None:
    settings = ("BASELOAD_DATABASE_URL", "BASELOAD_HOME", "BASELOAD_TEMPORAL", "HOME")
    assert demo.of_another_stack(settings) == ["BASELOAD_DATABASE_URL"]


def test_without_namespaces_it_says_why_and_starts_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("BASELOAD_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(demo, "of_another_stack", lambda names: [])
    monkeypatch.setattr(demo, "obstacle", lambda: "needs root")
    assert demo.main([]) == 1
    assert "needs root" in capsys.readouterr().out
    assert not (tmp_path / "home").exists()


def test_two_at_once_are_not_told_in_one_home(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with demo.only_one(home), pytest.raises(StackError, match="another"), demo.only_one(home):
        pytest.fail("both were told")
    with demo.only_one(home):
        """The first has let go of it."""


def test_the_training_goes_on_from_the_state_that_it_finds(tmp_path: Path) -> None:
    def trained(epochs: int) -> str:
        settings = {
            "EPOCHS": str(epochs),
            "EPOCH_S": "0",
            "BASELOAD_STATE": str(tmp_path),
            "BASELOAD_OUTPUT": str(tmp_path / "output"),
        }
        done = subprocess.run(
            [sys.executable, JOBS / "train.py"],
            env={**os.environ, **settings}, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout

    assert WENT_ON not in trained(2)
    again = trained(3)
    assert f"{WENT_ON} 2" in again
    assert [line.split()[1] for line in again.splitlines() if line.startswith("epoch")] == ["3/3"]
    assert json.loads((tmp_path / "output/line.json").read_text())["epoch"] == 3
