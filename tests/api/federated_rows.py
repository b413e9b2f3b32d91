"""Federated jobs over HTTP: a consumer with machines and data, and the owner of a model."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from activities.billing.ledger import add_credits
from activities.db import tables
from activities.db.ids import new_id
from tests.api.http_server import JOB, Person, Site
from tests.api.test_datastores import datastore


def federated_job(person: Person, **values: Any) -> str:
    """The row of a federated job of which the person is both parties, by default."""
    now, federated_id = datetime.now(UTC), new_id("fed")
    given = {
        "account_id": person.account_id,
        "consumer_account_id": person.account_id,
        "project_id": person.project_id,
        "creator_user_id": person.user_id,
        "model_id": "mod-1",
        "job_id": new_id("job"),
        **values,
    }
    row = tables.FederatedJob(
        id=federated_id, name="reads", type="inference", status="running", spec={},
        created_at=now, updated_at=now, **given,
    )  # fmt: skip
    person.site.write(row)
    return federated_id


@dataclass(frozen=True)
class Story:
    """Two parties who are ready: the clinic has the machines, the maker has the model."""

    clinic: Person
    maker: Person
    project_id: str
    model_id: str
    datastore_id: str

    @property
    def document(self) -> dict[str, Any]:
        return JOB | {
            "name": "reads",
            "type": "inference",
            "project_id": self.project_id,
            "data": {
                "model": {"id": self.model_id, "project_id": self.maker.project_id},
                "output": {"type": "regional", "datastore_id": self.datastore_id},
            },
        }

    def changed(self, **changes: Any) -> dict[str, Any]:
        """The document with other fields; those of `data` are added to its own."""
        data = self.document["data"] | changes.pop("data", {})
        return self.document | changes | {"data": data}

    def with_maker(self, maker: Person) -> "Story":
        return replace(self, maker=maker)

    async def created(self, **changes: Any) -> dict[str, Any]:
        """A federated job that is created."""
        return await self.maker.made("/v1/federated-jobs", self.changed(**changes))


async def story(site: Site) -> Story:
    """Both parties, the project with its settings, the membership, a node, a datastore, credits."""
    clinic, maker = site.account("clinic"), site.account("maker")
    site.set(tables.Account, maker.account_id, plan="enterprise")
    with site.database.write() as session:
        for person in (clinic, maker):
            account = session.get_one(tables.Account, person.account_id)
            add_credits(session, account, 10**9, person.account_id, datetime.now(UTC))
    region_id = await clinic.region()
    await clinic.node(region_id, services=["compute"])
    body = {"name": "reads", "use_only_owned_resources": True}
    project_id = str((await clinic.made("/v1/projects", body))["id"])
    join(site, maker, project_id, {"federated": "all"})
    source = {"name": "lungs", "source": {"type": "upload"}}
    model_id = str((await maker.made("/v1/models", source))["id"])
    content = {"content_sha256": "a" * 64, "size_bytes": 10, "unpacked_bytes": 10, "file_count": 1}
    site.set(tables.Model, model_id, status="ready", **content)
    return Story(clinic, maker, project_id, model_id, datastore(site, clinic, region_id))


def join(site: Site, person: Person, project_id: str, permissions: dict[str, str]) -> None:
    """Make the person a member of the project."""
    site.write(
        tables.ProjectMember(
            project_id=project_id,
            user_id=person.user_id,
            permissions=permissions,
            created_at=datetime.now(UTC),
        )
    )
