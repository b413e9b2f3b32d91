"""Work orders out of rows: sealed for their site, with the project's own secrets alone."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update
from sqlmodel import col
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.accounts.accounts import add_account
from activities.db.session import Database
from activities.db.tables import (
    Allocation,
    Job,
    Node,
    Provider,
    Region,
    Reservation,
    StoredSecret,
    Upload,
)
from activities.jobs.run_specs import (
    discard_run_specs,
    seal_run_specs,
)
from activities.jobs.submissions import sealed_variables, stored_spec
from activities.secrets.credentials import STORED
from activities.secrets.sealing import SealBrokenError, secret_box
from activities.settings import settings
from activities.storage.blobs import BlobStore, blob_store
from activities.storage.run_specs import RunContent, open_run_spec, seal_run_spec
from workflows.contracts import errors
from workflows.contracts.artifacts import ArtifactRole, Content
from workflows.contracts.job_submission import JobSubmission
from workflows.contracts.jobs import WorkerAssignment
from workflows.contracts.nodes import NodeAddress
from workflows.contracts.statuses import JobStatus
from workflows.effects.jobs import (
    DiscardRunSpecs,
    RunSpecsSealed,
    SealRunSpecs,
)

NOW = datetime(2026, 1, 2, tzinfo=UTC)
SECRET, VARIABLE = "a-token-that-is-made-up", "a-variable-that-is-made-up"
JOB = "job-o"


def assignment(worker: int, region_id: str) -> WorkerAssignment:
    node = NodeAddress(
        node_id=f"nod-{region_id}",
        region_id=region_id,
        host="127.0.0.1",
        port=22,
        minion_id=f"SHA256:{region_id}",
    )
    return WorkerAssignment(worker=worker, node=node)


COMMAND = SealRunSpecs(
    job_id=JOB, attempt=1, assignments=(assignment(0, "reg-1"), assignment(1, "reg-2"))
)


@pytest.fixture
def project(migrated: Database, monkeypatch: pytest.MonkeyPatch) -> str:
    """A project with a secret, two nodes in two regions, an upload; its id."""
    monkeypatch.setenv("BASELOAD_SECRETS_KEY", "cd" * 32)
    settings.cache_clear()
    with migrated.write() as session:
        account, _ = add_account(session, "someone", "someone@example.com", NOW)
        times: dict[str, Any] = {"account_id": account.id, "created_at": NOW, "updated_at": NOW}
        session.add(Provider(id="prv-1", name="own", kind="physical", checks=[], **times))
        session.flush()
        for region_id in ("reg-1", "reg-2"):
            session.add(
                Region(
                    id=region_id,
                    name=region_id,
                    provider_id="prv-1",
                    provider_kind="physical",
                    relaxed_requirements=[],
                    options={},
                    **times,
                )
            )
            session.flush()
            session.add(
                Node(
                    id=f"nod-{region_id}",
                    name=region_id,
                    region_id=region_id,
                    minion_id=f"SHA256:{region_id}",
                    services=["compute"],
                    requirements=[],
                    **times,
                )
            )
        for upload_id, sha256 in (("upl-code", "aa" * 32), ("upl-input", "bb" * 32)):
            session.add(
                Upload(
                    id=upload_id,
                    account_id=account.id,
                    sha256=sha256,
                    size_bytes=1,
                    created_at=NOW,
                )
            )
    store_secret(migrated, account.id, f"projects/{account.personal_project_id}/token", SECRET)
    return account.personal_project_id


def store_secret(database: Database, account_id: str, place: str, value: str) -> None:
    sealed = secret_box(STORED, account_id).seal(value.encode(), place.encode())
    with database.write() as session:
        session.add(StoredSecret(name=place, account_id=account_id, sealed=sealed, updated_at=NOW))


def submit(
    database: Database,
    project_id: str,
    *,
    port: int | None = 8888,
    data: dict[str, object] | None = None,
    **environment: object,
) -> None:
    """A job of two workers, as the API writes its row."""
    submission = JobSubmission.model_validate(
        {
            "name": "orders",
            "type": "training",
            "project_id": project_id,
            "resources": {"gpus": "cpu", "cpu_count": 1, "disk_size_gb": 20},
            "environment": environment,
            "code": {"upload_id": "upl-code"},
            "data": data or {"input": {"type": "local", "upload_id": "upl-input"}},
            "workers": [{"command": "python first.py"}, {"command": "python second.py"}],
            "port": port,
        }
    )
    with database.write() as session:
        account, _ = add_account(session, "owner", "owner@example.com", NOW)
        session.add(
            Job(
                id=JOB,
                name="orders",
                account_id=account.id,
                project_id=project_id,
                type="training",
                spec=stored_spec(submission),
                sealed_variables=sealed_variables(JOB, submission),
                workers=[],
                placement_refusals=[],
                created_at=NOW,
                updated_at=NOW,
            )
        )
        session.flush()
        for worker, region_id in enumerate(("reg-1", "reg-2")):
            session.add(
                Allocation(
                    id=f"all-{worker}",
                    job_id=JOB,
                    worker=worker,
                    attempt=1,
                    node_id=f"nod-{region_id}",
                    cpu_count=1,
                    memory_bytes=0,
                    gpu_indices=[],
                    port=port,
                    created_at=NOW,
                )
            )


def seal() -> RunSpecsSealed:
    return ActivityEnvironment().run(seal_run_specs, COMMAND)


def refusal() -> ApplicationError:
    with pytest.raises(ApplicationError) as caught:
        seal()
    return caught.value


def store() -> BlobStore:
    return blob_store(settings().storage)


def test_what_isolates_a_worker_is_sealed_from_rows_and_not_from_the_command(
    migrated: Database, project: str
) -> None:
    submit(migrated, project)
    with migrated.write() as session:
        row = session.get(Node, "nod-reg-1")
        assert row is not None
        row.preparation = {"job_user": "baseload-job"}
    place = seal().references[0]
    isolation = open_run_spec(place, "reg-1").isolation
    assert isolation is not None
    assert isolation.job_user == "baseload-job"
    assert (isolation.node_id, isolation.minion_id) == ("nod-reg-1", "SHA256:reg-1")
    forged = COMMAND.assignments[0].model_copy(update={"job_user": None, "worker": 1})
    with pytest.raises(ApplicationError, match="no allocation"):
        ActivityEnvironment().run(
            seal_run_specs, COMMAND.model_copy(update={"assignments": (forged,)})
        )


def test_what_the_owner_of_a_node_has_set_up_is_for_jobs_of_that_account_alone(
    migrated: Database, project: str
) -> None:
    submit(migrated, project)
    with migrated.write() as session:
        session.execute(
            update(Node)
            .where(col(Node.id) == "nod-reg-2")
            .values(account_id=session.get_one(Job, JOB).account_id)
        )
    isolations = [
        open_run_spec(place, region).isolation
        for place, region in zip(seal().references, ("reg-1", "reg-2"), strict=True)
    ]
    assert [isolation and isolation.owned for isolation in isolations] == [False, True]


def variables() -> list[dict[str, str]]:
    """What each worker finds in its environment."""
    pairs = zip(seal().references, ("reg-1", "reg-2"), strict=True)
    return [open_run_spec(place, region).environment for place, region in pairs]


def test_workers_are_given_the_addresses_of_all_and_a_port_that_their_job_holds(
    migrated: Database, project: str
) -> None:
    submit(migrated, project, port=None)
    with migrated.write() as session:
        hardware = {"cpu_count": 1, "memory_bytes": 1, "addresses": ["203.0.113.9", "10.0.0.7"]}
        session.execute(update(Node).where(col(Node.id) == "nod-reg-1").values(hardware=hardware))
    first, second = variables()
    assert first["BASELOAD_WORKER_ADDRESSES"] == "127.0.0.1,127.0.0.1"  # The second says no other.
    assert (first["MASTER_ADDR"], second["MASTER_ADDR"]) == ("127.0.0.1", "10.0.0.7")
    assert (first["RANK"], second["RANK"], second["WORLD_SIZE"]) == ("0", "1", "2")
    with migrated.read() as session:
        held = session.get_one(Allocation, "all-0").port
    assert first["MASTER_PORT"] == second["MASTER_PORT"] == str(held)
    assert variables() == [first, second]  # What is repeated says the same.


def test_two_jobs_on_a_node_never_meet_at_one_port(migrated: Database, project: str) -> None:
    submit(migrated, project, port=None)
    taken = variables()[0]["MASTER_PORT"]
    with migrated.write() as session:
        session.execute(update(Allocation).values(attempt=2, port=None))
        other = session.get_one(Allocation, "all-0").model_dump()
        session.execute(update(Allocation).values(attempt=1))
        other |= {"id": "all-other", "worker": 7, "attempt": 9, "port": int(taken)}
        session.add(Allocation.model_validate(other))
    assert variables()[0]["MASTER_PORT"] != taken


def test_a_variable_of_the_job_itself_is_not_replaced(migrated: Database, project: str) -> None:
    submit(migrated, project, port=None, variables={"MASTER_PORT": "29500"})
    assert [each["MASTER_PORT"] for each in variables()] == ["29500", "29500"]


def test_packages_stay_on_a_node_only_where_the_regions_owner_lets_them_the_owners_too(
    migrated: Database, project: str
) -> None:
    submit(migrated, project, apt_packages=["ffmpeg"])
    found = []
    for allowed in (False, True):
        with migrated.write() as session:
            session.execute(update(Region).values(allows_apt_packages=allowed))
        isolation = open_run_spec(seal().references[0], "reg-1").isolation
        assert isolation is not None
        found.append((isolation.owned, isolation.allows_apt_packages))
    with migrated.write() as session:
        session.execute(update(Region).values(allows_apt_packages=False))
        session.execute(update(Node).values(account_id=session.get_one(Job, JOB).account_id))
    isolation = open_run_spec(seal().references[0], "reg-1").isolation
    assert isolation is not None
    found.append((isolation.owned, isolation.allows_apt_packages))
    assert found == [(False, False), (False, True), (True, False)]


def test_each_worker_gets_its_order_with_variables_secrets_and_hashes(
    migrated: Database, project: str
) -> None:
    submit(
        migrated,
        project,
        python_packages=["scikit-learn"],
        requirements="requirements.txt",
        setup=["pip install -e .", "make data"],
        variables={"EPOCHS": VARIABLE},
        secrets={"TOKEN": f"store://projects/{project}/token"},
    )
    references = seal().references
    assert references == ("orders/job-o/1/0", "orders/job-o/1/1")
    first, second = (
        open_run_spec(place, region)
        for place, region in zip(references, ("reg-1", "reg-2"), strict=True)
    )
    assert (first.command, second.command) == ("python first.py", "python second.py")
    assert (first.run_id, second.run_id) == ("job-o-0-1", "job-o-1-1")
    assert second.environment == {
        "EPOCHS": VARIABLE,
        "TOKEN": SECRET,
        "BASELOAD_JOB_ID": JOB,
        "BASELOAD_WORKER": "1",
        "BASELOAD_WORKERS": "2",
        "BASELOAD_WORKER_ADDRESSES": "127.0.0.1,127.0.0.1",
        "MASTER_ADDR": "127.0.0.1",
        "RANK": "1",
        "NODE_RANK": "1",
        "WORLD_SIZE": "2",
    }
    assert (first.code_sha256, first.input_sha256) == ("aa" * 32, "bb" * 32)
    assert first.python_packages == ("scikit-learn",)
    assert first.requirements == "requirements.txt"
    assert first.setup == ("pip install -e .", "make data")
    assert (first.disk_size_gb, first.port) == (20, 8888)


def test_nothing_secret_is_readable_in_the_store_or_told_to_temporal(
    migrated: Database, project: str, home: Path
) -> None:
    submit(
        migrated,
        project,
        variables={"EPOCHS": VARIABLE},
        secrets={"TOKEN": f"store://projects/{project}/token"},
    )
    told = pydantic_data_converter.payload_converter.to_payloads([COMMAND, seal()])
    written = [path.read_bytes() for path in home.rglob("*") if path.is_file()]
    assert any(written)
    for content in (*(payload.data for payload in told), *written):
        assert SECRET.encode() not in content
        assert VARIABLE.encode() not in content
    assert not any(b"first.py" in payload.data for payload in told)


def test_an_order_opens_for_its_own_site_and_at_its_own_place_alone(
    migrated: Database, project: str
) -> None:
    submit(migrated, project)
    first, second = seal().references
    with pytest.raises(SealBrokenError):
        open_run_spec(first, "reg-2")
    store().put(second, store().get(first))
    with pytest.raises(SealBrokenError):
        open_run_spec(second, "reg-1")


def test_sealing_twice_leaves_the_same_orders(migrated: Database, project: str) -> None:
    submit(migrated, project, variables={"EPOCHS": VARIABLE})
    references = seal().references
    before = open_run_spec(references[0], "reg-1")
    assert seal().references == references
    assert open_run_spec(references[0], "reg-1") == before
    assert store().names("orders") == list(references)


@pytest.mark.parametrize(
    "reference",
    [
        "store://projects/prj-of-others/token",
        "store://providers/gcp/service_account_key",
        "env://BASELOAD_SECRETS_KEY",
        "file:///etc/shadow",
        "store://projects/{project}/../prj-of-others/token",
    ],
)
def test_a_job_can_name_no_secret_but_its_projects_own(
    migrated: Database, project: str, reference: str
) -> None:
    for place in ("projects/prj-of-others/token", "providers/gcp/service_account_key"):
        with migrated.read() as session:
            region = session.get(Region, "reg-1")
        assert region is not None
        store_secret(migrated, region.account_id, place, SECRET)
    asked = reference.format(project=project)
    submit(migrated, project, secrets={"TOKEN": asked})
    found = refusal()
    assert found.type == errors.WORK_REFUSED
    assert "environment.secrets.TOKEN" in str(found)
    assert asked in str(found)
    assert SECRET not in str(found)
    assert store().names("orders") == []


def test_a_secret_that_is_not_there_any_more_is_named(migrated: Database, project: str) -> None:
    submit(migrated, project, secrets={"TOKEN": f"store://projects/{project}/gone"})
    found = refusal()
    assert (found.type, f"projects/{project}/gone" in str(found)) == (errors.WORK_REFUSED, True)


def test_a_job_that_is_not_there_is_named(project: str) -> None:
    assert project
    found = refusal()
    assert (found.type, JOB in str(found)) == (errors.NOT_FOUND, True)


def test_orders_of_one_attempt_are_discarded_and_doing_it_again_is_silent(
    migrated: Database, project: str
) -> None:
    submit(migrated, project)
    seal()
    store().put("orders/job-o/2/0", b"the next attempt's")
    for _ in range(2):
        ActivityEnvironment().run(discard_run_specs, DiscardRunSpecs(job_id=JOB, attempt=1))
    assert store().names("orders") == ["orders/job-o/2/0"]


@pytest.mark.parametrize("status", [JobStatus.UPLOADING, JobStatus.FINISHED, JobStatus.ARCHIVED])
def test_a_writer_that_stood_still_until_the_job_was_over_leaves_no_orders(
    migrated: Database, project: str, monkeypatch: pytest.MonkeyPatch, status: JobStatus
) -> None:
    submit(migrated, project)

    def slowly(*order: Any) -> str:
        with migrated.write() as session:
            session.execute(update(Job).where(col(Job.id) == JOB).values(status=status))
        return seal_run_spec(*order)

    monkeypatch.setattr("activities.jobs.run_specs.seal_run_spec", slowly)
    seal()
    assert store().names("orders") == []


@pytest.mark.parametrize(
    ("status", "writes"),
    [
        (JobStatus.RUNNING, False),
        (JobStatus.UNREACHABLE, False),
        (JobStatus.UPLOADING, True),
    ],
)
def test_a_writer_that_stood_still_until_the_job_ran_takes_no_orders_away(
    migrated: Database,
    project: str,
    monkeypatch: pytest.MonkeyPatch,
    status: JobStatus,
    writes: bool,
) -> None:
    """Who stores a volume reads them, as long as the run is there."""
    submit(migrated, project)
    volume = RunContent(
        artifact_id="vol-1",
        role=ArtifactRole.VOLUME_WRITER,
        name="notes",
        content=Content(sha256="0" * 64, size_bytes=1, unpacked_bytes=1, file_count=1),
    )

    def slowly(*order: Any) -> str:
        with migrated.write() as session:
            session.execute(update(Job).where(col(Job.id) == JOB).values(status=status))
        return seal_run_spec(*order)

    monkeypatch.setattr("activities.jobs.run_specs.contents_of", lambda *_: (volume,) * writes)
    monkeypatch.setattr("activities.jobs.run_specs.seal_run_spec", slowly)
    seal()
    assert store().names("orders") == ["orders/job-o/1/0", "orders/job-o/1/1"]


def test_the_hostname_of_a_reservation_is_sealed_and_its_port_is_for_the_network(
    migrated: Database, project: str
) -> None:
    submit(migrated, project)
    with migrated.write() as session:
        job = session.get_one(Job, JOB)
        job.spec = {**job.spec, "type": "endpoint"}
    assert open_run_spec(seal().references[0], "reg-1").is_port_private is True
    with migrated.write() as session:
        held = session.get_one(Allocation, "all-0")
        node = session.get_one(Node, held.node_id)
        row = Reservation(
            id="rsv-1", account_id=node.account_id, region_id=node.region_id, name="front",
            type="port", hostname="web", port=8888, created_at=NOW,
        )  # fmt: skip
        session.add(row)
        session.flush()
        held.reservation_id = row.id
        order = int(held.created_at.timestamp() * 1000)
    spec = open_run_spec(seal().references[0], "reg-1")
    assert spec.is_port_private is False
    assert spec.hostname is not None
    address = COMMAND.assignments[0].node.host
    assert spec.hostname.model_dump() == {
        "reservation_id": "rsv-1", "hostname": "web", "order": order, "address": address
    }  # fmt: skip
