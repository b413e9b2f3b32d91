"""The rules of device configurations: what a document breaks, a change of it, and what differs.

A document is checked as the submission of a job, so that the rules of jobs hold for it.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import JsonValue

from workflows.contracts.device_configurations import DeviceDocument
from workflows.contracts.devices import OutputBuffer
from workflows.contracts.job_submission import FieldError
from workflows.rules.jobs.bounds import out_of_bounds
from workflows.rules.jobs.field_errors import Mistakes, field_error
from workflows.rules.jobs.submission import mistakes_of

_NAMES = {
    "workers.0.command": "command",
    "workers": "command",
    "data.model": "model",
    "data.checkpoints": "checkpoints",
    "data.output": "output",
    "placement.region_id": "region_id",
}
"""The fields of a job's document, and those of a configuration that stand there."""


def document_mistakes(document: DeviceDocument, name: str) -> tuple[FieldError, ...]:
    """The field errors of every rule that a document breaks; empty: none.

    A document that exceeds a bound gets the field errors of bounds alone.
    """
    submission = document.submission(name)
    exceeding = out_of_bounds(submission.model_dump(mode="json", exclude_none=True))
    found = exceeding or mistakes_of(submission)
    own = () if exceeding else (*_output(document), *_health(document))
    return (*(renamed(each) for each in found), *own)


def renamed(mistake: FieldError) -> FieldError:
    """The field error of a job's document, as that of the configuration."""
    rule = mistake.rule.replace("the job's", "the configuration's")
    mistake = mistake.model_copy(update={"rule": rule})
    for of_job, own in _NAMES.items():
        if mistake.field == of_job or mistake.field.startswith(f"{of_job}."):
            field = own + mistake.field.removeprefix(of_job)
            return mistake.model_copy(update={"field": field})
    return mistake


def _output(document: DeviceDocument) -> Mistakes:
    if document.output is not None and document.output.type != "regional":
        rule = "is regional: a folder of a datastore of the region"
        yield field_error("output.type", rule, document.output.type)
    if document.output is None and document.output_buffer != OutputBuffer():
        yield field_error("output_buffer", "is for an output: set output as well", None)
    limit_bytes, disk_gb = document.output_buffer.limit_bytes, document.disk_size_gb
    if limit_bytes is not None and limit_bytes > disk_gb * 10**9:
        rule = f"is at most disk_size_gb, which is {disk_gb} (GB of 10^9 bytes)"
        yield field_error("output_buffer.limit_bytes", rule, limit_bytes)


def _health(document: DeviceDocument) -> Mistakes:
    health = document.health
    if health.up_s > health.limit_s:
        rule = f"is at most health.limit_s, which is {health.limit_s}"
        yield field_error("health.up_s", rule, health.up_s)
    if health.http_path is not None:
        if health.http_port is None:
            yield field_error("health.http_port", "is needed beside health.http_path", None)
        path = health.http_path
        if not path.startswith("/") or not path.isascii() or not path.isprintable() or " " in path:
            rule = "is a path, which begins with / and has neither blanks nor control characters"
            yield field_error("health.http_path", rule, path)
    if health.log_line is not None and (not health.log_line or not health.log_line.isprintable()):
        rule = "is printable text of one line"
        yield field_error("health.log_line", rule, health.log_line)


def merged(document: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """A document with a change: a field of the change takes the place of the document's, maps are
    merged, and what is null is left out (RFC 7396)."""
    found = dict(document)
    for name, value in change.items():
        if value is None:
            found.pop(name, None)
        elif isinstance(value, Mapping):
            earlier = found.get(name)
            found[name] = merged(earlier if isinstance(earlier, Mapping) else {}, value)
        else:
            found[name] = value
    return found


def differences(
    earlier: Mapping[str, Any], later: Mapping[str, Any]
) -> dict[str, tuple[JsonValue, JsonValue]]:
    """The fields in which two documents differ, each with its values, by dotted path."""
    before, after = _flat("", earlier), _flat("", later)
    names = sorted(before.keys() | after.keys())
    pairs = {name: (before.get(name), after.get(name)) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _flat(prefix: str, part: Mapping[str, Any]) -> dict[str, JsonValue]:
    found: dict[str, JsonValue] = {}
    for name, value in part.items():
        path = f"{prefix}{name}"
        if isinstance(value, Mapping):
            found |= _flat(f"{path}.", value)
        elif value is not None:
            found[path] = list(value) if isinstance(value, tuple) else value
    return found
