"""What a submission breaks, field by field."""

from collections.abc import Iterator

from pydantic import JsonValue

from workflows.contracts.job_submission import FieldError

Mistakes = Iterator[FieldError]


def field_error(field: str, rule: str, value: JsonValue) -> FieldError:
    return FieldError(field=field, rule=rule, value=value)
