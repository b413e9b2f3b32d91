"""The datasets, models and checkpoints of a job, and the folders in which its runs find them."""

import re

from workflows.contracts.artifacts import ArtifactRole
from workflows.contracts.job_submission import JobSubmission

_FOLDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def artifacts_of(submission: JobSubmission) -> tuple[tuple[ArtifactRole, str], ...]:
    """The role and the id of each artifact that a job reads."""
    data = submission.data
    model = () if data.model is None else (data.model.id,)
    return (
        *((ArtifactRole.DATASET, each) for each in data.datasets),
        *((ArtifactRole.MODEL, each) for each in model),
        *((ArtifactRole.CHECKPOINT, each) for each in data.checkpoints),
    )


def folder_of(name: str, artifact_id: str) -> str:
    """The name of an artifact's folder in a run: the artifact's name, if that can be one.

    Names are free text: one with a blank or a slash has the id for its folder.
    """
    return name if _FOLDER.fullmatch(name) else artifact_id
