"""The references in a job's document: uploads, artifacts, regions, providers and secrets.

The document is checked as it was sent, so that the answer names a wrong id together with all
other mistakes.
"""

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any

from sqlmodel import col, select

from activities.db import tables
from api.changes import ChangeContext
from api.problems import field_error
from api.schemas.base import FieldError
from api.services.job_datastores import wrong_datastores
from api.services.job_deliveries import wrong_destination
from api.services.job_inputs import wrong_input
from api.services.job_providers import wrong_gpu_types, wrong_providers
from api.services.lifecycles import GONE
from api.services.ownership import projects_of, visible_artifacts
from api.services.third_party_keys import wrong_keys
from workflows.contracts.artifacts import ArtifactStatus, VolumeAccess
from workflows.contracts.lifecycles import CHECKPOINT, DATASET, MODEL, VOLUME, LifecycleNoun
from workflows.contracts.statuses import RegionStatus
from workflows.rules.jobs.bounds import out_of_bounds
from workflows.rules.jobs.formats import project_of_secret, secret_reference

_INPUT = ("data", "input", "id")
_ARTIFACTS = (
    (DATASET, ("data", "datasets")),
    (MODEL, ("data", "model", "id")),
    (CHECKPOINT, ("data", "checkpoints")),
    (VOLUME, ("data", "volumes")),
    *((noun, _INPUT) for noun in (DATASET, MODEL, CHECKPOINT)),
)
_COMES = (ArtifactStatus.NEW, ArtifactStatus.TRANSFERRING)
_FEDERATED = (
    "its owner can take it to another one's project by a federated job"
    " (POST /v1/federated-jobs, baseload federated create)"
)
NAMED_AGAIN = timedelta(days=1)
"""Far below the retention of uploads."""


def wrong_references(
    context: ChangeContext, document: Any, noun: str = "job", known_gpu_types: Sequence[str] = ()
) -> list[FieldError]:
    """The field errors for ids in the document that name no resource that the caller may use.

    noun: what a member needs the permission `all` for, `job` or `federated`.
    known_gpu_types: those of the platform's nodes.
    """
    if not isinstance(document, dict) or out_of_bounds(document):
        return []
    project = _project_of(context, document, noun)
    owner_id = context.caller.account_id if project is None else project.account_id
    found = [
        _wrong_upload(context, document, ("code", "upload_id")),
        _wrong_upload(context, document, ("data", "input", "upload_id")),
        _wrong_region(context, document, owner_id),
        *wrong_providers(context.session, document, owner_id, context.caller.account_id),
        *wrong_gpu_types(context.session, document, owner_id, known_gpu_types),
        *_wrong_secrets(context, document, project, noun),
        *_wrong_artifacts(context, document),
        *wrong_datastores(context, document, owner_id),
        *wrong_keys(context, document, project),
        *wrong_input(context, document, project),
        *wrong_destination(context, document, project),
    ]
    return [wrong for wrong in found if wrong is not None]


def _at(document: Any, path: tuple[str, ...]) -> Any:
    for part in path:
        document = document.get(part) if isinstance(document, dict) else None
    return document


def _wrong_upload(
    context: ChangeContext, document: Any, path: tuple[str, ...]
) -> FieldError | None:
    upload_id = _at(document, path)
    if not isinstance(upload_id, str) or not upload_id.startswith("upl-"):
        return None
    row = context.session.get(tables.Upload, upload_id)
    if row is not None and row.account_id == context.caller.account_id and _is_kept(context, row):
        return None
    return field_error(".".join(path), "is an upload of this account: not found", upload_id)


def _is_kept(context: ChangeContext, upload: tables.Upload) -> bool:
    """Whether the upload stays for the job; False: housekeeping is removing it.

    Its row is locked and written only if no job has named it for a while, so that many jobs with
    one upload do not wait for each other.
    """
    last_used_at = upload.named_at or upload.created_at
    if upload.removed_at is None and context.now - last_used_at < NAMED_AGAIN:
        return True
    locked = context.session.get(
        tables.Upload, upload.id, populate_existing=True, with_for_update=True
    )
    if locked is None or locked.removed_at is not None:
        return False
    locked.named_at = context.now
    return True


def _project_of(
    context: ChangeContext, document: dict[str, Any], noun: str
) -> tables.Project | None:
    """The project of the job, whose account pays for it; None: the caller may create none there."""
    project_id = document.get("project_id") or personal_project(context)
    project = (
        context.session.get(tables.Project, project_id) if isinstance(project_id, str) else None
    )
    return project if project is not None and _may_create(context, project, noun) else None


def _may_create(context: ChangeContext, project: tables.Project, noun: str) -> bool:
    """Whether the caller may create jobs, or federated jobs, in a project."""
    is_own = project.account_id == context.caller.account_id
    return is_own or project.id in projects_of(context.session, context.caller, noun, "all")


