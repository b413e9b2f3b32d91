"""The sources and destinations of a job's data, as artifacts and deliveries know them."""

from collections.abc import Iterator
from typing import Any

from pydantic import TypeAdapter, ValidationError

from workflows.contracts.artifacts import ArtifactRole, Source
from workflows.contracts.deliveries import JOB_ID, Destination
from workflows.contracts.job_submission import (
    DataSource,
    FieldError,
    InputSource,
    JobSubmission,
    OutputDestination,
)
from workflows.contracts.lifecycles import CHECKPOINT, DATASET, MODEL
from workflows.rules.jobs.artifacts import artifacts_of
from workflows.rules.jobs.field_errors import Mistakes, field_error
from workflows.rules.jobs.formats import NAME_RULE, is_name

ENTITIES = {noun.name: noun.prefix for noun in (DATASET, MODEL, CHECKPOINT)}
"""The artifacts that can be a job's input or be made of its output, with their ids' prefixes."""
ID_LENGTH = 30
"""How many characters the id of a job has."""
SOURCES = ("job", "web", "git", "aws", "wasabi", "gcp", "azure", "huggingface", "kaggle")
"""The types of input that are transferred for the job."""
DESTINATIONS = (
    "aws", "wasabi", "gcp", "azure", "git", "huggingface", "kaggle", "web", *ENTITIES,
)  # fmt: skip
"""The types of output that are sent somewhere when the job has finished."""
_SOURCE: TypeAdapter[Source] = TypeAdapter(Source)
_DESTINATION: TypeAdapter[Destination] = TypeAdapter(Destination)
_OF_ONE_WORKER = ("web", *ENTITIES)


def source_of(submission: JobSubmission) -> Source | None:
    """The source from which the input of a job is transferred for it; None: it is not.

    Raises: ValidationError, when the input breaks a rule.
    """
    given = submission.data.input
    return None if given is None else source_of_input(given)


def source_of_input(given: InputSource) -> Source | None:
    """The source from which this input is transferred; None: it is not.

    Raises: ValidationError, when it breaks a rule.
    """
    return _SOURCE.validate_python(_set_fields(given)) if given.type in SOURCES else None


def destination_of(submission: JobSubmission) -> Destination | None:
    """The destination to which the output of a job is sent; None: it is sent nowhere.

    Raises: ValidationError, when the output breaks a rule.
    """
    given = submission.data.output
    return None if given is None else destination_of_output(given)


def destination_of_output(given: OutputDestination) -> Destination | None:
    """The destination to which this output is sent; None: it is sent nowhere.

    Raises: ValidationError, when it breaks a rule.
    """
    is_sent = given.type in DESTINATIONS
    return _DESTINATION.validate_python(_set_fields(given)) if is_sent else None


def input_artifact(submission: JobSubmission) -> tuple[tuple[ArtifactRole, str], ...]:
    """The role and the id of the artifact that a job names as its input, if it names one."""
    given = submission.data.input
    if given is None or given.type not in ENTITIES or given.id is None:
        return ()
    return ((ArtifactRole.INPUT, given.id),)


def awaits_data(submission: JobSubmission) -> bool:
    """Whether a job has artifacts, whose content may still have to be transferred."""
    named = artifacts_of(submission) or input_artifact(submission)
    return bool(named) or source_of(submission) is not None


def mistakes_of_source(part: DataSource) -> Mistakes:
    """The rules of an input that is transferred from a source."""
    yield from _mistakes("data.input", part, _SOURCE)


def mistakes_of_destination(job: JobSubmission, part: OutputDestination) -> Mistakes:
    """The rules of an output that is sent to a destination."""
    yield from _mistakes("data.output", part, _DESTINATION)
    if part.type == "web" and part.secret is not None and (part.url or "").startswith("http:"):
        rule = "goes to an https URL alone: everybody on the way reads what http carries"
        yield field_error("data.output.secret", rule, part.secret)
    if len(job.workers) > 1 and part.type in _OF_ONE_WORKER:
        rule = "is for a job with one worker, whose output is one archive or one artifact"
        yield field_error("data.output.type", rule, part.type)
    if part.type in ENTITIES and part.name is not None:
        longest = part.name.replace(JOB_ID, "0" * ID_LENGTH)
        if not is_name(longest):
            rule = f"{NAME_RULE}, with an id of {ID_LENGTH} characters for {JOB_ID}"
            yield field_error("data.output.name", rule, part.name)
    if job.array is not None:
        yield from _of_array(part)


def _of_array(part: DataSource) -> Mistakes:
    """Jobs of an array do not replace each other's output."""
    if part.type == "kaggle":
        yield field_error(
            "data.output.type", "is not for arrays: each job would replace it", "kaggle"
        )
        return
    field = {"web": "url"}.get(part.type, "name" if part.type in ENTITIES else "prefix")
    given = getattr(part, field)
    is_by_default = part.type in ENTITIES and given is None
    if not is_by_default and JOB_ID not in (given or ""):
        rule = f"has {JOB_ID} for an array, whose jobs would replace each other's output"
        yield field_error(f"data.output.{field}", rule, given)


def _mistakes(field: str, part: DataSource, adapter: TypeAdapter[Any]) -> Iterator[FieldError]:
    given = _set_fields(part)
    try:
        adapter.validate_python(given)
    except ValidationError as error:
        for details in error.errors():
            name = str(details["loc"][-1])
            yield field_error(f"{field}.{name}", _rule(details, part.type), given.get(name))


def _rule(details: Any, kind: str) -> str:
    if details["type"] == "extra_forbidden":
        return f"is not for {kind}"
    if details["type"] == "missing":
        return f"is needed for {kind}"
    if details["type"] == "value_error":
        return str(details["ctx"]["error"])
    message = str(details["msg"])
    return message[:1].lower() + message[1:]


def _set_fields(part: DataSource) -> dict[str, Any]:
    return part.model_dump(exclude_none=True)
