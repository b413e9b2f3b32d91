"""The content of volumes that jobs write to, over real databases and a real object store."""

from datetime import timedelta

import pytest
from temporalio.testing import ActivityEnvironment

from activities.artifacts.transfers import transfer_artifact
from activities.artifacts.volumes import record_volume
from activities.db import tables
from activities.db.session import Database
from activities.settings import settings
from activities.storage.contents import ContentWriter
from activities.storage.names import artifact_of, volume_contents_of, volume_place
from tests.activities.artifacts.artifact_rows import (
    add_artifact,
    row_of,
    store,
    stored_files,
    tar_of,
)
from tests.activities.rows import NOW, add_job, add_node, add_payer, add_region, allocate
from workflows.contracts.artifacts import ArtifactSource, Content
from workflows.effects.artifacts import TransferArtifact
from workflows.effects.volumes import RecordVolume


class Writer:
    """A job that writes to a volume."""

    def __init__(self, database: Database, name: str, volume_id: str = "") -> None:
        self.database = database
        with database.write() as session:
            self.account = add_payer(session, name)
            node = add_node(session, add_region(session, self.account))
            job = add_job(session, self.account)
            allocation = allocate(session, job, node, 0)
            self.job_id, self.allocation_id = job.id, allocation.id
        self.volume_id = volume_id or self._volume()
        with database.write() as session:
            session.add(
                tables.VolumeHold(
                    allocation_id=self.allocation_id, volume_id=self.volume_id,
                    job_id=self.job_id, attempt=1, access="write",
                )
            )  # fmt: skip

    def _volume(self) -> str:
        volume_id = add_artifact(self.database, self.account, "vol", status="ready")
        self.put(volume_id, {"first.txt": b"first"})
        return volume_id

    def put(self, place: str, files: dict[str, bytes]) -> Content:
        """Store files there, as what stores a volume does."""
        writer = ContentWriter(store(), place, "test")
        writer.write(tar_of(files))
        return writer.finish(len(files), sum(map(len, files.values())))

    def writes(self, text: bytes, later_s: int) -> tuple[str | None, Content]:
        """Store and record a file with this text; why it is refused."""
        place = f"20260101t00000{later_s}-aa"
        content = self.put(volume_place(self.volume_id, place), {"a.txt": text})
        asked = self.record(place, content, later_s)
        first = record_volume(asked)
        assert record_volume(asked) == first, "a repeat has another answer"
        return first.refusal, content

    def record(self, place: str, content: Content, later_s: int) -> RecordVolume:
        """What records a stored content."""
        return RecordVolume(
            volume_id=self.volume_id,
            job_id=self.job_id,
            attempt=1,
            at=NOW + timedelta(seconds=later_s),
            place=place,
            content=content,
        )

    def leaves(self) -> None:
        """Its run has provably ended."""
        with self.database.write() as session:
            hold = session.get_one(tables.VolumeHold, (self.allocation_id, self.volume_id))
            hold.released_at = NOW
            session.add(hold)

    def places(self) -> list[str]:
        folder = volume_contents_of(self.volume_id)
        names = store().names(folder)
        return sorted({name[len(folder) + 1 :].split("/")[0] for name in names})


def test_what_a_writer_has_stored_replaces_the_content_and_what_it_has_left(
    migrated: Database,
) -> None:
    job = Writer(migrated, "a")
    for later_s, text in ((1, b"one"), (2, b"two")):
        refusal, content = job.writes(text, later_s)
        assert refusal is None
        row = row_of(migrated, job.volume_id)
        assert isinstance(row, tables.Volume)
        assert (row.content_sha256, row.written_by) == (content.sha256, job.job_id)
        assert stored_files(tables.place_of_content(row), content) == {"a.txt": text}
        assert len(job.places()) == 1
    left = store().names(artifact_of(job.volume_id))
    assert all("/contents/" in name for name in left), left


def test_a_writer_that_does_not_hold_the_volume_any_more_changes_nothing(
    migrated: Database,
) -> None:
    job = Writer(migrated, "a")
    assert job.writes(b"one", 1)[0] is None
    job.leaves()
    newer = Writer(migrated, "b", job.volume_id)
    assert newer.writes(b"two", 2)[0] is None
    before = row_of(migrated, job.volume_id)
    refusal, _ = job.writes(b"late", 3)
    assert refusal is not None
    assert "does not hold it any more" in refusal
    assert row_of(migrated, job.volume_id) == before


