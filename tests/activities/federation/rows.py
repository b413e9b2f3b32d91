"""A consumer with a machine and a project, and the owner of a model who is a member of it."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlmodel import Session, select

from activities.db import tables
from activities.db.ids import new_id
from activities.db.session import Database
from activities.jobs.submissions import sealed_variables, stored_spec
from tests.activities.rows import NOW, add_node, add_payer, add_region
from workflows.contracts.job_submission import JobSubmission


@dataclass(frozen=True)
class Federation:
    """The ids of both parties' rows, and one federated job that is new."""

    database: Database
    clinic_id: str
    maker_id: str
    maker_user_id: str
    project_id: str
    model_id: str
    federated_id: str
    job_id: str

    def row(self, session: Session | None = None) -> tables.FederatedJob:
        if session is not None:
            return session.get_one(tables.FederatedJob, self.federated_id)
        with self.database.read() as read:
            return read.get_one(tables.FederatedJob, self.federated_id)

    def set(self, table: type[Any], row_id: Any, **values: Any) -> None:
        with self.database.write() as session:
            row = session.get_one(table, row_id)
            for name, value in values.items():
                setattr(row, name, value)

    def ask_attestation(self) -> None:
        """Let the owner of the model have asked for machines that prove what they run."""
        spec = self.row().spec
        model = spec["data"]["model"] | {"needs_attestation": True}
        changed = spec | {"data": spec["data"] | {"model": model}}
        self.set(tables.FederatedJob, self.federated_id, spec=changed)

    def job(self) -> tables.Job | None:
        with self.database.read() as session:
            return session.get(tables.Job, self.job_id)


def federation(
    database: Database, at: datetime = NOW, *, type_: str = "inference", one_owner: bool = False
) -> Federation:
    """one_owner: the clinic has the model as well."""
    with database.write() as session:
        clinic = add_payer(session, "clinic")
        maker = clinic if one_owner else add_payer(session, "maker")
        maker.plan = "enterprise"
        (user,) = _users(session, maker)
        add_node(session, add_region(session, clinic))
        project = tables.Project(
            id=new_id("prj"), account_id=clinic.id, name="reads", use_only_owned_resources=True,
            federated_egress=["api.example.com:443"], created_at=at, updated_at=at,
        )  # fmt: skip
        model = tables.Model(
            id=new_id("mod"), account_id=maker.id, project_id=maker.personal_project_id,
            name="lungs", status="ready", source={}, creator_user_id=user.id,
            creator_account_id=maker.id, content_sha256="ab" * 32, size_bytes=70,
            unpacked_bytes=60, file_count=2, created_at=at, updated_at=at,
        )  # fmt: skip
        session.add_all([project, model])
        session.flush()
        member = tables.ProjectMember(
            project_id=project.id, user_id=user.id, permissions={"federated": "all"}, created_at=at
        )
        row = _row(user, project, model, type_)
        session.add_all([member, row])
        return Federation(
            database, clinic.id, maker.id, user.id, project.id, model.id, row.id, row.job_id
        )


def _users(session: Session, account: tables.Account) -> list[tables.User]:
    return list(session.exec(select(tables.User).where(tables.User.account_id == account.id)))


def _row(
    user: tables.User, project: tables.Project, model: tables.Model, type_: str
) -> tables.FederatedJob:
    job_id = new_id("job")
    submission = JobSubmission.model_validate(
        {
            "name": "reads",
            "type": type_,
            "project_id": project.id,
            "resources": {"gpus": "A100:1", "cpu_count": 1},
            "environment": {"variables": {"TOKEN": "a-variable-that-is-made-up"}},
            "data": {"model": {"id": model.id}, "output": None},
            "workers": [{"command": "python read.py"}],
            "placement": {"only_owned": True},
        }
    )
    return tables.FederatedJob(
        id=new_id("fed"), account_id=model.account_id, name="reads",
        consumer_account_id=project.account_id,
        project_id=project.id, model_id=model.id, creator_user_id=user.id, type=type_,
        job_id=job_id, spec=stored_spec(submission),
        sealed_variables=sealed_variables(job_id, submission), created_at=NOW, updated_at=NOW,
    )  # fmt: skip
