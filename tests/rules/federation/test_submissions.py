"""What the document of a federated job may ask: each rule alone."""

from typing import Any

import pytest

from workflows.contracts.job_submission import JobSubmission
from workflows.rules.federation.submissions import mistakes_of_federated

SOUND: dict[str, Any] = {
    "name": "reads",
    "type": "inference",
    "project_id": "prj-1",
    "resources": {"gpus": "cpu", "cpu_count": 1},
    "data": {
        "model": {"id": "mod-1"},
        "output": {"type": "regional", "datastore_id": "dst-1"},
        "volumes": [{"id": "vol-1", "access": "read"}],
    },
    "workers": [{"command": "python read.py"}],
    "placement": {"only_owned": True},
}


def fields(**changes: Any) -> list[str]:
    data = SOUND["data"] | changes.pop("data", {})
    job = JobSubmission.model_validate(SOUND | changes | {"data": data})
    return [each.field for each in mistakes_of_federated(job)]


@pytest.mark.parametrize("changes", [{}, {"data": {"output": None}}, {"placement": {}}])
def test_a_sound_document_has_no_mistakes(changes: dict[str, Any]) -> None:
    assert fields(**changes) == []


@pytest.mark.parametrize("kind", ["local", "regional", "dataset"])
def test_input_of_the_project_or_an_upload_is_taken(kind: str) -> None:
    assert fields(data={"input": {"type": kind}}) == []


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"type": "notebook"}, "type"),
        ({"data": {"model": None}}, "data.model"),
        ({"project_id": None}, "project_id"),
        ({"array": 2}, "array"),
        ({"data": {"output": {"type": "local"}}}, "data.output.type"),
        ({"data": {"output": {"type": "aws"}}}, "data.output.type"),
        ({"data": {"input": {"type": "web"}}}, "data.input.type"),
        ({"data": {"volumes": [{"id": "vol-1", "access": "write"}]}}, "data.volumes.0.access"),
        ({"workers": [{"command": "a"}, {"command": "b"}]}, "workers"),
        ({"reservation_id": "rsv-1"}, "reservation_id"),
        ({"placement": {"only_owned": False}}, "placement.only_owned"),
    ],
)
def test_each_rule_refuses_alone(changes: dict[str, Any], field: str) -> None:
    assert fields(**changes) == [field]
