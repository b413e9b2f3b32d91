"""The rules for a submission: they return all field errors at once.

First come the errors that pydantic finds in the shape, then those that these rules find in the
well-formed part.
"""

from collections.abc import Callable, Collection, Sequence
from copy import deepcopy
from typing import Any

from pydantic import JsonValue, ValidationError

from workflows.contracts.base import Contract
from workflows.contracts.job_submission import (
    DataSource,
    FieldError,
    InputSource,
    JobModelReference,
    JobSubmission,
)
from workflows.contracts.statuses import JobType, ProviderKind
from workflows.contracts.third_party_keys import REGISTRY_TYPES, KeyType
from workflows.rules.datastores.places import path_mistake
from workflows.rules.jobs import formats
from workflows.rules.jobs.arrays import array_rules
from workflows.rules.jobs.bounds import out_of_bounds
from workflows.rules.jobs.data_places import (
    DESTINATIONS,
    ENTITIES,
    SOURCES,
    mistakes_of_destination,
    mistakes_of_source,
)
from workflows.rules.jobs.field_errors import Mistakes, field_error
from workflows.rules.jobs.labels import label_rules
from workflows.rules.jobs.resources import (
    amounts,
    gpu_names,
    gpus_asked,
    with_memory,
)
from workflows.rules.jobs.shape import rule_of

MAX_WORKERS = 256
MAX_PRICE = 10**12
MAX_RESTARTS = 100
MAX_RETRIES = 100
MAX_VOLUMES = 16
MAX_PROVIDER_NAME = 100

WORKERS = "workers"
_GPUS = frozenset({"resources.gpus", "resources.gpu_types", "resources.gpu_count"})
_READ_BY: dict[str, frozenset[str]] = {
    **dict.fromkeys(_GPUS, _GPUS | {"resources.cpu_count"}),
    "code": frozenset({"environment.requirements"}),
    "environment.image": frozenset({"environment.image_credentials"}),
}
"""A field, and the fields whose rules read it too."""
_STAND_INS: dict[str, JsonValue] = {"name": "unnamed", "command": "true", "upload_id": "upl-0"}
"""Values for required fields that could not be read, so that the rules can check the rest."""


class Reading(Contract):
    """The result of reading a document: a submission, or all its field errors."""

    submission: JobSubmission | None = None
    mistakes: tuple[FieldError, ...] = ()


def read_submission(document: Any, known_gpu_types: Collection[str] = ()) -> Reading:
    """Parse a document, and check it against every rule; with a mistake there is no submission.

    known_gpu_types: GPU types of the platform's nodes, also those outside the catalogue.
    A document that exceeds a bound gets the field errors of bounds alone.
    """
    exceeding = out_of_bounds(document)
    if exceeding:
        return Reading(mistakes=exceeding)
    try:
        submission = JobSubmission.model_validate(document)
    except ValidationError as error:
        return Reading(mistakes=_malformed(document, error, known_gpu_types))
    mistakes = mistakes_of(submission, known_gpu_types)
    if mistakes:
        return Reading(mistakes=mistakes)
    return Reading(submission=with_memory(submission))


def mistakes_of(
    submission: JobSubmission, known_gpu_types: Collection[str] = ()
) -> tuple[FieldError, ...]:
    """The field errors of every rule that the submission breaks; empty: none."""
    broken = [broken for rule in _RULES for broken in rule(submission)]
    return (*broken, *gpu_names(submission, known_gpu_types))


def _malformed(
    document: Any, error: ValidationError, known_gpu_types: Collection[str]
) -> tuple[FieldError, ...]:
    """The field errors of the shape, and those of the rules in the well-formed part."""
    shape = tuple(_mistake_of_shape(details) for details in error.errors())
    paths = [details["loc"] for details in error.errors()]
    if not isinstance(document, dict) or ("type",) in paths:
        return shape
    mended = deepcopy(document)
    try:
        for path in paths:
            _mend(mended, path)
        rest = mistakes_of(JobSubmission.model_validate(mended), known_gpu_types)
    except (ValidationError, LookupError, TypeError):
        return shape
    return shape + tuple(found for found in rest if not _follows(found.field, paths))


def _follows(field: str, paths: Sequence[tuple[int | str, ...]]) -> bool:
    """Whether a rule may be broken only because what lies at these paths was left out.

    That is a rule for such a path, for what lies below it, for the list that lacks an item there
    or its other items, and for a field whose rules read it.
    """
    for path in paths:
        is_item = isinstance(path[-1], int) and path[:-1] != (WORKERS,)
        name = ".".join(map(str, path[:-1] if is_item else path))
        if field == name or field.startswith(f"{name}."):
            return True
        if any(f"{name}.".startswith(f"{read}.") and field in by for read, by in _READ_BY.items()):
            return True
    return False


