"""The datasets, model, checkpoints and volumes of a job, and their folders in its runs."""

import re

from workflows.contracts.artifacts import ArtifactRole, VolumeAccess
from workflows.contracts.job_submission import JobSubmission

_FOLDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def artifacts_of(submission: JobSubmission) -> tuple[tuple[ArtifactRole, str], ...]:
    """The role and the id of each artifact that a job uses."""
    data = submission.data
    model = () if data.model is None else (data.model.id,)
    return (
        *((ArtifactRole.DATASET, each) for each in data.datasets),
        *((ArtifactRole.MODEL, each) for each in model),
        *((ArtifactRole.CHECKPOINT, each) for each in data.checkpoints),
        *((each.access.role, each.id) for each in data.volumes),
    )


def volumes_of(submission: JobSubmission) -> tuple[tuple[str, VolumeAccess], ...]:
    """The id of each volume of a job, with the job's access to it, in one order for all jobs."""
    return tuple(sorted((each.id, each.access) for each in submission.data.volumes))


def written_volumes(submission: JobSubmission) -> tuple[str, ...]:
    """The ids of the volumes that a job writes to."""
    found = volumes_of(submission)
    return tuple(each for each, access in found if access is VolumeAccess.WRITE)


def folder_of(name: str, artifact_id: str) -> str:
    """The name of an artifact's folder in a run: the artifact's name, if that can be one.

    Names are free text: one with a blank or a slash has the id for its folder.
    """
    return name if _FOLDER.fullmatch(name) else artifact_id
