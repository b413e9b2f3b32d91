"""What housekeeping removes and what it must not, over real databases and a store."""

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlmodel import Session, col, select

from activities.db import tables
from activities.db.ids import new_id
from activities.db.session import Database
from activities.housekeeping import retention
from activities.housekeeping.retention import remove_expired
from activities.settings import settings
from activities.storage.blobs import BlobStore, blob_store
from activities.storage.names import code_name
from activities.storage.state_snapshots import StateSnapshot, copies_of
from api.authorization import Caller
from api.changes import ChangeContext
from api.problems import Problem
from api.services import uploads
from api.services.job_references import wrong_references
from tests.activities.devices.rows import add_configuration, add_deployment, add_device
from tests.activities.placement.rows import add_waiting_job
from tests.activities.rows import add_payer
from tests.lab.waiting import wait_until
from workflows.contracts.job_submission import SubmittedCode
from workflows.effects.housekeeping import ExpiredRemoved, RemoveExpired

SHA = "a" * 64
NOW = datetime.now(UTC)
OLD = NOW - timedelta(days=31)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BlobStore]:
    monkeypatch.setenv("BASELOAD_STORAGE_URL", f"file://{tmp_path}/store")
    settings.cache_clear()
    yield blob_store(settings().storage)
    settings.cache_clear()


@pytest.fixture
def account(migrated: Database) -> tables.Account:
    with migrated.write() as session:
        return add_payer(session)


def keep_house() -> ExpiredRemoved:
    return remove_expired(RemoveExpired())


def add_upload(session: Session, account: tables.Account, at: datetime = OLD) -> tables.Upload:
    upload = tables.Upload(
        id=new_id("upl"), account_id=account.id, sha256=SHA, size_bytes=4, created_at=at
    )
    session.add(upload)
    session.flush()
    return upload


def upload_ids(migrated: Database) -> set[str]:
    with migrated.read() as session:
        return set(session.exec(select(tables.Upload.id)))


def context(session: Session, account: tables.Account) -> ChangeContext:
    caller = Caller(
        account_id=account.id,
        user_id="usr-1",
        key_id="",
        scopes=frozenset(),
        is_administrator=False,
        home_account_id=account.id,
    )
    return ChangeContext(session, caller, datetime.now(UTC), "test")


def received(path: Path) -> uploads.Received:
    path.write_bytes(b"code")
    return uploads.Received(path, SHA, 4)


def test_what_has_passed_its_retention_goes_in_batches_and_the_rest_stays(
    migrated: Database, account: tables.Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "BATCH", 2)
    ages = {"old": timedelta(days=8), "young": timedelta(days=6)}
    with migrated.write() as session:
        for age, passed in ages.items():
            for number in range(5):
                session.add(_row(f"{age}-{number}", NOW - passed, NOW - passed))
        session.add(_row("waits", OLD, None))
        for hours in (47, 49):
            session.add(
                tables.IdempotencyKey(
                    account_id=account.id,
                    key=str(hours),
                    request_sha256="",
                    status_code=200,
                    created_at=NOW - timedelta(hours=hours),
                )
            )
        for minutes in (10, 110):
            session.add(
                tables.UsedLink(
                    link_sha256=str(minutes), expires_at=NOW - timedelta(minutes=minutes)
                )
            )
        for index, days in enumerate((401, 402, 403, 399)):
            at = NOW - timedelta(days=days)
            session.add(
                tables.AuditRow(id=f"aud-{index}", account_id=account.id, action="a", at=at)
            )
    assert keep_house() == ExpiredRemoved(
        outbox_rows=5, idempotency_keys=1, used_links=1, audit_entries=3
    )
    with migrated.read() as session:
        outbox = set(session.exec(select(tables.OutboxRow.id)))
        assert outbox == {"waits", *(f"young-{number}" for number in range(5))}
        assert list(session.exec(select(tables.IdempotencyKey.key))) == ["47"]
        assert list(session.exec(select(tables.UsedLink.link_sha256))) == ["10"]
        assert list(session.exec(select(tables.AuditRow.id))) == ["aud-3"]