def _mistake_of_shape(details: Any) -> FieldError:
    path = details["loc"]
    given = details["input"]
    # A value that may be a secret by its path, or that is a whole part, is not sent back.
    hidden = details["type"] == "missing" or "variables" in path or "secrets" in path
    plain = isinstance(given, str | int | float | bool) and not hidden
    return FieldError(
        field=".".join(str(step) for step in path) or "job",
        rule=rule_of(JobSubmission, details),
        value=given if plain else None,
    )


def _mend(document: Any, path: tuple[int | str, ...]) -> None:
    """Delete a malformed field, or replace it with a stand-in if it is required."""
    *parents, last = path
    for step in parents:
        document = document[step]
    if parents == [WORKERS]:
        document[last] = {"command": _STAND_INS["command"]}
    elif last in _STAND_INS:
        document[last] = _STAND_INS[str(last)]
    else:
        del document[last]


def _identity(job: JobSubmission) -> Mistakes:
    if not formats.is_name(job.name):
        yield field_error("name", formats.NAME_RULE, job.name)
    if not 1 <= job.priority <= 5:
        yield field_error("priority", "is 1 (first) to 5 (last)", job.priority)
    if job.project_id is not None and not job.project_id.startswith("prj-"):
        yield field_error("project_id", "is the id of a project, prj-…", job.project_id)
    if job.code is not None and not job.code.upload_id.startswith("upl-"):
        yield field_error("code.upload_id", "is the id of an upload, upl-…", job.code.upload_id)


def _workers(job: JobSubmission) -> Mistakes:
    count = len(job.workers)
    if count == 0:
        yield field_error("workers", "has at least one worker", count)
    elif job.type != JobType.TRAINING and count != 1:
        yield field_error("workers", f"is exactly one for {job.type}", count)
    elif count > MAX_WORKERS:
        yield field_error("workers", f"has at most {MAX_WORKERS} workers", count)
    for index, worker in enumerate(job.workers):
        if not worker.command.strip():
            yield field_error(f"workers.{index}.command", "is not empty", worker.command)
        elif len(worker.command) > 65_536 or "\0" in worker.command:
            rule = "is at most 65536 characters, none of them NUL"
            yield field_error(f"workers.{index}.command", rule, None)


def _listening(job: JobSubmission) -> Mistakes:
    if job.port is not None and not 1024 <= job.port <= 65_535:
        yield field_error("port", "is 1024 to 65535", job.port)
    elif job.port is None and job.type.is_service and job.reservation_id is None:
        yield field_error("port", f"is needed: {job.type} listens on one", None)


def _reservation(job: JobSubmission) -> Mistakes:
    """The rules of a job that names a reservation, beside those that depend on the reservation."""
    if job.reservation_id is None:
        return
    if not job.reservation_id.startswith("rsv-"):
        yield field_error("reservation_id", "is the id of a reservation, rsv-…", job.reservation_id)
    if len(job.workers) > 1:
        rule = "is for a job with one worker, since one machine has the hostname"
        yield field_error("reservation_id", rule, job.reservation_id)
    if job.port is None and not job.type.is_service:
        rule = f"is needed beside reservation_id: {job.type} listens on none by itself"
        yield field_error("port", rule, None)


def _data(job: JobSubmission) -> Mistakes:
    data = job.data
    if data.datasets and job.type == JobType.INFERENCE:
        yield field_error("data.datasets", "are not for inference", [*data.datasets])
    yield from _artifact_ids("data.datasets", "a dataset, dat-…", data.datasets)
    yield from _volumes(job)
    yield from _artifact_ids("data.checkpoints", "a checkpoint, chk-…", data.checkpoints)
    if data.model is not None:
        yield from _model(job, data.model)
    if data.input is not None:
        yield from _input(job)
    if data.output is not None:
        yield from _output(job)
    if data.scratch is not None:
        yield from _scratch(data.scratch)


def _volumes(job: JobSubmission) -> Mistakes:
    ids = tuple(each.id for each in job.data.volumes)
    if ids and not job.type.is_service:
        yield field_error("data.volumes", "are for notebooks and endpoints", [*ids])
    if len(ids) > MAX_VOLUMES:
        yield field_error("data.volumes", f"are at most {MAX_VOLUMES}", len(ids))
    for mistake in _artifact_ids("data.volumes", "a volume, vol-…", ids):
        yield mistake.model_copy(update={"field": f"{mistake.field}.id"})


def _artifact_ids(field: str, kind: str, ids: tuple[str, ...]) -> Mistakes:
    """kind: what each names, with the prefix of its ids."""
    prefix = kind.rpartition(" ")[2].removesuffix("…")
    for index, each in enumerate(ids):
        if not each.startswith(prefix):
            yield field_error(f"{field}.{index}", f"is the id of {kind}", each)
        elif each in ids[:index]:
            yield field_error(f"{field}.{index}", "is named once", each)


