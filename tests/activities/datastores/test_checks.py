"""Datastores as rows: who checks them, what is sealed for a site, what a removal forgets."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.artifacts.attempts import attempt_of
from activities.artifacts.contents import find_progress
from activities.datastores.checks import (
    find_datastore_checker,
    forget_datastore,
    seal_password,
)
from activities.datastores.readers import find_datastore_reader
from activities.datastores.uses import of_worker, regional_data
from activities.db import tables
from activities.db.session import Database
from activities.lifecycles.dependents import find_dependents
from activities.secrets.sealing import SealBrokenError, make_master_key
from activities.settings import settings
from activities.storage import contents
from activities.storage.blobs import BlobMissingError, blob_store
from activities.storage.contents import ContentWriter
from activities.storage.datastore_access import DatastoreAccess, RegionalData, open_access
from tests.activities.artifacts.artifact_rows import add_artifact
from tests.activities.rows import NOW, add_job, add_node, add_payer, add_region
from workflows.contracts import errors
from workflows.contracts.artifacts import RegionalSource
from workflows.contracts.datastores import DatastoreType
from workflows.contracts.job_submission import JobSubmission
from workflows.effects.artifacts import FindProgress
from workflows.effects.datastores import (
    FindDatastoreChecker,
    FindDatastoreReader,
    ForgetDatastore,
)
from workflows.effects.lifecycles import FindDependents

LAB, PASSWORD = "dst-01jd0000000000000000000000", "correct horse, battery"


@pytest.fixture(autouse=True)
def keyed(home: Path) -> None:
    make_master_key(settings().master_key_path)
    blob_store.cache_clear()


@pytest.fixture
def region_id(migrated: Database) -> str:
    """A region with a datastore and two active nodes."""
    with migrated.write() as session:
        account = add_payer(session)
        region = add_region(session, account)
        for name in ("n1", "n2"):
            add_node(session, region, name)
        row = tables.Datastore(
            id=LAB,
            account_id=account.id,
            region_id=region.id,
            name="lab",
            type="smb",
            host="nas",
            root_path="/data",
            user="ada",
            status="ready",
            created_at=NOW,
            updated_at=NOW,
        )
        seal_password(row, PASSWORD)
        session.add(row)
        found: str = region.id
    return found


def checker(*tried: str) -> Any:
    asked = FindDatastoreChecker(datastore_id=LAB, tried=tried)
    return ActivityEnvironment().run(find_datastore_checker, asked)


def test_active_nodes_are_asked_one_after_the_other(migrated: Database, region_id: str) -> None:
    first = checker()
    second = checker(first.node.node_id)
    assert {first.node_name, second.node_name} == {"n1", "n2"}
    assert checker(first.node.node_id, second.node.node_id).node is None
    with migrated.write() as session:
        session.get_one(tables.Node, first.node.node_id).status = "maintenance"
    assert checker().node == second.node


def test_the_password_is_sealed_for_the_site_of_the_region_alone(region_id: str) -> None:
    name = checker().access
    stored = blob_store(settings().storage).get(name)
    assert PASSWORD.encode() not in stored
    access = open_access(LAB, region_id)
    assert (access.password, access.user, access.host) == (PASSWORD, "ada", "nas")
    with pytest.raises(SealBrokenError):
        open_access(LAB, "reg-of-others")


def test_a_removal_forgets_the_password_and_is_repeated_in_silence(
    migrated: Database, region_id: str
) -> None:
    checker()
    for _ in range(2):
        ActivityEnvironment().run(forget_datastore, ForgetDatastore(datastore_id=LAB))
    with migrated.read() as session:
        assert session.get_one(tables.Datastore, LAB).sealed_password is None
    with pytest.raises(BlobMissingError):
        open_access(LAB, region_id)
    ActivityEnvironment().run(forget_datastore, ForgetDatastore(datastore_id="dst-none"))


def test_a_datastore_that_is_not_there_is_not_checked(migrated: Database) -> None:
    with pytest.raises(ApplicationError) as refused:
        checker()
    assert refused.value.type == errors.NOT_FOUND


def test_open_jobs_and_a_region_know_each_other_by_the_datastore(
    migrated: Database, region_id: str
) -> None:
    def found(resource_id: str) -> tuple[str, ...]:
        asked = FindDependents(resource_id=resource_id)
        ids: tuple[str, ...] = ActivityEnvironment().run(find_dependents, asked).ids
        return ids

    with migrated.write() as session:
        job = add_job(session, session.get_one(tables.Account, _account_of(session)))
        session.add(tables.JobDatastore(job_id=job.id, datastore_id=LAB))
        job_id = job.id
    assert found(LAB) == (job_id,)
    assert LAB in found(region_id)
    with migrated.write() as session:
        session.get_one(tables.Job, job_id).status = "finished"
        session.get_one(tables.Datastore, LAB).status = "archived"
    assert found(LAB) == ()
    assert LAB not in found(region_id)


def _account_of(session: Any) -> str:
    account_id: str = session.get_one(tables.Datastore, LAB).account_id
    return account_id


def submission(**data: Any) -> JobSubmission:
    return JobSubmission.model_validate(
        {"name": "a", "type": "training", "workers": [{"command": "true"}], "data": data}
    )


def test_a_run_is_told_of_the_folders_that_its_job_names(
    migrated: Database, region_id: str
) -> None:
    place = {"type": "regional", "datastore_id": LAB}
    with migrated.read() as session:
        found = regional_data(session, submission(input=place | {"path": "sets"}, output=place))
        assert (found["input"].path, found["output"].path) == ("sets", "/")
        assert found["input"].datastore.password == PASSWORD
        assert PASSWORD not in repr(found)
        assert regional_data(session, submission(output={"type": "local"})) == {}
    for status, words, kind in (
        ("removing", "is being removed", errors.UNAVAILABLE),  # which the job may yet prevent
        ("archived", "any more", errors.WORK_REFUSED),
    ):
        with migrated.write() as session:
            session.get_one(tables.Datastore, LAB).status = status
        with migrated.read() as session, pytest.raises(ApplicationError, match=words) as refused:
            regional_data(session, submission(input=place))
        assert refused.value.type == kind


def test_machines_in_networks_of_strangers_look_for_public_datastores_alone(
    migrated: Database, region_id: str
) -> None:
    def is_public_only() -> bool:
        return open_access(LAB, region_id).is_public_only if checker() else False

    assert not is_public_only()
    with migrated.write() as session:
        session.get_one(tables.Region, region_id).provider_kind = "vastai"
    assert is_public_only()


@pytest.mark.parametrize(
    ("path", "workers", "found"),
    [
        ("runs/first", 1, "runs/first"),
        ("runs/first/", 2, "runs/first/worker-1"),
        ("/", 2, "worker-1"),
        (".", 2, "worker-1"),
    ],
)
def test_several_workers_store_beside_each_other(path: str, workers: int, found: str) -> None:
    access = DatastoreAccess(
        id=LAB, name="lab", type=DatastoreType.NFS, host="nas", root_path="/srv"
    )
    places = {"output": RegionalData(datastore=access, path=path)}
    assert of_worker(places, 1, workers)["output"].path == found


def reader(dataset: str, *tried: str) -> Any:
    source = RegionalSource(type="regional", datastore_id=LAB, path="sets")
    asked = FindDatastoreReader(artifact_id=dataset, source=source, tried=tried)
    return ActivityEnvironment().run(find_datastore_reader, asked)


@pytest.fixture
def dataset(migrated: Database, region_id: str) -> str:
    with migrated.read() as session:
        account = session.get_one(tables.Account, _account_of(session))
    return add_artifact(migrated, account, source={"type": "regional"})


def test_a_node_reads_for_an_artifact_of_the_account_as_much_as_it_has_room_for(
    migrated: Database, region_id: str, dataset: str
) -> None:
    first = reader(dataset)
    assert first.node.region_id == region_id
    assert 0 < first.most_bytes <= settings().artifact_max_bytes
    assert open_access(LAB, region_id).password == PASSWORD
    second = reader(dataset, first.node.node_id)
    assert second.node.node_id != first.node.node_id
    assert reader(dataset, first.node.node_id, second.node.node_id).node is None


def test_an_account_reads_as_many_folders_at_once_as_it_has_slots_for_transfers(
    migrated: Database, region_id: str, dataset: str
) -> None:
    def set_status(artifact_id: str, status: str) -> None:
        with migrated.write() as session:
            table = tables.table_of_artifact(artifact_id)
            session.get_one(table, artifact_id).status = status

    with migrated.read() as session:
        account = session.get_one(tables.Account, _account_of(session))
    more = [
        add_artifact(migrated, account, source={"type": "regional"}, name=f"sets-{number}")
        for number in range(settings().account_transfers_at_once)
    ]
    for artifact_id in (dataset, *more[:-1], dataset):  # One that asks again has its slot.
        assert reader(artifact_id).node is not None
    for begins in (partial(reader, more[-1]), attempt_of(more[-1]).__enter__):
        with pytest.raises(ApplicationError, match="at most 3 transfers") as waits:
            begins()
        assert (waits.value.type, waits.value.non_retryable) == (errors.TRANSFER_WAITS, True)
    set_status(dataset, "ready")
    assert reader(more[-1]).node is not None
    set_status(more[0], "failed")
    with attempt_of(add_artifact(migrated, account, name="of-the-web")):
        pass


def test_a_datastore_of_others_or_one_that_goes_is_not_read(
    migrated: Database, region_id: str, dataset: str
) -> None:
    with migrated.write() as session:
        session.get_one(tables.Datastore, LAB).status = "removing"
    with pytest.raises(ApplicationError, match="is removing") as refused:
        reader(dataset)
    assert refused.value.type == errors.REFUSED
    with migrated.write() as session:
        row = session.get_one(tables.Datastore, LAB)
        row.status, row.account_id = "ready", add_payer(session, "other").id
    with pytest.raises(ApplicationError, match="no such datastore") as refused:
        reader(dataset)
    assert refused.value.type == errors.NOT_FOUND


def test_the_progress_of_a_node_is_that_of_the_store(
    migrated: Database, region_id: str, dataset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents, "PART_BYTES", 1000)
    ContentWriter(blob_store(settings().storage), dataset, "a share").write(b"x" * 2500)
    found = ActivityEnvironment().run(find_progress, FindProgress(artifact_id=dataset))
    assert found.bytes_transferred == 2000
    with migrated.read() as session:
        row = session.get_one(tables.table_of_artifact(dataset), dataset)
        assert row.bytes_transferred == 2000
