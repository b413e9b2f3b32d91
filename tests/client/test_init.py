"""The first job file of a folder: what it says, by what is in the folder."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from baseload.commands.init import look, text_of

from activities.db import tables
from tests.client.conftest import Desk
from workers.runner.settings import CHECKOUT
from workflows.rules.jobs.submission import read_submission


def _job(folder: Path, **files: str) -> dict[str, Any]:
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    job: dict[str, Any] = yaml.safe_load(text_of(folder, look(folder)))
    assert job.pop("code") == {"path": "."}
    return job


@pytest.mark.parametrize(
    ("files", "kind", "command"),
    [
        ({"train__py": "", "main__py": ""}, "training", "python train.py"),
        ({"main__py": ""}, "training", "python main.py"),
        ({"app__py": ""}, "endpoint", "python app.py"),
        ({"only__py": ""}, "training", "python only.py"),
        ({}, "training", "echo hello from $(hostname)"),
        ({"a__ipynb": "{}"}, "notebook", "jupyter lab"),
    ],
)
def test_a_folder_says_what_its_job_runs(
    tmp_path: Path, files: dict[str, str], kind: str, command: str
) -> None:
    job = _job(tmp_path, **files)
    assert job["type"] == kind
    assert job["workers"][0]["command"].startswith(command)
    assert ("port" in job) is (kind != "training")
    assert read_submission(job).mistakes == (), "the file works as it is"


@pytest.mark.parametrize(
    ("files", "requirements"),
    [
        ({"requirements__txt": "torch", "pyproject__toml": ""}, "requirements.txt"),
        ({"pyproject__toml": "[project]\nname = 'x'\ndependencies = ['a']"}, "pyproject.toml"),
        ({"pyproject__toml": "[tool.ruff]\nline-length = 100"}, None),
        ({"environment__yml": "dependencies: [python]"}, "environment.yml"),
        ({}, None),
    ],
)
def test_the_file_of_the_requirements_is_named(
    tmp_path: Path, files: dict[str, str], requirements: str | None
) -> None:
    job = _job(tmp_path, train__py="", **files)
    assert job.get("environment", {}).get("requirements") == requirements


def test_a_notebook_gets_jupyter_unless_its_requirements_have_it(tmp_path: Path) -> None:
    job = _job(tmp_path, a__ipynb="{}", requirements__txt="numpy")
    assert job["environment"] == {"python_packages": ["jupyterlab"]}
    job = _job(tmp_path, requirements__txt="jupyterlab")
    assert job["environment"] == {"requirements": "requirements.txt"}
    example = yaml.safe_load((CHECKOUT / "examples/notebook/job.yaml").read_text())
    assert (job["workers"], job["port"]) == (example["workers"], example["port"])


def test_the_file_is_written_once_works_and_is_never_overwritten(desk: Desk) -> None:
    (desk.folder / "train.py").write_text("print('hello')")
    written = desk.baseload("init")
    assert (written.code, "python train.py" in written.out) == (0, True)
    assert desk.json("submit", "job.yaml")["name"] == "work"
    (desk.folder / "job.yaml").write_text("mine")
    again = desk.baseload("init")
    assert (again.code, "job.yaml is there already" in again.err) == (2, True)
    assert (desk.folder / "job.yaml").read_text() == "mine"
    assert desk.baseload("init", "nowhere").code == 2
    assert len(desk.site.rows(tables.Job)) == 1
