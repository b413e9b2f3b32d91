"""The JSON Schema of job files, by which editors complete and check them; `/job.schema.json`.

A job file is a submission in YAML with two differences: its code may be a folder, and the values of
its variables may be numbers and booleans.
"""

import json
from functools import cache
from typing import Any

from fastapi import Response
from pydantic import Field

from workflows.contracts.job_submission import JobSubmission, Submitted

PATH = "/job.schema.json"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
MEDIA_TYPE = "application/schema+json"


class JobFileCode(Submitted):
    """The code, as a folder beside the job file."""

    path: str = Field(examples=["."])
    """The folder of the code, from the folder of the job file. It is packed and uploaded; what a
    line of its `.baseloadignore` names stays out."""


@cache
def job_file_schema() -> str:
    """The content of `docs/job.schema.json`."""
    schema = JobSubmission.model_json_schema()
    folder = JobFileCode.model_json_schema()
    schema["$defs"] = dict(sorted({**schema["$defs"], "JobFileCode": folder}.items()))
    code = schema["properties"]["code"]
    code["anyOf"].insert(0, {"$ref": "#/$defs/JobFileCode"})
    code["examples"] = [{"path": "."}]
    variables = schema["$defs"]["SubmittedEnvironment"]["properties"]["variables"]
    variables["additionalProperties"] = {"type": ["string", "number", "boolean"]}
    steps = schema["$defs"]["SubmittedEnvironment"]["properties"]["setup"]
    steps["anyOf"] = [{"type": "string"}, {"type": steps.pop("type"), "items": steps.pop("items")}]
    titled = {"$schema": DIALECT, "title": "A job file of baseload"} | _without_titles(schema)
    return json.dumps(titled, indent=1, ensure_ascii=False) + "\n"


def get_job_file_schema() -> Response:
    """The JSON Schema of job files."""
    return Response(job_file_schema(), media_type=MEDIA_TYPE)


def _without_titles(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema less the titles, which repeat the names, and the defaults of whole objects."""
    found: dict[str, Any] = {}
    for name, value in schema.items():
        if name == "title" or (name == "default" and isinstance(value, dict)):
            continue
        if name in ("properties", "$defs"):
            found[name] = {each: _without_titles(below) for each, below in value.items()}
        elif name == "anyOf":
            found[name] = [_without_titles(each) for each in value]
        elif name in ("items", "additionalProperties") and isinstance(value, dict):
            found[name] = _without_titles(value)
        else:
            found[name] = value
    return found
