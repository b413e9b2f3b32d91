"""The folders of datastores in a submission: which fields they need, and which they refuse."""

from typing import Any

import pytest

from workflows.rules.jobs.submission import read_submission

FOLDER = {"type": "regional", "datastore_id": "dst-1", "path": "sets/digits"}
LOCAL = {"type": "local", "upload_id": "upl-1"}


def mistakes(data: dict[str, Any], kind: str = "training") -> dict[str, str]:
    document = {
        "name": "digits",
        "type": kind,
        "resources": {"gpus": "cpu", "cpu_count": 1},
        "workers": [{"command": "true"}],
        "data": data,
        **({"port": 8888} if kind == "notebook" else {}),
    }
    return {found.field: found.rule for found in read_submission(document).mistakes}


def test_input_and_output_may_be_folders_of_datastores() -> None:
    assert mistakes({"input": FOLDER, "output": FOLDER}) == {}
    assert mistakes({"input": {"type": "regional", "datastore_id": "dst-1"}}) == {}
    assert mistakes({"output": FOLDER}, "notebook") == {}


@pytest.mark.parametrize("name", ["input", "output"])
def test_a_folder_needs_its_datastore_and_a_path_below_its_root(name: str) -> None:
    assert mistakes({name: {"type": "regional"}}) == {
        f"data.{name}.datastore_id": "is needed for regional"
    }
    wrong = mistakes({name: FOLDER | {"datastore_id": "nas"}})
    assert wrong == {f"data.{name}.datastore_id": "is the id of a datastore, dst-…"}
    assert list(mistakes({name: FOLDER | {"path": "../x"}})) == [f"data.{name}.path"]


def test_what_is_of_one_type_is_refused_beside_another() -> None:
    assert mistakes({"input": FOLDER | {"upload_id": "upl-1"}}) == {
        "data.input.upload_id": "is for local input"
    }
    for field in ("datastore_id", "path"):
        given = {"input": LOCAL | {field: FOLDER[field]}}
        assert mistakes(given) == {f"data.input.{field}": "is for regional alone"}
    assert mistakes({"output": {"type": "local", "path": "x"}}) == {
        "data.output.path": "is for regional alone"
    }
    assert list(mistakes({"output": FOLDER | {"upload_id": "upl-1"}})) == ["data.output.upload_id"]
