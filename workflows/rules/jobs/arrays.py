"""Arrays: several jobs of one submission, each with its own number and parameters."""

from workflows.contracts.job_submission import JobSubmission
from workflows.rules.jobs import formats
from workflows.rules.jobs.field_errors import Mistakes, field_error

INDEX = "BASELOAD_ARRAY_INDEX"
SIZE = "BASELOAD_ARRAY_SIZE"


def jobs_of_array(submission: JobSubmission) -> tuple[JobSubmission, ...]:
    """The submission of each job: named by its number, with its parameters among its variables.

    A submission that is no array is its own only job.
    """
    if submission.array is None:
        return (submission,)
    size = len(submission.array)
    return tuple(
        _job_of_array(submission, index, {**parameters, INDEX: str(index), SIZE: str(size)})
        for index, parameters in enumerate(submission.array)
    )


def _job_of_array(
    submission: JobSubmission, index: int, variables: dict[str, str]
) -> JobSubmission:
    named = submission.model_copy(update={"name": f"{submission.name}-{index}", "array": None})
    return with_variables(named, variables)


def with_variables(submission: JobSubmission, variables: dict[str, str]) -> JobSubmission:
    """The submission with these variables in place of those of the same name."""
    environment = submission.environment
    merged = environment.model_copy(update={"variables": environment.variables | variables})
    return submission.model_copy(update={"environment": merged})


def array_rules(job: JobSubmission) -> Mistakes:
    """The field errors of an array: its names, and the names of its parameters."""
    if job.array is None:
        return
    if not formats.is_name(f"{job.name}-{len(job.array)}"):
        rule = "is at most 100 characters with the number of a job of the array behind it"
        yield field_error("name", rule, job.name)
    for index, parameters in enumerate(job.array):
        for name, value in parameters.items():
            if not formats.is_variable_name(name):
                yield field_error(f"array.{index}", formats.VARIABLE_RULE, name)
            if name in job.environment.secrets:
                rule = "has no name that environment.secrets also has"
                yield field_error(f"array.{index}", rule, name)
            if "\0" in value:
                yield field_error(f"array.{index}.{name}", "has no NUL", None)
