"""Labels of a job: keys and values by which people and services find their jobs again."""

import re

from workflows.contracts.job_submission import JobSubmission
from workflows.rules.jobs.field_errors import Mistakes, field_error

MAX_LABELS = 16
_KEYS = (
    "keys of 1 to 63 letters, digits, dots, dashes, underscores and slashes, which begin and end "
    "with a letter or a digit"
)
KEY_RULE = f"has {_KEYS}"
VALUE_RULE = "is 1 to 100 printable characters, without blanks at its ends"
FILTER_RULE = f"is KEY=VALUE, or KEY for any value; labels have {_KEYS}"
_KEY = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?")


def is_key(text: str) -> bool:
    return _KEY.fullmatch(text) is not None


def is_value(text: str) -> bool:
    return 1 <= len(text) <= 100 and text.isprintable() and text == text.strip()


def label_rules(job: JobSubmission) -> Mistakes:
    """The rules of the labels of a submission."""
    if len(job.labels) > MAX_LABELS:
        yield field_error("labels", f"has at most {MAX_LABELS} keys", len(job.labels))
        return
    for key, value in job.labels.items():
        if not is_key(key):
            yield field_error("labels", KEY_RULE, key)
        elif not is_value(value):
            yield field_error(f"labels.{key}", VALUE_RULE, value)


def asked_label(text: str) -> tuple[str, str | None]:
    """The key and the value that a filter asks for; None: any value.

    Raises: ValueError, for a text that no label of a job can match.
    """
    key, is_given, value = text.partition("=")
    if not is_key(key) or (is_given and not is_value(value)):
        raise ValueError(FILTER_RULE)
    return key, value if is_given else None