def test_an_older_content_of_the_same_writer_does_not_come_back(migrated: Database) -> None:
    job = Writer(migrated, "a")
    assert job.writes(b"two", 2)[0] is None
    refusal, _ = job.writes(b"one", 1)
    assert refusal is not None
    assert "has a newer content" in refusal


def test_what_the_account_has_no_room_for_is_neither_recorded_nor_kept(
    migrated: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The room of each run was read when it began, and is the room of all runs of the account."""
    job = Writer(migrated, "a")
    assert job.writes(b"one", 1)[0] is None
    before, places = row_of(migrated, job.volume_id), job.places()
    room = before.size_bytes or 0
    monkeypatch.setenv("BASELOAD_ACCOUNT_STORED_MAX_BYTES", str(room))
    settings.cache_clear()
    refusal, content = job.writes(b"much" * 10_000, 2)
    assert refusal is not None
    assert "BASELOAD_ACCOUNT_STORED_MAX_BYTES" in refusal
    assert (row_of(migrated, job.volume_id), job.places()) == (before, places)
    monkeypatch.delenv("BASELOAD_ACCOUNT_STORED_MAX_BYTES")
    settings.cache_clear()
    late = record_volume(job.record("20260101t000002-aa", content, 2)).refusal
    assert late is not None, "a repeat that finds room records what is not there any more"
    assert row_of(migrated, job.volume_id) == before
    monkeypatch.setenv("BASELOAD_ACCOUNT_STORED_MAX_BYTES", str(room - 1))
    settings.cache_clear()
    assert job.writes(b"ane", 3)[0] is None, "what takes no more than before is refused"


def test_what_is_not_taken_and_what_other_tries_have_left_does_not_stay_stored(
    migrated: Database,
) -> None:
    job = Writer(migrated, "a")
    for try_, moment in (("ff", 1), ("ff", 2)):  # A try that was killed, and one of a later moment.
        killed = volume_place(job.volume_id, f"20260101t00000{moment}-{try_}")
        job.put(killed, {"a.txt": b"killed"})
    assert job.writes(b"one", 1)[0] is None
    assert job.places() == ["20260101t000001-aa", "20260101t000002-ff"]
    assert job.writes(b"old", 0)[0] is not None
    assert job.places() == ["20260101t000001-aa", "20260101t000002-ff"]
    job.leaves()
    row = row_of(migrated, job.volume_id)
    assert job.writes(b"late", 3)[0] is not None
    assert job.writes(b"one", 1)[0] is not None  # A repeat that is late; it is the content.
    assert job.places() == ["20260101t000001-aa", "20260101t000002-ff"]
    assert row_of(migrated, job.volume_id) == row


@pytest.mark.parametrize("status", ["removing", "archived"])
def test_a_volume_that_is_being_removed_is_not_written(migrated: Database, status: str) -> None:
    job = Writer(migrated, "a")
    with migrated.write() as session:
        row = session.get_one(tables.Volume, job.volume_id)
        row.status = status
        session.add(row)
    refusal, _ = job.writes(b"late", 1)
    assert refusal == f"volume {job.volume_id}: must be ready to be written, is {status}"


def test_a_dataset_that_is_made_of_a_volume_has_one_content_of_it(migrated: Database) -> None:
    """Also where the volume gets another content while it is being copied."""
    job = Writer(migrated, "a")
    assert job.writes(b"one", 1)[0] is None
    source = ArtifactSource(type="artifact", artifact_id=job.volume_id)
    copy = add_artifact(
        migrated, job.account, name="snapshot", source=source.model_dump(mode="json")
    )
    assert job.writes(b"two", 2)[0] is None
    assert len(job.places()) == 2, "what is being copied is removed"
    command = TransferArtifact(artifact_id=copy, source=source)
    content = ActivityEnvironment().run(transfer_artifact, command)
    assert stored_files(copy, content) == {"a.txt": b"two"}
    with migrated.write() as session:
        row = session.get_one(tables.Dataset, copy)
        row.status = "ready"
        session.add(row)
    assert job.writes(b"three", 3)[0] is None
    assert len(job.places()) == 1
