"""Tasks from Python: the job that each becomes, and the providers that it may use."""

import asyncio
import os
import subprocess
from pathlib import Path
from typing import Any

import baseload
import pytest
from baseload import running
from baseload.errors import ApiError, ConfigurationError

from activities.db import tables
from activities.secrets.credentials import credentials_of
from tests.client.conftest import Desk

KEY = "rpa_0123456789ABCDEFabcdef"


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
        ({"entrypoint": "a.py", "gpu": 1}, None, "found also gpu"),
        ({"entrypoint": "a.py", "outputs": ["/etc"]}, None, "outputs: asked paths .* '/etc'"),
        ({"entrypoint": "a.py", "outputs": "a/../../b"}, None, "outputs: asked paths"),
        ({"entrypoint": "a.py", "outputs": [""]}, None, "outputs: asked paths"),
        ({"entrypoint": "a.py"}, "cheap", "asked credits"),
        ({"entrypoint": "a.py"}, "0.0000001", "at most six decimals"),
        ({"entrypoint": "a.py"}, float("nan"), "asked credits"),
    ],
)
def test_what_cannot_be_read_is_named(task: dict[str, Any], price_cap: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        running.job_of(task, "cpu", price_cap)


def ran(
    folder: Path, script: str, outputs: list[str], entrypoint: str = "sh train.sh"
) -> tuple[subprocess.CompletedProcess[bytes], dict[str, str]]:
    """The end of a task's command as a node runs it, and its output, by the paths of the files."""
    work, output = folder / "work", folder / "output"
    work.mkdir()
    output.mkdir()
    (work / "train.sh").write_text(script)
    job = running.job_of({"entrypoint": entrypoint, "outputs": outputs}, "cpu", None)
    ended = subprocess.run(
        ["/bin/sh", "-c", job["workers"][0]["command"]],
        cwd=work, env={"PATH": os.environ["PATH"], "BASELOAD_OUTPUT": str(output)},
        capture_output=True, check=False,
    )  # fmt: skip
    files = [path for path in output.rglob("*") if path.is_file()]
    return ended, {str(path.relative_to(output)): path.read_text() for path in files}


def test_the_outputs_of_a_task_are_kept_as_the_jobs_output(tmp_path: Path) -> None:
    script = "mkdir -p runs/best; echo a > runs/best/a; echo b > '-b c'; echo d > left"
    ended, kept = ran(tmp_path, script, ["runs", "-b c"])
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert kept == {"runs/best/a": "a\n", "-b c": "b\n"}


def test_an_output_that_is_missing_fails_the_job_and_the_others_are_kept(tmp_path: Path) -> None:
    ended, kept = ran(tmp_path, "echo a > a", ["none", "a"])
    assert (ended.returncode, kept) == (1, {"a": "a\n"})
    assert b"none" in ended.stderr


def test_a_task_that_fails_keeps_its_exit_code_and_what_outputs_it_has(tmp_path: Path) -> None:
    ended, kept = ran(tmp_path, "echo a > a; exit 7", ["a", "none"])
    assert (ended.returncode, kept) == (7, {"a": "a\n"})


def test_outputs_are_of_the_tasks_folder_whatever_the_entrypoint_does(tmp_path: Path) -> None:
    entrypoint = "mkdir sub; cd sub && sh ../train.sh; exit 3  # done"
    ended, kept = ran(tmp_path, "echo a > ../a", ["a"], entrypoint)
    assert (ended.returncode, kept) == (3, {"a": "a\n"})


def test_a_provider_of_the_registry_needs_a_kind_and_has_its_key_in_one_place() -> None:
    with pytest.raises(ConfigurationError, match="rented: asked its kind"):
        baseload.configure(registry={"rented": {}})
    twice = {"kind": "runpod", "credentials": {"api_key": "k"}, "secret_ref": "env://K"}
    with pytest.raises(ConfigurationError, match="asked credentials alone, found also secret_ref"):
        baseload.configure(registry={"rented": twice})


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


def test_providers_are_used_in_the_order_of_their_names(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    (desk.folder / "train.py").write_text("print(1)")
    monkeypatch.setenv("RUNPOD_API_KEY", KEY)
    baseload.configure(
        registry={
            "cheap": {"kind": "vastai", "api_key": KEY},
            "fast": {"kind": "runpod", "secret_ref": "env://RUNPOD_API_KEY"},
        },
        use=["fast", "cheap", "local"],
    )
    with desk.client() as client:
        baseload.run({"entrypoint": "train.py"}, client=client)
        job = baseload.run({"entrypoint": "train.py"}, client=client)
        named = baseload.run({"entrypoint": "train.py"}, provider="runpod", client=client)
    ids = {each.name: each.id for each in desk.site.rows(tables.Provider)}
    assert set(ids) == {"cheap", "fast"}
    assert _providers_of(desk, job.id) == [ids["fast"], ids["cheap"], "local"]
    assert _providers_of(desk, named.id) == ["runpod"]
    assert credentials_of(ids["fast"]) == KEY


def test_a_name_of_two_providers_is_refused_with_their_ids(desk: Desk) -> None:
    (desk.folder / "train.py").write_text("print(1)")
    body = {"kind": "runpod", "name": "twin", "credentials": {"api_key": KEY}}
    ids = [asyncio.run(desk.person.made("/v1/providers", body))["id"] for _ in range(2)]
    with desk.client() as client, pytest.raises(ConfigurationError, match="provider twin") as said:
        baseload.run({"entrypoint": "train.py"}, provider="twin", client=client)
    assert all(each in str(said.value) for each in ids)
    assert desk.site.rows(tables.Job) == []


def test_a_key_that_logs_in_is_refused_by_its_field(desk: Desk) -> None:
    own = {"kind": "runpod", "api_key": KEY, "ssh_key_ref": "file:///root/.ssh/id_ed25519"}
    baseload.configure(registry={"own": own})
    with desk.client() as client, pytest.raises(ApiError) as refusal:
        baseload.run({"entrypoint": "train.py"}, provider="own", client=client)
    assert [each.field for each in refusal.value.errors] == ["credentials.ssh_key_ref"]


def _providers_of(desk: Desk, job_id: str) -> list[str]:
    (row,) = desk.site.rows(tables.Job, id=job_id)
    return list(row.spec["placement"]["providers"])