def _wrong_region(context: ChangeContext, document: Any, owner_id: str) -> FieldError | None:
    region_id = _at(document, ("placement", "region_id"))
    if not isinstance(region_id, str) or not region_id.startswith("reg-"):
        return None
    row = context.session.get(tables.Region, region_id)
    usable = row is not None and (row.public or row.account_id == owner_id)
    if row is not None and usable and row.status not in (*GONE, RegionStatus.FAILED):
        return None
    rule = "is a region that the project's account may use: not found"
    return field_error("placement.region_id", rule, region_id)


def _wrong_secrets(
    context: ChangeContext, document: Any, project: tables.Project | None, noun: str
) -> list[FieldError]:
    """The field errors for references that name no secret of the job's own project.

    project: of the job, in which the caller may create jobs; nobody else learns what it has. The
    permission for federated jobs gives no use of its secrets.
    """
    references = _at(document, ("environment", "secrets"))
    if not isinstance(references, dict) or project is None:
        return []
    project_id, wrong = project.id, []
    if noun != "job" and references and not _may_create(context, project, "job"):
        rule = "is empty: secrets of another's project need the permission job:all"
        return [field_error("environment.secrets", rule, None)]
    for name, given in references.items():
        if not isinstance(given, str):
            continue
        reference = secret_reference(project_id, given)
        asked = project_of_secret(reference)
        if asked is None:
            continue
        field = f"environment.secrets.{name}"
        if asked != project_id:
            rule = f"is of the job's own project, store://projects/{project_id}/…"
            wrong.append(field_error(field, rule, reference))
        elif context.session.get(tables.StoredSecret, reference.removeprefix("store://")) is None:
            # What is no reference may be the secret itself, so it is not sent back.
            shown = reference if reference == given else None
            wrong.append(field_error(field, "names a secret of the project: not found", shown))
    return wrong


def _wrong_artifacts(context: ChangeContext, document: Any) -> list[FieldError]:
    """The field errors for datasets, models, checkpoints and volumes that the job cannot have.

    Those that it can have are locked, so that none of them is removed before the job uses it.
    """
    project_id = document.get("project_id") or personal_project(context)
    wrong = []
    for noun, path in _ARTIFACTS:
        fields = _named(document, path)
        ids = {each for each in fields.values() if isinstance(each, str)}
        named = {each for each in ids if each.startswith(f"{noun.prefix}-")}
        rows = _artifacts(context, noun, named) if named else {}
        for field, each in fields.items():
            if each in named:
                rule = _why_not(noun, rows.get(each), str(project_id))
                wrong += [field_error(field, rule, each)] if rule else []
    return wrong + _not_writable(context, document)


def _not_writable(context: ChangeContext, document: dict[str, Any]) -> list[FieldError]:
    """The field errors for volumes that the job would write to and the caller may only read."""
    asked = _at(document, ("data", "volumes"))
    written = {
        f"data.volumes.{index}.access": each["id"]
        for index, each in enumerate(asked if isinstance(asked, list) else ())
        if isinstance(each, dict)
        and each.get("access") == VolumeAccess.WRITE
        and isinstance(each.get("id"), str)
    }
    if not written:
        return []
    session, caller, table = context.session, context.caller, tables.Volume
    named = select(table.id).where(
        col(table.id).in_(written.values()), visible_artifacts(session, caller, table)
    )
    readable = set(session.exec(named))
    writable = set(session.exec(named.where(visible_artifacts(session, caller, table, "all"))))
    rule = "is read: the caller has no permission to change this volume"
    return [
        field_error(field, rule, VolumeAccess.WRITE.value)
        for field, each in written.items()
        if each in readable - writable
    ]


def _named(document: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    """What a document names at a path, by field: one value, a list of them, or of objects."""
    asked, field = _at(document, path), ".".join(path)
    if not isinstance(asked, list):
        return {field: asked}
    return {
        f"{field}.{index}{'.id' if isinstance(each, dict) else ''}": (
            each.get("id") if isinstance(each, dict) else each
        )
        for index, each in enumerate(asked)
    }


def _artifacts(
    context: ChangeContext, noun: LifecycleNoun, ids: Collection[str]
) -> dict[str, tables.ArtifactRow]:
    """Those of the artifacts that the caller may read, locked against their removal."""
    table = tables.ARTIFACT_TABLES[noun.plural]
    query = (
        select(table)
        .where(col(table.id).in_(ids), visible_artifacts(context.session, context.caller, table))
        .order_by(col(table.id))
        .with_for_update(read=True)
    )
    return {row.id: row for row in context.session.exec(query)}


def _why_not(noun: LifecycleNoun, row: tables.ArtifactRow | None, project_id: str) -> str | None:
    """The rule that an artifact of a job breaks; None: the job can have it."""
    if row is None:
        return f"is a {noun.name} of the job's project: not found"
    if row.project_id != project_id:
        rule = (
            f"is a {noun.name} of the job's project {project_id}: this one is of {row.project_id}"
        )
        return f"{rule}; {_FEDERATED}" if noun is MODEL else rule
    if row.status not in (ArtifactStatus.READY, *_COMES):
        return f"is ready, or is being transferred: this {noun.name} is {row.status}"
    return None


def personal_project(context: ChangeContext) -> str:
    account = context.session.get_one(tables.Account, context.caller.account_id)
    return account.personal_project_id
