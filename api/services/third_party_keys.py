"""Third-party keys of projects: responses, changes, and who may have them used."""

from typing import Any

from sqlmodel import Session

from activities.db import tables
from activities.third_party_keys.reading import ThirdPartyKeyError, hint_of, read_key
from activities.third_party_keys.stored import key_row, key_rows, open_key, seal_key
from api.authorization import USE_OF_KEYS, Caller
from api.changes import ChangeContext
from api.problems import field_error, invalid, missing
from api.schemas.base import FieldError
from api.schemas.third_party_keys import ThirdPartyKey, ThirdPartyKeySetting
from api.services.ownership import own_project, projects_of
from workflows.contracts.artifacts import GitSource, KeyedSource, Source
from workflows.contracts.job_submission import JobSubmission
from workflows.contracts.third_party_keys import REGISTRY_TYPES, KeyType
from workflows.rules.jobs.formats import full_image
from workflows.rules.jobs.registries import registry_key


def key_response(row: tables.ThirdPartyKey) -> ThirdPartyKey:
    return ThirdPartyKey(**row.model_dump(exclude={"sealed", "account_id"}))


def set_key(context: ChangeContext, project_id: str, asked: ThirdPartyKeySetting) -> ThirdPartyKey:
    """Store a key of the project; an earlier one of its type is replaced.

    Raises: Problem `invalid-request`, whose rules never hold a value; `not-found`.
    """
    project = own_project(context.session, project_id, context.caller, lock="change")
    try:
        fields = read_key(asked.type, asked.value)
    except ThirdPartyKeyError as wrong:
        field = f"value.{wrong.field}" if wrong.field else "value"
        raise invalid(field_error(field, wrong.rule)) from None
    context.resource_id = _audited(project.id, asked.type)
    row = tables.ThirdPartyKey(
        project_id=project.id,
        type=asked.type.value,
        account_id=project.account_id,
        sealed=b"",
        hint=hint_of(asked.type, fields),
        set_by=context.caller.user_id,
        updated_at=context.now,
    )
    return key_response(seal_key(context.session, row, fields, context.now))


def remove_key(context: ChangeContext, project_id: str, key_type: str) -> ThirdPartyKey:
    """Remove a key; what has not begun yet and needs it then fails. Raises: Problem `not-found`."""
    project = own_project(context.session, project_id, context.caller, lock="change")
    row = context.session.get(tables.ThirdPartyKey, (project.id, key_type))
    if row is None:
        raise missing(f"project {project.name}: third-party key", key_type)
    context.resource_id = _audited(project.id, KeyType(row.type))
    context.session.delete(row)
    return key_response(row)


def may_use(session: Session, caller: Caller, project: tables.Project) -> bool:
    """Whether the caller may let sources and jobs of a project use the project's keys.

    This is a right of its own, because who has a key used can get at what the key opens: the scope
    `credentials:use`, and for members of the project the permission `credential`.
    """
    if not caller.may(USE_OF_KEYS):
        return False
    is_own = project.account_id == caller.account_id
    return is_own or project.id in projects_of(session, caller, "credential", "read")


def refusal_of_use(
    context: ChangeContext, project: tables.Project, field: str, kind: KeyType
) -> FieldError | None:
    """The field error of who may not use a key of the project, or where it has none of this type;
    None: it may be used."""
    if not may_use(context.session, context.caller, project):
        rule = f"needs the scope {USE_OF_KEYS}, and in another's project the permission credential"
        return field_error(field, rule, kind.value)
    if key_row(context.session, project.id, kind) is None:
        rule = f"is a key of project {project.id}: not found; baseload project key set {kind}"
        return field_error(field, rule, kind.value)
    return None


def wrong_keys(
    context: ChangeContext, document: Any, project: tables.Project | None
) -> list[FieldError]:
    """The field errors for third-party keys in a job's document that the job cannot have."""
    environment = document.get("environment")
    if not isinstance(environment, dict) or project is None:
        return []
    named = environment.get("credentials")
    asked = {
        f"environment.credentials.{index}": each
        for index, each in enumerate(named if isinstance(named, list) else ())
    }
    if (by := environment.get("image_credentials")) in REGISTRY_TYPES:
        asked["environment.image_credentials"] = by
    kinds = {field: KeyType(each) for field, each in asked.items() if each in tuple(KeyType)}
    wrong = (refusal_of_use(context, project, field, kind) for field, kind in kinds.items())
    return [each for each in wrong if each is not None]


def with_source_key(
    context: ChangeContext, source: Source, project: tables.Project, field: str = "source"
) -> Source:
    """A source that says whether it is read with the project's key of its type.

    field: where the request has the source. Raises: Problem `invalid-request`, when the key that it
    asks for is not there, or may not be used by the caller.
    """
    if not isinstance(source, KeyedSource):
        return source
    kind, secret = KeyType(source.type), getattr(source, "secret", None)
    over_ssh = isinstance(source, GitSource) and source.url.startswith("ssh://")
    if secret is not None and source.with_key:
        raise invalid(field_error(f"{field}.with_key", f"is not beside {field}.secret", True))
    if over_ssh or source.with_key:
        asked = source.model_copy(update={"with_key": True})
        check_source_key(context, asked, project, field)
        return asked
    if source.with_key is None and secret is None:
        row = key_row(context.session, project.id, kind)
        uses = row is not None and may_use(context.session, context.caller, project)
        return source.model_copy(update={"with_key": uses})
    return source.model_copy(update={"with_key": False})


def check_source_key(
    context: ChangeContext, source: Source, project: tables.Project, field: str = "source"
) -> None:
    """Check that the caller may have a source read with the project's key, if it is read so.

    Raises: Problem `invalid-request`.
    """
    if not isinstance(source, KeyedSource) or not source.with_key:
        return
    wrong = refusal_of_use(context, project, f"{field}.with_key", KeyType(source.type))
    if wrong is not None:
        raise invalid(wrong)


def with_image_key(
    context: ChangeContext, submission: JobSubmission, project: tables.Project
) -> JobSubmission:
    """The submission with the key by which its image is pulled, where the project has one for its
    registry and the caller may use it; as it is, where it names one itself."""
    environment = submission.environment
    if environment.image is None or environment.image_credentials is not None:
        return submission
    if not may_use(context.session, context.caller, project):
        return submission
    rows = key_rows(context.session, project.id, REGISTRY_TYPES)
    registries = {kind: open_key(row) for kind, row in rows.items()}
    kind = registry_key(full_image(environment.image), registries)
    if kind is None:
        return submission
    filled = environment.model_copy(update={"image_credentials": kind.value})
    return submission.model_copy(update={"environment": filled})


def _audited(project_id: str, kind: KeyType) -> str:
    return f"{project_id}/credentials/{kind.value}"
