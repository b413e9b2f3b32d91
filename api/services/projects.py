"""Projects and their secrets: their responses and their changes."""

from collections.abc import Iterator, Sequence

from sqlmodel import col, select

from activities.db import tables
from activities.db.ids import new_id
from activities.federation.consent import wake_federated_of_project
from activities.secrets.credentials import STORED
from activities.secrets.sealing import secret_box
from api.authorization import USE_OF_SECRETS
from api.changes import ChangeContext
from api.problems import Problem, field_error, invalid
from api.schemas import accounts as schemas
from api.schemas.base import FieldError
from api.services.account_limits import check_limit
from api.services.lifecycles import names_of
from api.services.ownership import own, own_project
from workflows.contracts.artifacts import ArtifactStatus
from workflows.contracts.statuses import JobStatus
from workflows.rules.counts import some_of

STORE = "store://"


def project_response(row: tables.Project) -> schemas.Project:
    return schemas.Project(
        **row.model_dump(exclude={"federated_egress"}), federated_egress=row.federated_egress or []
    )


def secret_response(row: tables.StoredSecret) -> schemas.ProjectSecret:
    return schemas.ProjectSecret(
        name=row.name.rpartition("/")[2],
        reference=f"{STORE}{row.name}",
        updated_at=row.updated_at,
    )


def create_project(context: ChangeContext, asked: schemas.ProjectCreation) -> schemas.Project:
    """Create a project.

    Raises: Problem `conflict`, when the account has a project of this name; `limit-reached`.
    """
    _check_name(context, asked.name)
    check_limit(context, tables.Project)
    row = tables.Project(
        id=new_id("prj"),
        account_id=context.caller.account_id,
        name=asked.name,
        use_only_owned_resources=asked.use_only_owned_resources,
        on_quota_exhausted=asked.on_quota_exhausted,
        federated_egress=_without_doubles(asked.federated_egress),
        federated_logs=asked.federated_logs,
        created_at=context.now,
        updated_at=context.now,
    )
    context.session.add(row)
    return project_response(row)


def _check_name(context: ChangeContext, name: str) -> None:
    same = select(tables.Project).where(
        tables.Project.account_id == context.caller.account_id,
        tables.Project.name == name,
        col(tables.Project.removed_at).is_(None),
    )
    if context.session.exec(same).first():
        raise Problem("conflict", f"project {name}: there is one of this name")


def _without_doubles(egress: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(egress))


def change_project(
    context: ChangeContext, project_id: str, asked: schemas.ProjectChange
) -> schemas.Project:
    """Change the settings of a project.

    Raises: Problem `not-found`; `conflict`, for the Personal project or a name that another has.
    """
    row = _shared_kind(context, project_id, "changed")
    given = {name: getattr(asked, name) for name in asked.model_fields_set}
    empty = [field_error(name, "is not null") for name, value in given.items() if value is None]
    if empty:
        raise invalid(*empty)
    if given.get("name", row.name) != row.name:
        _check_name(context, given["name"])
    if "federated_egress" in given:
        given["federated_egress"] = _without_doubles(given["federated_egress"])
    for name, value in given.items():
        setattr(row, name, value)
    row.updated_at = context.now
    context.requests += wake_federated_of_project(context.session, row.id, context.now)
    return project_response(row)


def remove_project(context: ChangeContext, project_id: str) -> schemas.Project:
    """Remove a project in which nothing is left; its invitations are withdrawn with it.

    Raises: Problem `not-found`; `conflict`, for the Personal project, or with what is in it.
    """
    row = _shared_kind(context, project_id, "removed")
    named = "; ".join(f"{kind} {some_of(names)}" for kind, names in _holds(context, row) if names)
    if named:
        raise Problem("conflict", f"project {row.name}: has {named}; remove these first")
    row.removed_at = row.updated_at = context.now
    invitations = select(tables.Invitation).where(
        tables.Invitation.project_id == row.id, col(tables.Invitation.accepted_at).is_(None)
    )
    for each in context.session.exec(invitations):
        each.withdrawn_at = each.withdrawn_at or context.now
    return project_response(row)