def _model(job: JobSubmission, model: JobModelReference) -> Mistakes:
    if not model.id.startswith("mod-"):
        yield field_error("data.model.id", "is the id of a model, mod-…", model.id)
    if model.project_id is not None and model.project_id != job.project_id:
        rule = "is the job's own project; POST /v1/federated-jobs takes a model of another one"
        yield field_error("data.model.project_id", rule, model.project_id)
    if model.needs_attestation:
        rule = "is true or false, and true for POST /v1/federated-jobs alone, which seals the model"
        yield field_error("data.model.needs_attestation", rule, True)


def _input(job: JobSubmission) -> Mistakes:
    source = job.data.input
    assert source is not None  # noqa: S101 - the caller has checked
    if source.type in SOURCES:
        yield from mistakes_of_source(source)
        return
    if source.type not in ("local", "regional", *ENTITIES):
        known = ", ".join(("local", "regional", *ENTITIES, *SOURCES))
        yield field_error("data.input.type", f"is one of {known}", source.type)
        return
    yield from _datastore("data.input", source)
    yield from _given_id("upload_id", source, "local", "an upload, upl-…")
    if source.type in ENTITIES:
        kind = f"a {source.type}, {ENTITIES[source.type]}-…"
        yield from _given_id("id", source, source.type, kind)
    shared = {*DataSource.model_fields, *(("id",) if source.type in ENTITIES else ())}
    yield from _others("data.input", source, shared)


def _given_id(name: str, source: InputSource, kind: str, what: str) -> Mistakes:
    """The rules of an id that one type of input needs, and no other has.

    what: what it names, with the prefix of its ids.
    """
    field, given = f"data.input.{name}", getattr(source, name)
    if source.type != kind:
        if given is not None:
            yield field_error(field, f"is for {kind} input", given)
    elif given is None:
        yield field_error(field, f"is needed for {kind}: the id of {what}", None)
    elif not given.startswith(what.rpartition(" ")[2].removesuffix("…")):
        yield field_error(field, f"is the id of {what}", given)


def _others(field: str, part: DataSource, permitted: Collection[str]) -> Mistakes:
    """The rule that a part has no fields but these."""
    for name, value in part.model_dump(exclude_none=True).items():
        if name not in permitted:
            yield field_error(f"{field}.{name}", f"is not for {part.type}", value)


def _output(job: JobSubmission) -> Mistakes:
    target = job.data.output
    assert target is not None  # noqa: S101 - the caller has checked
    if job.type.is_service and target.type != "regional":
        yield field_error("data.output", f"is not for {job.type} unless regional", target.type)
    elif target.type in DESTINATIONS:
        yield from mistakes_of_destination(job, target)
        return
    elif target.type not in ("local", "regional"):
        known = ", ".join(("local", "regional", *DESTINATIONS))
        yield field_error("data.output.type", f"is one of {known}", target.type)
        return
    yield from _datastore("data.output", target)
    yield from _others("data.output", target, {*DataSource.model_fields} - {"upload_id"})


def _scratch(place: DataSource) -> Mistakes:
    if place.type != "regional":
        yield field_error("data.scratch.type", "is `regional`", place.type)
    yield from _datastore("data.scratch", place)
    if place.upload_id is not None:
        yield field_error("data.scratch.upload_id", "is for input alone", place.upload_id)


def _datastore(field: str, part: DataSource) -> Mistakes:
    """The rules of a folder of a datastore, beside those that depend on the datastore."""
    if part.type != "regional":
        for name in ("datastore_id", "path"):
            if (value := getattr(part, name)) is not None:
                yield field_error(f"{field}.{name}", "is for regional alone", value)
        return
    if part.datastore_id is None:
        yield field_error(f"{field}.datastore_id", "is needed for regional", None)
    elif not part.datastore_id.startswith("dst-"):
        rule = "is the id of a datastore, dst-…"
        yield field_error(f"{field}.datastore_id", rule, part.datastore_id)
    if part.path is not None and (broken := path_mistake(part.path)):
        yield field_error(f"{field}.path", broken, part.path)


def _environment(job: JobSubmission) -> Mistakes:
    environment = job.environment
    if environment.image is not None and not formats.is_image(environment.image):
        yield field_error("environment.image", formats.IMAGE_RULE, environment.image)
    for index, package in enumerate(environment.python_packages):
        if not formats.is_python_requirement(package):
            field = f"environment.python_packages.{index}"
            yield field_error(field, formats.PYTHON_REQUIREMENT_RULE, package)
    for index, package in enumerate(environment.apt_packages):
        if not formats.is_apt_package(package):
            field = f"environment.apt_packages.{index}"
            yield field_error(field, formats.APT_PACKAGE_RULE, package)
    if environment.image is not None and environment.apt_packages:
        rule = "are not installed into an image: bring an image that has them"
        yield field_error("environment.apt_packages", rule, [*environment.apt_packages])


