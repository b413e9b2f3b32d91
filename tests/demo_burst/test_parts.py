"""What `make demo-burst` is made of. All of it takes minutes, and is not run among the tests."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.demo_burst import __main__ as demo
from tests.demo_burst.bill import disagreements, explained, table
from tests.demo_burst.marketplaces import Charge, Marketplace, make_orphan
from tests.demo_burst.stack import plan, program_of
from tests.demo_burst.story import JOB_FILE, ORPHAN, WENT_ON
from tests.doubles.runpod.double import RunPodDouble
from tests.doubles.vastai.double import VastDouble
from workers.runner.settings import RunnerSettings

PRICE = 3_600_000
"""Microcredits an hour: 1,000 in a second."""


def charge(name: str, seconds: float, gpu_s: float | None = None) -> Charge:
    gpu_s = seconds if gpu_s is None else gpu_s
    return Charge("vastai", f"{name}.prv-1", seconds, gpu_s, PRICE, 0, round(gpu_s * 1000), False)


def lease(name: str, seconds: int, price: int = PRICE) -> dict[str, Any]:
    return {
        "name": name,
        "began_at": "2026-11-22T00:00:00+00:00",
        "seconds": seconds,
        "microcredits_per_hour": price,
        "cost_microcredits": seconds * price // 3600,
    }


def test_a_lease_that_counts_as_the_meter_does_agrees() -> None:
    assert disagreements([lease("a", 10)], [charge("a", 10.2)]) == []
    assert disagreements([lease("a", 10)], [charge("a", 10.2, gpu_s=6.0)]) == [], "it booted for 4"


def test_a_lease_that_is_shorter_longer_or_cheaper_than_the_meter_disagrees() -> None:
    for seconds in (8, 80):
        (said,) = disagreements([lease("a", seconds)], [charge("a", 10.0)])
        assert said == f"a: {seconds} s by its lease, 10.0 s by the meter"
    found = disagreements([lease("a", 10, price=PRICE // 2)], [charge("a", 10.0)])
    assert "microcredits an hour by its lease" in found[0]
    wrong = {**lease("a", 10), "cost_microcredits": 20_000}
    assert disagreements([wrong], [charge("a", 10.0)]) == [
        "a: 20000 microcredits by its lease, 10000 metered"
    ]


def test_a_machine_that_only_one_of_both_knows_is_a_disagreement_unless_it_is_an_orphan() -> None:
    leases, charges = [lease("b", 3)], [charge("a", 10.0)]
    assert [line.partition(":")[0] for line in disagreements(leases, charges)] == ["a", "b"]
    found = disagreements(leases, charges, orphans={"a"})
    assert [line.partition(":")[0] for line in found] == ["b"]


def test_the_sums_differ_by_what_is_named() -> None:
    leases = [lease("a", 12), lease("v", 30)]
    charges = [charge("a", 10.0, gpu_s=7.0), charge("v", 20.0), charge("o", 5.0)]
    *_, last = table(leases, charges, {"o"})
    assert last.split() == ["all", "35.0", "0.042000", "0.032000"]
    named = [float(line.split()[0]) for line in explained(leases, charges, {"v"}, {"o"})]
    assert named == [0.003, 0.002, 0.010, -0.005]
    assert sum(named) == pytest.approx(0.042 - 0.032)


def test_the_platform_reaches_the_marketplaces_by_settings_alone(tmp_path: Path) -> None:
    settings = RunnerSettings(home=tmp_path, api="127.0.0.1:8701", temporal_port=7301)
    runpod, vastai, *others = plan(settings, {"runpod": 8901, "vastai": 8902}).programs
    assert [runpod.name, vastai.name] == [program_of("runpod"), program_of("vastai")]
    assert "sshd" not in {each.name for each in others}
    for program in others:
        assert program.environment["BASELOAD_RUNPOD_ENDPOINT"] == "http://127.0.0.1:8901"
        assert program.environment["BASELOAD_VASTAI_ENDPOINT"] == "http://127.0.0.1:8902"


def test_a_marketplace_tells_of_an_orphan_and_what_it_costs(tmp_path: Path) -> None:
    with RunPodDouble() as double, closing(Marketplace("runpod", double.url)) as runpod:
        runpod.set_up()
        name = make_orphan(runpod, ORPHAN, "prv-1")
        double.clock.advance(3600)
        (charged,) = runpod.charges()
        assert runpod.machines() == [name] == [charged.name]
        assert (charged.machine_name, charged.is_running) == (ORPHAN, True)
        assert charged.microcredits == pytest.approx(charged.microcredits_per_hour, abs=1)
        runpod.write_key(tmp_path / "key")
        assert (tmp_path / "key").stat().st_mode & 0o77 == 0
        assert runpod.violations() == []


def test_vastai_has_machines_for_the_job_under_its_cap() -> None:
    job = yaml.safe_load(JOB_FILE.read_text())
    cap = job["safety"]["price_cap_microcredits_per_hour"]
    with VastDouble() as double, closing(Marketplace("vastai", double.url)) as vastai:
        vastai.set_up()
        totals = [offer.total(10) * 1_000_000 for offer in double.market.offers.values()]
        assert len([each for each in totals if each < cap]) == len(totals) == 3


def test_without_namespaces_it_says_why_and_starts_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("BASELOAD_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(demo, "set_environment", lambda: None)
    monkeypatch.setattr(demo, "obstacle", lambda: "needs root")
    assert demo.main([]) == 1
    assert "needs root" in capsys.readouterr().out
    assert not (tmp_path / "home").exists()


def test_the_training_goes_on_from_the_state_that_it_finds(tmp_path: Path) -> None:
    def trained(epochs: int) -> str:
        settings = {
            "EPOCHS": str(epochs),
            "EPOCH_S": "0",
            "BASELOAD_STATE": str(tmp_path),
            "BASELOAD_OUTPUT": str(tmp_path / "output"),
        }
        program = [sys.executable, str(JOB_FILE.parent / "train.py")]
        environment = {**os.environ, **settings}
        return subprocess.run(
            program, env=environment, capture_output=True, text=True, check=True
        ).stdout

    assert WENT_ON not in trained(2)
    assert f"{WENT_ON} 2" in trained(3)
