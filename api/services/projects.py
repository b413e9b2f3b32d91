"""Projects and their secrets: their responses and their changes."""

from sqlmodel import select

from activities.db import tables
from activities.db.ids import new_id
from activities.secrets.credentials import STORED
from activities.secrets.sealing import secret_box
from api.authorization import USE_OF_SECRETS
from api.changes import ChangeContext
from api.problems import Problem, field_error
from api.schemas import accounts as schemas
from api.schemas.base import FieldError
from api.services.account_limits import check_limit
from api.services.ownership import own

STORE = "store://"


def project_response(row: tables.Project) -> schemas.Project:
    return schemas.Project(**row.model_dump())


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
    same = select(tables.Project).where(
        tables.Project.account_id == context.caller.account_id, tables.Project.name == asked.name
    )
    if context.session.exec(same).first():
        raise Problem("conflict", f"project {asked.name}: there is one of this name")
    check_limit(context, tables.Project)
    row = tables.Project(
        id=new_id("prj"),
        account_id=context.caller.account_id,
        name=asked.name,
        use_only_owned_resources=asked.use_only_owned_resources,
        on_quota_exhausted=asked.on_quota_exhausted,
        created_at=context.now,
        updated_at=context.now,
    )
    context.session.add(row)
    return project_response(row)


def store_secret(
    context: ChangeContext, project_id: str, asked: schemas.ProjectSecretCreation
) -> schemas.ProjectSecret:
    """Encrypt and store a secret of the project; a secret of the same name is replaced."""
    own(context.session, tables.Project, project_id, context.caller)
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
    own(context.session, tables.Project, project_id, context.caller)
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
