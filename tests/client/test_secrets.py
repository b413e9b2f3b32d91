"""Secrets from the command: never an argument, never shown, and named alone in job files."""

import io

import pytest

from activities.db import tables
from tests.client.conftest import Desk

JOB = "{name: a, type: training, resources: {gpus: cpu, cpu_count: 1}, workers: [{command: a}]}"


def test_a_secret_comes_from_stdin_or_a_file_and_is_named_in_a_job(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("hush-hush\n"))
    set_ = desk.baseload("secret", "set", "hf_token")
    assert (set_.code, "hush" in set_.out + set_.err) == (0, False)
    (desk.folder / "certificate").write_text("line 1\nline 2\n")
    assert desk.baseload("secret", "set", "cert", "--from-file", "certificate").code == 0
    listed = desk.baseload("secret", "ls")
    assert [row.split()[0] for row in listed.out.splitlines()] == ["NAME", "hf_token", "cert"] or [
        row.split()[0] for row in listed.out.splitlines()
    ] == ["NAME", "cert", "hf_token"]
    assert "hush" not in listed.out
    (desk.folder / "job.yaml").write_text(JOB)
    job = desk.json("submit", "job.yaml", "--set", "environment.secrets.HF_TOKEN=hf_token")
    project_id = desk.person.project_id
    reference = f"store://projects/{project_id}/hf_token"
    assert job["environment"]["secrets"] == {"HF_TOKEN": reference}
    assert desk.baseload("secret", "rm", "hf_token").code == 0
    assert [each.name for each in desk.site.rows(tables.StoredSecret)] == [
        f"projects/{project_id}/cert"
    ]
    unknown = desk.baseload("submit", "job.yaml", "--set", "environment.secrets.HF_TOKEN=hf_token")
    assert (unknown.code, "environment.secrets.HF_TOKEN" in unknown.err) == (3, True)


def test_a_secret_is_of_the_project_that_is_named(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    with desk.client() as client:
        made = client.transport.json(_creation("vision"))
    monkeypatch.setattr("sys.stdin", io.StringIO("x"))
    assert desk.baseload("secret", "set", "token", "--project", "vision").code == 0
    (row,) = desk.site.rows(tables.StoredSecret)
    assert row.name == f"projects/{made['id']}/token"
    assert desk.json("secret", "ls")["items"] == []


@pytest.mark.parametrize("given", ["", "\n"])
def test_an_empty_value_is_a_mistake(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(given))
    assert desk.baseload("secret", "set", "token").code == 2
    assert desk.baseload("secret", "set", "token", "the-value").code == 2, "it is no argument"


def _creation(name: str):  # type: ignore[no-untyped-def]
    from baseload.calls import Call

    return Call("POST", "/v1/projects", body={"name": name})
