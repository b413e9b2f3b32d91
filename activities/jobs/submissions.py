"""Submissions in rows: the values of variables are kept apart from the submission, sealed."""

import json
from collections.abc import Mapping
from typing import Any

from activities.secrets.sealing import secret_box
from workflows.contracts.job_submission import JobSubmission


def submission_of(spec: Mapping[str, Any]) -> JobSubmission:
    """The submission that a row keeps; fields of a later release, which may have written the row,
    mean nothing here. Raises: ValueError."""
    return JobSubmission.model_validate(spec, extra="ignore")


def stored_spec(submission: JobSubmission) -> dict[str, Any]:
    """The submission as the row keeps it in plain text: variables with names but no values."""
    spec = submission.model_dump(mode="json")
    spec["environment"]["variables"] = dict.fromkeys(submission.environment.variables, "")
    return spec


def sealed_variables(job_id: str, submission: JobSubmission) -> bytes | None:
    """The variables as JSON, sealed for this job; None when there are none."""
    variables = submission.environment.variables
    if not variables:
        return None
    return secret_box("variables").seal(json.dumps(variables).encode(), job_id.encode())


def open_variables(job_id: str, sealed: bytes | None) -> dict[str, str]:
    """The variables that `sealed_variables` sealed for this job."""
    if sealed is None:
        return {}
    opened: dict[str, str] = json.loads(secret_box("variables").open(sealed, job_id.encode()))
    return opened
