"""The folders of datastores that a submission names."""

from workflows.contracts.job_submission import DataSource, JobSubmission


def regional_parts(submission: JobSubmission) -> dict[str, DataSource]:
    """By field of `data`, which is also the folder of the run, each part that names a datastore."""
    data = submission.data
    parts = {"input": data.input, "output": data.output, "scratch": data.scratch}
    return {name: part for name, part in parts.items() if part and part.datastore_id}


def datastores_of(submission: JobSubmission) -> list[str]:
    """The ids of the datastores that a submission names, each once."""
    parts = regional_parts(submission).values()
    return list(dict.fromkeys(part.datastore_id for part in parts if part.datastore_id))
