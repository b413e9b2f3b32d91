"""The schema of job files: the one in git, served without a key, and right about job files."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from api.job_file_schema import PATH, job_file_schema
from tests.api.http_server import Site
from tests.architecture.source import ROOT

CHECKED_IN = ROOT / "docs" / "job.schema.json"


def test_the_schema_in_git_is_the_applications_own() -> None:
    assert CHECKED_IN.read_text() == job_file_schema(), (
        "python -m api job-schema > docs/job.schema.json && python client/generate.py"
    )


async def test_the_schema_is_served_without_a_key(site: Site) -> None:
    async with site.client() as client:
        answer = await client.get(PATH)
    assert (answer.status_code, answer.text) == (200, job_file_schema())


@pytest.mark.parametrize("path", sorted(ROOT.glob("examples/**/job.yaml")), ids=str)
def test_our_job_files_are_right_by_the_schema(path: Path) -> None:
    assert _wrong(yaml.safe_load(path.read_text())) == []


def test_the_schema_refuses_what_the_api_refuses_and_permits_numbers_as_variables() -> None:
    job = {"name": "a", "type": "training", "workers": [{"command": "true"}]}
    assert _wrong(job | {"environment": {"variables": {"EPOCHS": 20, "FAST": True}}}) == []
    assert _wrong(job | {"code": {"path": "."}}) == []
    assert _wrong(job | {"code": {"path": ".", "upload_id": "upl-1"}})
    assert _wrong(job | {"resources": {"gpu": "A100"}}) == ["resources"]
    assert _wrong(job | {"type": "training job"}) == ["type"]


def _wrong(job: dict[str, Any]) -> list[str]:
    """The dotted paths of what the schema refuses."""
    schema = json.loads(job_file_schema())
    Draft202012Validator.check_schema(schema)
    errors = Draft202012Validator(schema).iter_errors(job)
    return [".".join(str(step) for step in error.path) for error in errors]
