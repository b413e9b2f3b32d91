"""Names in a job file in the place of ids: of data, datastores and reservations."""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from typing import Any

from baseload.commands.lookup import PREFIXES, find_id
from baseload.commands.session import MistakeError, Session
from baseload.job_files import JobFile

Place = tuple[Any, Any, str, str]
"""What has a reference, under which key or number, its noun, and its dotted path."""


def with_ids(session: Session, file: JobFile) -> JobFile:
    """The same job with ids, as the API takes them, where the file has names.

    What is neither a name nor an id (a number, say) is left to the API.
    Raises: MistakeError, when no resource has a name or several have it, with the line of it.
    """
    job = deepcopy(file.job)
    for holder, key, noun, path in _references(job):
        reference = holder[key]
        if not isinstance(reference, str) or _is_id(noun, reference):
            continue
        try:
            holder[key] = find_id(session, noun, reference)
        except MistakeError as mistake:
            where = f"{place}: {path}" if (place := file.place_of(path)) else path
            raise MistakeError(f"{where}: {mistake}") from mistake
    return replace(file, job=job)


def _is_id(noun: str, reference: str) -> bool:
    """Whether this has the form of an id, and is no name."""
    return re.fullmatch(rf"{PREFIXES[noun]}-[0-9a-z]{{26}}", reference) is not None


def _references(job: dict[str, Any]) -> Iterator[Place]:
    """The places of a job that name another resource, as far as the job has their shape."""
    if "reservation_id" in job:
        yield job, "reservation_id", "reservations", "reservation_id"
    data = job.get("data")
    if not isinstance(data, dict):
        return
    for noun in ("datasets", "checkpoints"):
        listed = data.get(noun)
        for index in range(len(listed) if isinstance(listed, list) else 0):
            yield listed, index, noun, f"data.{noun}.{index}"
    if isinstance(model := data.get("model"), dict) and "id" in model:
        yield model, "id", "models", "data.model.id"
    volumes = data.get("volumes")
    for index, volume in enumerate(volumes if isinstance(volumes, list) else []):
        if isinstance(volume, dict) and "id" in volume:
            yield volume, "id", "volumes", f"data.volumes.{index}.id"
    yield from _of_input(data.get("input"))
    for use in ("input", "output", "scratch"):
        if isinstance(folder := data.get(use), dict) and "datastore_id" in folder:
            yield folder, "datastore_id", "datastores", f"data.{use}.datastore_id"


def _of_input(given: Any) -> Iterator[Place]:
    """The artifact, or the job with the output, that is a job's input."""
    if not isinstance(given, dict):
        return
    noun = f"{given.get('type')}s"
    key = "job_id" if noun == "jobs" else "id"
    if noun in ("datasets", "models", "checkpoints", "jobs") and key in given:
        yield given, key, noun, f"data.input.{key}"
