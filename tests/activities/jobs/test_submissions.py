"""Submissions in rows, which processes of two releases read and write beside each other."""

from typing import Any

from activities.jobs.submissions import stored_spec, submission_of
from workflows.contracts.job_submission import JobSubmission

ASKED: dict[str, Any] = {
    "name": "digits",
    "project_id": "prj-1",
    "type": "training",
    "workers": [{"command": "true"}],
    "resources": {"cpu_count": 1},
}


def test_a_row_of_a_later_release_is_read_without_the_fields_that_only_it_knows() -> None:
    submission = JobSubmission.model_validate(ASKED)
    spec = stored_spec(submission)
    later = spec | {"later": [1], "safety": spec["safety"] | {"later": 2}}
    assert submission_of(later) == submission
