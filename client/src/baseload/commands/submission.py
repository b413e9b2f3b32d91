"""How a job is sent: previewed before anything is, then its code, then the job itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from baseload.commands.data_names import with_ids
from baseload.commands.jobs import refusals_table
from baseload.commands.offers import offers_table
from baseload.commands.session import Document, MistakeError, NegativeError, Session
from baseload.commands.terminal import bytes_text, counted, credits_text
from baseload.commands.wait_reasons import reasons
from baseload.commands.waiting import spinner
from baseload.errors import ApiError, FieldError
from baseload.ignore_rules import ALWAYS
from baseload.job_files import JobFile, JobFileError, check_requirements
from baseload.packing import OUTPUT, Packed, PackedFile, PackingError, check_folder, pack_to_file

NOT_SENT = {"upload_id": "upl-not-sent"}
"""The code of a job that is previewed; the API does not look for uploads then."""
MASK = "********"
MOST_LEFT_OUT = 5


def send(session: Session, file: JobFile) -> Document:
    """Preview a job, send its code, and submit it; the job, or the array with its jobs.

    Raises: ApiError, each field with its line; MistakeError, when the code cannot be packed, or
    nothing has a name in the file.
    """
    file = with_ids(session, file)
    found = preview(session, file)
    if found is not None:
        if array := array_text(file.job, found):
            session.screen.say(array)
        session.screen.say(fit_text(found))
    document = file.job
    if file.code_folder is not None:
        document = document | {"code": {"upload_id": _uploaded(session, file.code_folder)}}
    is_array = document.get("array") is not None
    return _posted(session, "/v1/jobs/arrays" if is_array else "/v1/jobs", document, file)


def send_federated(session: Session, file: JobFile) -> Document:
    """Send the code of a federated job, and create it in the project of its consumer.

    Where it would go is not asked before: that is the consumer's affair.
    Raises: ApiError and MistakeError, as `send`.
    """
    file = with_ids(session, file)
    document = file.job
    if file.code_folder is not None:
        _check_code(file, file.code_folder)
        document = document | {"code": {"upload_id": _uploaded(session, file.code_folder)}}
    return _posted(session, "/v1/federated-jobs", document, file)


def preview(session: Session, file: JobFile) -> Document | None:
    """Where the job would go now, as the API says; None: the API cannot say it.

    Raises: ApiError, when the API would refuse the job; MistakeError, when there is
    no code folder, or it lacks the file of the requirements.
    """
    code = {}
    if file.code_folder is not None:
        _check_code(file, file.code_folder)
        code = {"code": NOT_SENT}
    try:
        return _posted(session, "/v1/jobs/preview", file.job | code, file)
    except ApiError as refusal:
        if refusal.status in (404, 405) or refusal.status >= 500:
            return None  # If that is about the job, the submission says it again.
        raise


def dry_run(session: Session, file: JobFile) -> None:
    """Show what would be sent and where the job would go; nothing is sent or changed.

    Raises: ApiError and MistakeError, as `send`; NegativeError, when the job fits nowhere now.
    """
    file = with_ids(session, file)
    found = preview(session, file)
    if file.code_folder is None:
        _show_plan(session, file, None, found)
    else:
        with _packed(file.code_folder) as archive:
            _show_plan(session, file, archive, found)
    if found is not None and not found["placeable"]:
        raise NegativeError(fit_text(found))


def array_size(job: dict[str, Any]) -> int | None:
    """How many jobs the array of a submission makes; None: there is no array."""
    array = job.get("array")
    return len(array) if isinstance(array, list) else array


def array_text(job: dict[str, Any], found: Document | None) -> str:
    """One line: the jobs of an array, and what all of them cost together; empty without one."""
    size = array_size(job)
    if size is None:
        return ""
    name = job.get("name")
    names = f"{name}-0" if size == 1 else f"{name}-0 to {name}-{size - 1}"
    said = f"array: {counted(size, 'job')}, {names}"
    if found is None or not found["placeable"]:
        return said
    hourly = _array_cost(size, found)
    if hourly is None:
        return f"{said}, each as follows"
    about = "about " * bool(found["offers"][0]["price_is_estimate"])
    return f"{said}; {about}{credits_text(hourly)} credits/h while all of them run, each as follows"


def _array_cost(size: int, found: Document) -> int | None:
    """Microcredits per hour of all jobs of an array; None: the API does not say it of one."""
    if not found["offers"]:
        return None
    return int(found["offers"][0]["microcredits_per_hour"]) * int(found["worker_count"]) * size


def fit_text(found: Document) -> str:
    """One line: where a job would go and for how much, or why it fits nowhere."""
    if found["placeable"]:
        return _fitting(found["offers"], found["worker_count"])
    text = reasons(found["refusals"])
    if text.startswith("waits: "):
        return f"fits nowhere now: {text.removeprefix('waits: ')}"
    return text or "fits nowhere now"


def _fitting(offers: list[Document], count: int) -> str:
    if not offers:
        return f"fits: {counted(count, 'worker')} on several machines"
    best = offers[0]
    price = credits_text(best["microcredits_per_hour"] * count)
    about = "about " * bool(best["price_is_estimate"])
    name = best["node_name"] or (
        f"{'spot ' * bool(best['spot'])}{best['machine_type']} in {best['region_name']}, to be made"
    )
    workers = f"{counted(count, 'worker')}, " if count > 1 else ""
    return f"fits: {name}, {workers}{about}{price} credits/h"


def _posted(session: Session, path: str, document: Document, file: JobFile) -> Document:
    try:
        return session.post(path, document)
    except ApiError as refusal:
        raise _with_places(refusal, file) from refusal


def _with_places(refusal: ApiError, file: JobFile) -> ApiError:
    """The same refusal, each broken rule with its line in the job file, or its option."""
    errors = [
        {"field": _placed(each, file), "rule": each.rule}
        | ({} if each.value is None else {"value": each.value})
        for each in refusal.errors
    ]
    problem = {"type": refusal.type, "title": refusal.title, "detail": refusal.detail}
    return ApiError(refusal.status, {**problem, "code": refusal.code, "errors": errors})


def _placed(error: FieldError, file: JobFile) -> str:
    place = file.place_of(error.field)
    return f"{place}: {error.field}" if place else error.field


def _check_code(file: JobFile, folder: Path) -> None:
    """Check what can be said of the code before the API is asked."""
    try:
        check_folder(folder)
        check_requirements(file, folder)
    except (JobFileError, PackingError) as cause:
        raise MistakeError(str(cause)) from cause


@contextmanager
def _packed(folder: Path) -> Iterator[PackedFile]:
    try:
        with pack_to_file(folder) as archive:
            yield archive
    except PackingError as cause:
        raise MistakeError(str(cause)) from cause


def _uploaded(session: Session, folder: Path) -> str:
    from baseload.calls import Call

    with _packed(folder) as archive:
        session.screen.say(_code_text(folder, archive))
        for name in archive.packed.outputs:
            session.screen.say(f"left out: {folder / name}, the output of a job")
        if ignored := _ignored(archive.packed):
            session.screen.say(f"left out: {ignored}")
        call = Call("POST", "/v1/uploads", file=archive.path)
        with spinner(session) as show:
            show("code: on its way")
            return str(session.transport.json(call)["id"])


def _code_text(folder: Path, archive: PackedFile) -> str:
    count, size = archive.packed.file_count, bytes_text(archive.size_bytes)
    return f"code: {counted(count, 'file')} of {folder}, {size} packed"


def _ignored(packed: Packed) -> str:
    """What ignore files leave out, in one line; empty without any."""
    found = [each for each in packed.left_out if each.by not in (ALWAYS, OUTPUT)]
    shown = ", ".join(f"{each.name} ({each.by})" for each in found[:MOST_LEFT_OUT])
    more = len(found) - MOST_LEFT_OUT
    return f"{shown} and {more} more (submit --dry-run)" if more > 0 else shown


def _show_plan(
    session: Session, file: JobFile, archive: PackedFile | None, found: Document | None
) -> None:
    if session.screen.as_json:
        code = None if archive is None else _code_document(file, archive)
        plan = {"job": _masked(file.job), "code": code, "preview": found}
        session.screen.json(plan | _array_document(file.job, found))
        return
    session.screen.result(f"{file.job.get('name')}: nothing is sent, this is a dry run")
    if archive is not None:
        session.screen.result(_code_text(Path(str(file.code_folder)), archive))
        if len(archive.packed.largest) < archive.packed.file_count:
            session.screen.result("  the largest of them:")
        for name, size in archive.packed.largest:
            session.screen.result(f"  {bytes_text(size):>10}  {name}")
        for each in archive.packed.left_out:
            session.screen.result(f"  left out: {each.name} ({each.by})")
    if array := array_text(file.job, found):
        session.screen.result(array)
    if found is None:
        session.screen.result("the API cannot say where the job would go")
        return
    if found["placeable"]:
        session.screen.result(fit_text(found))
    offers_table(session, found["offers"])
    refusals_table(session, found["refusals"])


def _array_document(job: dict[str, Any], found: Document | None) -> Document:
    size = array_size(job)
    if size is None:
        return {}
    is_placed = found is not None and found["placeable"]
    hourly = _array_cost(size, found) if found is not None and is_placed else None
    return {"array": {"job_count": size, "microcredits_per_hour": hourly}}


def _code_document(file: JobFile, archive: PackedFile) -> Document:
    packed = archive.packed
    return {
        "folder": str(file.code_folder),
        "file_count": packed.file_count,
        "content_bytes": packed.content_bytes,
        "packed_bytes": archive.size_bytes,
        "largest": [{"name": name, "bytes": size} for name, size in packed.largest],
        "left_out": [{"name": each.name, "by": each.by} for each in packed.left_out],
    }


def _masked(job: dict[str, Any]) -> dict[str, Any]:
    """The job without the values of its variables, which may be secrets."""
    environment = job.get("environment")
    if not isinstance(environment, dict) or not isinstance(environment.get("variables"), dict):
        return job
    variables = dict.fromkeys(environment["variables"], MASK)
    return job | {"environment": environment | {"variables": variables}}
