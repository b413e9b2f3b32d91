"""Destinations to which the outputs of jobs are sent: who may have that done."""

from typing import Any

from pydantic import ValidationError

from activities.db import tables
from api.changes import ChangeContext
from api.schemas.base import FieldError
from api.services.projects import refusal_of_secret
from api.services.third_party_keys import refusal_of_use
from workflows.contracts.deliveries import KeyedDestination, WebDestination
from workflows.contracts.job_submission import OutputDestination
from workflows.contracts.third_party_keys import KeyType
from workflows.rules.jobs.data_places import destination_of_output


def wrong_destination(
    context: ChangeContext, document: Any, project: tables.Project | None
) -> list[FieldError]:
    """The field errors for the key or the secret of a job's destination that the job cannot have.

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
    return [] if wrong is None else [wrong]
