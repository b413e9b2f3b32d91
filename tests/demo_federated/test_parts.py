"""What `make demo-federated` is made of. All of it is not run among the tests."""

from __future__ import annotations

import csv
import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.activities.waiting import wait_for
from tests.demo_federated import story, tries
from workflows.contracts.job_submission import JobSubmission
from workflows.rules.federation.submissions import mistakes_of_federated
from workflows.rules.jobs.submission import read_submission

IDS = {"project": "prj-1", "model": "mod-1"}


@pytest.mark.parametrize(
    "written",
    [
        story.JOB.format(name="reads", share="dst-1", every_s=20, places="10.77.0.1:80", **IDS),
        story.ASK.format(name="ask", **IDS),
        (story.EXAMPLE / "job.yaml").read_text(),
    ],
    ids=["reads", "ask", "example"],
)
def test_its_jobs_are_such_as_can_be_federated(written: str) -> None:
    document = yaml.safe_load(written)
    if "code" in document:
        document["code"] = {"upload_id": "upl-1"}
    assert not mistakes_of_federated(JobSubmission.model_validate(document))


def test_its_ordinary_job_is_one() -> None:
    document = yaml.safe_load(story.ORDINARY.format(project="prj-01j", model="mod-01j"))
    assert read_submission(document, []).mistakes == ()


def test_the_model_of_the_example_reads_each_patient(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("BASELOAD_MODEL", str(story.EXAMPLE / "model"))
    monkeypatch.setenv("BASELOAD_INPUT", str(story.EXAMPLE))
    monkeypatch.setenv("BASELOAD_OUTPUT", str(tmp_path))
    runpy.run_path(str(story.EXAMPLE / "code/read.py"), run_name="__main__")
    with (tmp_path / "reads.csv").open(newline="") as file:
        reads = {each["patient"]: float(each["malignant"]) for each in csv.DictReader(file)}
    assert len(reads) == story.PATIENTS
    assert (reads["patient-01"] > 0.5, reads["patient-03"] < 0.5) == (True, True)


def test_the_marker_is_in_the_model_and_not_in_its_code() -> None:
    assert story.MARKER in (story.EXAMPLE / "model/cells.json").read_text()
    assert story.MARKER not in (story.EXAMPLE / "code/read.py").read_text()


def test_what_the_job_tries_is_written_down(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("INPUT", "MODEL", "OUTPUT"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(f"BASELOAD_{name}", str(tmp_path / name))
    monkeypatch.setattr(tries, "resolved", lambda: "no name")
    monkeypatch.setattr(tries, "written", lambda folder: "not tried")
    tries.main(["127.0.0.1:1", "[::1]:1"])
    found = json.loads((tmp_path / "OUTPUT/tries.json").read_text())
    assert "refused" in found["tcp"]["127.0.0.1:1"]
    assert "refused" in found["tcp"]["[::1]:1"]
    assert found["udp"] == {"127.0.0.1:1": "sent", "[::1]:1": "sent"}
    assert set(found["ping"]) == {"127.0.0.1", "::1"}


def test_what_another_job_has_open_to_all_is_found_where_nothing_confines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "of-another-job"
    program = f"from tests.demo_federated import neighbour; neighbour.SHARED = {str(shared)!r}; "
    beside = subprocess.Popen([sys.executable, "-c", program + "neighbour.main()"])
    try:
        wait_for(shared.exists, "what is open to all")
        monkeypatch.setattr(tries, "is_anothers", lambda _: False)
        found = tries.of_others()
    finally:
        beside.kill()
        beside.wait()
    assert "socket baseload-neighbour" in found
    (segment,) = [line for line in found if f" {beside.pid} " in line]
    subprocess.run(["ipcrm", "--shmem-id", segment.split()[1]], check=True)