def _shared_kind(context: ChangeContext, project_id: str, what: str) -> tables.Project:
    """The project, which nobody else uses until the transaction ends.

    Raises: Problem `not-found`; `conflict`, for the Personal project.
    """
    row = own_project(context.session, project_id, context.caller, lock="change")
    if row.personal:
        raise Problem("conflict", f"project {row.name}: the Personal project is not {what}")
    return row


def _holds(context: ChangeContext, row: tables.Project) -> Iterator[tuple[str, list[str]]]:
    """What is in a project, by its kind, with names."""
    session = context.session
    archived = JobStatus.ARCHIVED
    jobs = (tables.Job.project_id == row.id, col(tables.Job.status) != archived)
    yield "jobs", names_of(session, tables.Job, jobs)
    for plural, table in tables.ARTIFACT_TABLES.items():
        there = (table.project_id == row.id, col(table.status) != ArtifactStatus.ARCHIVED)
        yield plural, names_of(session, table, there)
    of_devices = tables.DeviceConfiguration
    kept = (of_devices.project_id == row.id, col(of_devices.removed_at).is_(None))
    yield "device configurations", names_of(session, of_devices, kept)
    name = col(tables.StoredSecret.name)
    folder = secrets_folder(row.id)
    secrets = select(name).where(name.startswith(folder, autoescape=True)).order_by(name)
    yield "secrets", [each.removeprefix(folder) for each in session.exec(secrets)]
    keys = select(tables.ThirdPartyKey.type).where(tables.ThirdPartyKey.project_id == row.id)
    yield "keys of other services", sorted(session.exec(keys))
    members = select(tables.ProjectMember.user_id).where(tables.ProjectMember.project_id == row.id)
    yield "members", sorted(session.exec(members))


def store_secret(
    context: ChangeContext, project_id: str, asked: schemas.ProjectSecretCreation
) -> schemas.ProjectSecret:
    """Encrypt and store a secret of the project; a secret of the same name is replaced."""
    own_project(context.session, project_id, context.caller, lock="use")
    path = f"{secrets_folder(project_id)}{asked.name}"
    context.resource_id = f"{STORE}{path}"
    if context.session.get(tables.StoredSecret, path) is None:
        check_limit(context, tables.StoredSecret)
    row = tables.StoredSecret(
        name=path,
        account_id=context.caller.account_id,
        sealed=secret_box(STORED, context.caller.account_id).seal(
            asked.value.encode(), path.encode()
        ),
        updated_at=context.now,
    )
    return secret_response(context.session.merge(row))


def remove_secret(context: ChangeContext, project_id: str, name: str) -> schemas.ProjectSecret:
    own_project(context.session, project_id, context.caller, lock="use")
    row = own(
        context.session, tables.StoredSecret, f"{secrets_folder(project_id)}{name}", context.caller
    )
    context.resource_id = f"{STORE}{row.name}"
    context.session.delete(row)
    return secret_response(row)


def refusal_of_secret(
    context: ChangeContext, project: tables.Project, field: str, name: str
) -> FieldError | None:
    """The field error of who may not use a secret of the project, or where it has none of this
    name; None: it may be used. Whoever may create jobs there may use its secrets by them."""
    if not context.caller.may(USE_OF_SECRETS):
        return field_error(field, f"needs the scope {USE_OF_SECRETS}", name)
    if context.session.get(tables.StoredSecret, f"{secrets_folder(project.id)}{name}") is None:
        rule = f"is a secret of project {project.id}: not found; baseload secret set"
        return field_error(field, rule, name)
    return None


def secrets_folder(project_id: str) -> str:
    """The path of a project's secrets under `store://`."""
    return f"projects/{project_id}/"