def test_the_devices_of_a_deployment_go_some_time_after_its_end(
    migrated: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "BATCH", 2)
    monkeypatch.setenv("BASELOAD_SECRETS_KEY", "11" * 32)
    settings.cache_clear()
    ends = {"finished": 91, "rolling_out": 400, "stopped": 89}
    with migrated.write() as session:
        configuration = add_configuration(session)
        devices = [add_device(session, configuration, f"n{number}") for number in range(3)]
        for status, days in ends.items():
            row = add_deployment(session, configuration, devices)
            row.status, row.updated_at = status, NOW - timedelta(days=days)
    assert keep_house() == ExpiredRemoved(deployment_targets=3)
    with migrated.read() as session:
        table, target = tables.DeviceDeployment, tables.DeploymentTarget
        found = session.exec(select(table.status).join(target).order_by(col(table.status))).all()
        assert found == ["rolling_out"] * 3 + ["stopped"] * 3


def add_invitation(
    session: Session, account: tables.Account, name: str, days: dict[str, int]
) -> None:
    """days: how many days ago it expired, and was accepted or withdrawn."""
    user = session.exec(select(tables.User)).first()
    if user is None:
        user = tables.User(
            id="usr-1", account_id=account.id, email="ada@example.test", created_at=OLD
        )
        session.add(user)
        session.flush()
    ends = {f"{what}_at": NOW - timedelta(days=each) for what, each in days.items()}
    row = {
        "id": name,
        "account_id": account.id,
        "permissions": None,
        "email": "eve@example.test",
        "secret_sha256": name,
        "inviter_user_id": user.id,
        "created_at": OLD,
        **ends,
    }
    session.add(tables.Invitation.model_validate(row))


def test_an_invitation_goes_when_its_end_has_passed_its_retention(
    migrated: Database, account: tables.Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "BATCH", 2)
    ended: dict[str, dict[str, int]] = {
        "accepted": {"expires": 25, "accepted": 31},
        "withdrawn": {"expires": 25, "withdrawn": 32},
        "expired": {"expires": 31},
    }
    kept: dict[str, dict[str, int]] = {
        "pending": {"expires": -1},
        "expired-lately": {"expires": 29},
        "accepted-lately": {"expires": 25, "accepted": 29},
        "withdrawn-after-its-expiry": {"expires": 40, "withdrawn": 1},
    }
    with migrated.write() as session:
        for name, days in {**ended, **kept}.items():
            add_invitation(session, account, name, days)
    assert keep_house() == ExpiredRemoved(invitations=3)
    assert keep_house() == ExpiredRemoved()
    with migrated.read() as session:
        assert set(session.exec(select(tables.Invitation.id))) == set(kept)


def _row(row_id: str, at: datetime, delivered_at: datetime | None) -> tables.OutboxRow:
    return tables.OutboxRow(
        id=row_id, resource_id="job-1", verb="start", created_at=at, delivered_at=delivered_at
    )


def test_an_upload_that_no_open_job_names_goes_with_its_bytes(
    migrated: Database, account: tables.Account, store: BlobStore
) -> None:
    store.put(code_name(SHA), b"code")
    with migrated.write() as session:
        add_upload(session, account)
        young = add_upload(session, account, NOW)
    assert keep_house().uploads == 1
    assert upload_ids(migrated) == {young.id}
    assert store.get(code_name(SHA)) == b"code"  # which the young one needs
    with migrated.write() as session:
        session.get_one(tables.Upload, young.id).created_at = OLD
    assert keep_house().uploads == 1
    assert upload_ids(migrated) == set()
    assert not store.exists(code_name(SHA))


@pytest.mark.parametrize("status", ["waiting_for_resources", "running", "stopped"])
def test_an_upload_that_an_open_job_names_stays(
    migrated: Database, account: tables.Account, store: BlobStore, status: str
) -> None:
    store.put(code_name(SHA), b"code")
    with migrated.write() as session:
        upload = add_upload(session, account)
        code = SubmittedCode(upload_id=upload.id)
        job = add_waiting_job(session, account, code=code)
        job.status = status
    assert keep_house().uploads == 0
    with migrated.write() as session:
        session.get_one(tables.Job, job.id).status = "finished"
    assert keep_house().uploads == 1


