"""Destinations to which the outputs of jobs are sent: who may have that done."""

from typing import Any

from pydantic import ValidationError

from activities.db import tables
from api.changes import ChangeContext
from api.problems import Problem, field_error
from api.schemas.base import FieldError
from api.services.ownership import project_for
from api.services.projects import refusal_of_secret
from api.services.third_party_keys import refusal_of_use
from workflows.contracts.deliveries import EntityDestination, KeyedDestination, WebDestination
from workflows.contracts.job_submission import OutputDestination
from workflows.contracts.third_party_keys import KeyType
from workflows.rules.jobs.data_places import destination_of_output


def wrong_destination(
    context: ChangeContext, document: Any, project: tables.Project | None
) -> list[FieldError]:
    """The field errors for what a job's destination asks for that its caller may not have done.

    project: of the job, in which the caller may create jobs. What breaks a rule of its shape has
    its field error elsewhere.
    """
    data = document.get("data")
    given = data.get("output") if isinstance(data, dict) else None
    if project is None or not isinstance(given, dict):
        return []
    try:
        destination = destination_of_output(OutputDestination.model_validate(given))
    except ValidationError:
        return []
    wrong: FieldError | None = None
    if isinstance(destination, KeyedDestination):
        kind = KeyType(given["type"])
        wrong = refusal_of_use(context, project, "data.output.type", kind)
    elif isinstance(destination, WebDestination) and destination.secret is not None:
        wrong = refusal_of_secret(context, project, "data.output.secret", destination.secret)
    elif isinstance(destination, EntityDestination):
        wrong = _refusal_of_creation(context, project, destination.type)
    return [] if wrong is None else [wrong]


def _refusal_of_creation(
    context: ChangeContext, project: tables.Project, noun: str
) -> FieldError | None:
    """The field error of who may not create datasets, models or checkpoints in the project."""
    scope = f"{noun}s:write"
    if not context.caller.may(scope):
        return field_error("data.output.type", f"needs the scope {scope}", noun)
    try:
        project_for(context.session, context.caller, project.id, noun)
    except Problem as problem:
        return field_error("data.output.type", str(problem.detail), noun)
    return None
