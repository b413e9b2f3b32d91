"""Tasks from Python: the job that each becomes, and the providers that it may use."""

from pathlib import Path
from typing import Any

import baseload
import pytest
from baseload import running
from baseload.errors import ConfigurationError

from activities.db import tables
from tests.client.conftest import Desk


@pytest.fixture(autouse=True)
def nothing_is_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "_configuration", running._Configuration())


def test_a_task_becomes_a_job_with_its_price_cap(tmp_path: Path) -> None:
    task = {
        "entrypoint": "train.py",
        "args": ["--lr", "0.1", "--note", "a b"],
        "workdir": str(tmp_path),
        "requirements": "requirements.txt",
        "env": {"SEED": "7"},
        "timeout": 3600,
        "name": "digits",
    }
    assert running.job_of(task, "A100:1", 2.5) == {
        "name": "digits",
        "type": "training",
        "resources": {"gpus": "A100:1"},
        "environment": {"variables": {"SEED": "7"}, "requirements": "requirements.txt"},
        "safety": {"price_cap_microcredits_per_hour": 2_500_000, "max_duration_s": 3600},
        "workers": [{"command": "python train.py --lr 0.1 --note 'a b'"}],
    }


def test_an_entrypoint_that_is_no_file_is_a_command() -> None:
    job = running.job_of({"entrypoint": "torchrun train.py", "args": "--fast"}, "cpu", None)
    assert job["workers"] == [{"command": "torchrun train.py --fast"}]
    assert job["resources"] == {"gpus": "cpu", "cpu_count": 1}


@pytest.mark.parametrize(
    ("task", "price_cap", "said"),
    [
        ({}, None, "asked an entrypoint"),
        ({"entrypoint": "a.py", "outputs": []}, None, "found also outputs"),
        ({"entrypoint": "a.py"}, "cheap", "asked credits"),
        ({"entrypoint": "a.py"}, "0.0000001", "at most six decimals"),
        ({"entrypoint": "a.py"}, float("nan"), "asked credits"),
    ],
)
def test_what_cannot_be_read_is_named(task: dict[str, Any], price_cap: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        running.job_of(task, "cpu", price_cap)


def test_a_provider_of_the_registry_needs_a_kind() -> None:
    with pytest.raises(ConfigurationError, match="rented: asked its kind"):
        baseload.configure(registry={"rented": {}})


def test_a_run_enables_what_it_uses_of_the_registry_once(desk: Desk) -> None:
    (desk.folder / "train.py").write_text("print(1)")
    baseload.configure(registry={"own": {"kind": "physical"}, "no": {"kind": "gcp"}}, use=["own"])
    task = {"entrypoint": "train.py", "workdir": desk.folder}
    with desk.client() as client:
        jobs = [baseload.run(task, client=client, price_cap=1) for _ in range(2)]
    (provider,) = desk.site.rows(tables.Provider)
    assert (provider.name, provider.kind) == ("own", "physical")
    for job in jobs:
        (row,) = desk.site.rows(tables.Job, id=job.id)
        assert row.spec["placement"]["providers"] == [provider.id]
        assert row.spec["safety"]["price_cap_microcredits_per_hour"] == 1_000_000
        assert row.spec["code"]["upload_id"].startswith("upl-")