def test_a_job_that_is_created_at_the_same_moment_keeps_its_upload(
    migrated: Database,
    account: tables.Account,
    store: BlobStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Housekeeping has found the upload unused; the job is committed before it removes it."""
    store.put(code_name(SHA), b"code")
    with migrated.write() as session:
        upload = add_upload(session, account)
    found = retention._unused_uploads

    def find_then_submit(session: Session, before: datetime) -> dict[str, list[str]]:
        unused = found(session, before)
        with migrated.write() as other:
            document = {"code": {"upload_id": upload.id}}
            assert wrong_references(context(other, account), document) == []
            add_waiting_job(other, account, code=SubmittedCode(upload_id=upload.id))
        return unused

    monkeypatch.setattr(retention, "_unused_uploads", find_then_submit)
    assert keep_house().uploads == 0
    assert upload_ids(migrated) == {upload.id}
    assert store.exists(code_name(SHA))


def test_a_job_that_is_being_committed_keeps_its_upload_or_is_refused(
    migrated: Database, account: tables.Account, store: BlobStore
) -> None:
    store.put(code_name(SHA), b"code")
    with migrated.write() as session:
        upload = add_upload(session, account)
    house = threading.Thread(target=keep_house)
    with migrated.write() as session:
        document = {"code": {"upload_id": upload.id}}
        assert wrong_references(context(session, account), document) == []
        house.start()
        if not migrated.is_sqlite:
            wait_until(lambda: _waits_for_a_lock(migrated), "housekeeping waits", 10)
        add_waiting_job(session, account, code=SubmittedCode(upload_id=upload.id))
    house.join(30)
    assert upload_ids(migrated) == {upload.id}
    assert store.exists(code_name(SHA))


def _waits_for_a_lock(migrated: Database) -> bool:
    with migrated.read() as session:
        query = "SELECT count(*) FROM pg_locks WHERE NOT granted"
        return bool(session.connection().exec_driver_sql(query).scalar())


def test_a_submission_with_an_upload_that_is_being_removed_is_refused_by_name(
    migrated: Database, account: tables.Account, store: BlobStore
) -> None:
    store.put(code_name(SHA), b"code")
    with migrated.write() as session:
        upload = add_upload(session, account)
        upload.removed_at = NOW
    with migrated.write() as session:
        (wrong,) = wrong_references(context(session, account), {"code": {"upload_id": upload.id}})
    assert (wrong.field, wrong.value) == ("code.upload_id", upload.id)


def test_an_upload_of_the_same_bytes_during_a_removal_never_loses_them(
    migrated: Database,
    account: tables.Account,
    store: BlobStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It finds the bytes stored; they go before its row is written, so it stores them again."""
    store.put(code_name(SHA), b"code")
    with migrated.write() as session:
        add_upload(session, account)
    upload = received(tmp_path / "upload")
    uploads.store(upload)
    deleted = BlobStore.delete

    def delete_while_somebody_uploads(blobs: BlobStore, name: str) -> None:
        with pytest.raises(Problem, match="being removed"), migrated.write() as session:
            uploads.add_upload(context(session, account), upload)
        deleted(blobs, name)

    monkeypatch.setattr(BlobStore, "delete", delete_while_somebody_uploads)
    assert keep_house().uploads == 1
    monkeypatch.undo()
    with migrated.write() as session:
        added = uploads.add_upload(context(session, account), upload)
    uploads.store(upload)
    assert upload_ids(migrated) == {added.id}
    assert store.get(code_name(SHA)) == b"code"


def test_a_removal_that_was_cut_off_is_finished_later(
    migrated: Database, account: tables.Account, store: BlobStore
) -> None:
    store.put(code_name(SHA), b"code")
    now = datetime.now(UTC)
    with migrated.write() as session:
        add_upload(session, account).removed_at = now - retention.ABANDONED_REMOVAL / 2
    assert keep_house().uploads == 0
    with migrated.write() as session:
        row = session.exec(select(tables.Upload).where(col(tables.Upload.sha256) == SHA)).one()
        row.removed_at = now - 2 * retention.ABANDONED_REMOVAL
    assert keep_house().uploads == 1
    assert not store.exists(code_name(SHA))


@pytest.mark.parametrize(
    ("status", "ended_at", "left"),
    [("canceled", OLD, 0), ("canceled", NOW, 1), ("stopped", OLD, 1)],
)
def test_snapshots_that_a_lost_workflow_has_left_go_some_time_after_the_end_of_their_job(
    migrated: Database, store: BlobStore, status: str, ended_at: datetime, left: int
) -> None:
    with migrated.write() as session:
        job = add_waiting_job(session, add_payer(session))
        job.status, job.updated_at = status, ended_at
        job_id = job.id
    store.put(StateSnapshot(1, OLD, "ab").name(job_id, 0), b"files")
    assert keep_house().jobs_with_snapshots == 1 - left
    assert len(copies_of(store, job_id, 0)) == left