def _requirements(job: JobSubmission) -> Mistakes:
    environment = job.environment
    asked = environment.requirements
    if asked is not None:
        if not formats.is_requirements_file(asked):
            yield field_error("environment.requirements", formats.REQUIREMENTS_RULE, asked)
        elif job.code is None:
            rule = "is a file of the code, and the job has none (code)"
            yield field_error("environment.requirements", rule, asked)
        if environment.image is not None:
            rule = "is not installed into an image: bring an image that has the packages"
            yield field_error("environment.requirements", rule, asked)
    for index, step in enumerate(environment.setup):
        if not step.strip() or "\0" in step:
            yield field_error(f"environment.setup.{index}", "is a command, without NUL", None)


def _variables(job: JobSubmission) -> Mistakes:
    environment = job.environment
    for part, names in (("variables", environment.variables), ("secrets", environment.secrets)):
        for name in names:
            if not formats.is_variable_name(name):
                yield field_error(f"environment.{part}", formats.VARIABLE_RULE, name)
    for name in sorted(environment.variables.keys() & environment.secrets.keys()):
        yield field_error("environment.secrets", "has no name that variables also has", name)
    for name, value in environment.variables.items():
        if "\0" in value or len(value) > 131_072:
            rule = "is at most 131072 characters, none of them NUL"
            yield field_error(f"environment.variables.{name}", rule, None)
    for name, reference in environment.secrets.items():
        if not formats.is_secret_reference(reference):
            yield field_error(f"environment.secrets.{name}", formats.SECRET_RULE, None)


def _credentials(job: JobSubmission) -> Mistakes:
    types, asked = tuple(KeyType), job.environment.credentials
    for index, each in enumerate(asked):
        field = f"environment.credentials.{index}"
        if each not in types:
            # What is no type may be the key itself, so it is not sent back.
            yield field_error(field, f"is one of {', '.join(types)}", None)
        elif each in asked[:index]:
            yield field_error(field, "is named once", each)
    by = job.environment.image_credentials
    if by is not None and by not in REGISTRY_TYPES:
        rule = f"is one of {', '.join(REGISTRY_TYPES)}"
        yield field_error("environment.image_credentials", rule, None)
    elif by is not None and job.environment.image is None:
        yield field_error("environment.image_credentials", "is beside environment.image alone", by)


def _placing(job: JobSubmission) -> Mistakes:
    region, providers = job.placement.region_id, job.placement.providers
    if region is not None and not region.startswith("reg-"):
        yield field_error("placement.region_id", "is the id of a region, reg-…", region)
    if providers is not None and not providers:
        yield field_error("placement.providers", "has at least one, or is left out", [])
    for index, provider in enumerate(providers or ()):
        field = f"placement.providers.{index}"
        if not 1 <= len(provider) <= MAX_PROVIDER_NAME or not provider.isprintable():
            kinds = ", ".join(sorted(kind.value for kind in ProviderKind))
            rule = f"is the id or the name of a provider, or one of {kinds}"
            yield field_error(field, rule, provider[:MAX_PROVIDER_NAME])
        elif provider in (providers or ())[:index]:
            yield field_error(field, "is named once", provider)


def _safety(job: JobSubmission) -> Mistakes:
    cap, idle = job.safety.price_cap_microcredits_per_hour, job.safety.idle_timeout_s
    if cap is not None and not 0 <= cap <= MAX_PRICE:
        rule = f"is 0 to {MAX_PRICE}"
        yield field_error("safety.price_cap_microcredits_per_hour", rule, cap)
    if not 60 <= idle <= 30 * 86_400:
        yield field_error("safety.idle_timeout_s", "is 60 to 2592000", idle)
    if not 0 <= job.safety.max_restarts <= MAX_RESTARTS:
        rule = f"is 0 to {MAX_RESTARTS}"
        yield field_error("safety.max_restarts", rule, job.safety.max_restarts)
    if not 0 <= job.safety.max_retries <= MAX_RETRIES:
        yield field_error("safety.max_retries", f"is 0 to {MAX_RETRIES}", job.safety.max_retries)
    longest_s = job.safety.max_duration_s
    if longest_s is not None and not 60 <= longest_s <= 365 * 86_400:
        yield field_error("safety.max_duration_s", "is 60 to 31536000", longest_s)


_RULES: tuple[Callable[[JobSubmission], Mistakes], ...] = (
    _identity,
    label_rules,
    gpus_asked,
    amounts,
    _workers,
    _listening,
    _reservation,
    _data,
    _environment,
    _requirements,
    _variables,
    _credentials,
    _placing,
    _safety,
    array_rules,
)
