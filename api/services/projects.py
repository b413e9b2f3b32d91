"""Projects and their secrets: how they are shown, and how they are changed."""

from sqlmodel import select

from activities.db import tables
from activities.db.ids import new_id
from activities.secrets.sealing import secret_box
from api.changes import Step
from api.problems import Problem
from api.schemas import accounts as shapes
from api.services.ownership import own

STORE = "store://"


def shown_project(row: tables.Project) -> shapes.Project:
    return shapes.Project(**row.model_dump())


def shown_secret(row: tables.StoredSecret) -> shapes.ProjectSecret:
    return shapes.ProjectSecret(
        name=row.name.rpartition("/")[2],
        reference=f"{STORE}{row.name}",
        updated_at=row.updated_at,
    )


def create_project(step: Step, asked: shapes.ProjectCreation) -> shapes.Project:
    same = select(tables.Project).where(
        tables.Project.account_id == step.caller.account_id, tables.Project.name == asked.name
    )
    if step.session.exec(same).first():
        raise Problem("conflict", f"project {asked.name}: there is one of this name")
    row = tables.Project(
        id=new_id("prj"),
        account_id=step.caller.account_id,
        name=asked.name,
        use_only_owned_resources=asked.use_only_owned_resources,
        on_quota_exhausted=asked.on_quota_exhausted,
        created_at=step.now,
        updated_at=step.now,
    )
    step.session.add(row)
    return shown_project(row)


def store_secret(
    step: Step, project_id: str, asked: shapes.ProjectSecretCreation
) -> shapes.ProjectSecret:
    """Seal a value under the project; one of the same name is replaced."""
    own(step.session, tables.Project, project_id, step.caller)
    place = f"{secrets_folder(project_id)}{asked.name}"
    row = tables.StoredSecret(
        name=place,
        account_id=step.caller.account_id,
        sealed=secret_box().seal(asked.value.encode(), place.encode()),
        updated_at=step.now,
    )
    return shown_secret(step.session.merge(row))


def remove_secret(step: Step, project_id: str, name: str) -> shapes.ProjectSecret:
    own(step.session, tables.Project, project_id, step.caller)
    row = own(step.session, tables.StoredSecret, f"{secrets_folder(project_id)}{name}", step.caller)
    step.session.delete(row)
    return shown_secret(row)


def secrets_folder(project_id: str) -> str:
    """Where a project's secrets lie under `store://`."""
    return f"projects/{project_id}/"
