"""Nothing that a job keeps is sealed for a machine of strangers, wherever placement has put it."""

from typing import Any

import pytest
from sqlmodel import col, update

from activities.db.session import Database
from activities.db.tables import Datastore, Job, Region
from tests.activities.jobs.test_run_specs import (
    JOB,
    NOW,
    SECRET,
    project,
    refusal,
    seal,
    submit,
    variables,
)

__all__ = ["project"]


@pytest.mark.parametrize("region_id", ["reg-1", "reg-2"])
@pytest.mark.parametrize(
    "given",
    [
        {"secrets": {"TOKEN": "store://projects/PROJECT/token"}},
        {"data": {"input": {"type": "regional", "datastore_id": "dst-1", "path": "/"}}},
    ],
)
def test_nothing_that_a_job_keeps_is_sealed_for_a_strangers_machine_wherever_it_was_placed(
    migrated: Database, project: str, region_id: str, given: dict[str, Any]
) -> None:
    if secrets := given.get("secrets"):
        given = {"secrets": {k: v.replace("PROJECT", project) for k, v in secrets.items()}}
    else:
        add_datastore(migrated)
    submit(migrated, project, **given)
    seal()
    with migrated.write() as session:
        of_strangers = update(Region).where(col(Region.id) == region_id)
        session.execute(of_strangers.values(provider_kind="vastai"))
    found = refusal()
    assert found.type == "WorkRefused"
    assert f"nod-{region_id} is a stranger's machine" in found.message
    assert SECRET not in found.message


def test_a_job_that_gives_its_secrets_to_strangers_has_them_there(
    migrated: Database, project: str
) -> None:
    submit(migrated, project, secrets={"TOKEN": f"store://projects/{project}/token"})
    with migrated.write() as session:
        session.execute(update(Region).values(provider_kind="vastai"))
        job = session.get_one(Job, JOB)
        job.spec = {**job.spec, "placement": {**job.spec["placement"], "untrusted": True}}
    assert [each["TOKEN"] for each in variables()] == [SECRET, SECRET]


def add_datastore(database: Database) -> None:
    with database.write() as session:
        region = session.get_one(Region, "reg-1")
        session.add(
            Datastore(
                id="dst-1",
                account_id=region.account_id,
                region_id=region.id,
                name="lab",
                type="nfs",
                host="nas",
                root_path="/srv",
                status="ready",
                created_at=NOW,
                updated_at=NOW,
            )
        )
