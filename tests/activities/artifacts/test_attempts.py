"""Attempts of transfers: one of each artifact writes, an account has its share, all bytes count."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.artifacts.attempts import Attempt, attempt_of
from activities.artifacts.slots import LEASE_S, forget_slot
from activities.artifacts.sources.tar_streams import OpenedSource
from activities.artifacts.storing import Destination, store_source
from activities.db.session import Database
from activities.db.tables import Account, ArtifactTransfer
from activities.settings import settings
from activities.storage import contents
from activities.storage.archives import ArchiveRefusedError
from tests.activities.artifacts.artifact_rows import (
    add_artifact,
    row_of,
    store,
    stored_files,
    tar_of,
)
from tests.activities.rows import add_payer
from workflows.contracts.artifacts import Content

pytestmark = pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
PART = 20_000
MOST = 10_000_000
FILES = {"a.bin": bytes(range(256)) * 400, "b.txt": b"b"}


@pytest.fixture
def account(migrated: Database, monkeypatch: pytest.MonkeyPatch) -> Account:
    monkeypatch.setattr(contents, "PART_BYTES", PART)
    with migrated.write() as session:
        return add_payer(session)


@pytest.fixture
def dataset(migrated: Database, account: Account) -> str:
    return add_artifact(migrated, account)


def source_of(
    tar: bytes, halfway: Callable[[], object] = int, *, identity: str = "one", lasts: bool = True
) -> OpenedSource:
    """A source in chunks of half a part; halfway: called when half of it is read."""

    def chunks_from(begin: int) -> Iterator[bytes]:
        for start in range(begin, len(tar), PART // 2):
            if start <= len(tar) // 2 < start + PART // 2:
                halfway()
            yield tar[start : start + PART // 2]

    return OpenedSource(identity, chunks_from, len(tar), is_lasting=lasts)


def stored(artifact_id: str, source: OpenedSource, attempt: Attempt) -> Content:
    assert attempt.artifact_id == artifact_id
    done = ActivityEnvironment().run(store_source, source, Destination(store(), attempt, MOST))
    assert isinstance(done, Content)
    return done


def parts_of(artifact_id: str) -> list[str]:
    return store().names(f"artifacts/{artifact_id}/parts")


def add_transfers(database: Database, account: Account, count: int, seen_s_ago: float = 1) -> None:
    seen = datetime.now(UTC) - timedelta(seconds=seen_s_ago)
    with database.write() as session:
        for number in range(count):
            session.merge(
                ArtifactTransfer(
                    artifact_id=f"dat-{number}", account_id=account.id, token="x", renewed_at=seen
                )
            )


def test_an_account_has_no_more_transfers_under_way_than_its_share(
    migrated: Database, account: Account, dataset: str
) -> None:
    most = settings().account_transfers_at_once
    add_transfers(migrated, account, most)
    with pytest.raises(ApplicationError) as waits, attempt_of(dataset):
        pytest.fail("it has begun")
    assert (waits.value.type, waits.value.non_retryable) == ("TransferWaits", True)
    assert f"account {account.id} has at most {most} transfers under way" in waits.value.message
    with migrated.write() as session:
        other = add_payer(session, "other")
    with attempt_of(add_artifact(migrated, other)):
        pass
    forget_slot("dat-0")
    with attempt_of(dataset), attempt_of(dataset):
        pass  # A later attempt of the same one needs no other slot.


def test_the_slots_of_killed_processes_are_free_after_their_lease(
    migrated: Database, account: Account, dataset: str
) -> None:
    add_transfers(migrated, account, settings().account_transfers_at_once, LEASE_S + 1)
    with attempt_of(dataset) as attempt:
        attempt.check()
    with migrated.read() as session:
        assert session.get(ArtifactTransfer, dataset) is None


def test_an_attempt_that_runs_for_long_keeps_its_slot(
    migrated: Database, dataset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("activities.artifacts.slots.RENEW_S", 0.01)
    with attempt_of(dataset) as attempt:
        with migrated.write() as session:
            row = session.get_one(ArtifactTransfer, dataset)
            row.renewed_at = datetime.now(UTC) - timedelta(seconds=LEASE_S + 1)
            session.add(row)
        assert not attempt.is_lost.wait(0.2)
        with migrated.read() as session:
            seen = session.get_one(ArtifactTransfer, dataset).renewed_at
        assert seen > datetime.now(UTC) - timedelta(seconds=LEASE_S)


def test_the_attempt_that_a_later_one_has_followed_learns_it_and_writes_nothing(
    migrated: Database, dataset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("activities.artifacts.slots.RENEW_S", 0.01)
    with attempt_of(dataset) as late, attempt_of(dataset) as new:
        assert late.is_lost.wait(5)
        for act in (
            late.check,
            lambda: ActivityEnvironment().run(late.tell, 7, 1, 9),
            partial(late.reserve, 7),
        ):
            with pytest.raises(ApplicationError, match="a later attempt") as lost:
                act()
            assert (lost.value.type, lost.value.non_retryable) == ("Unavailable", False)
        ActivityEnvironment().run(new.tell, 5, 1, 9)
    assert row_of(migrated, dataset).bytes_transferred == 5


def test_an_attempt_that_was_followed_halfway_takes_nothing_from_the_content_of_the_new_one(
    dataset: str,
) -> None:
    done: list[Content] = []

    def follow() -> None:
        with attempt_of(dataset) as new:
            done.append(stored(dataset, source_of(tar_of(FILES), identity="new"), new))

    old = tar_of({"a.bin": b"old" * 50_000})
    for lasts in (True, False):
        with attempt_of(dataset) as late, pytest.raises(ApplicationError, match="a later attempt"):
            stored(dataset, source_of(old, follow, lasts=lasts), late)
        assert stored_files(dataset, done[-1]) == FILES
        store().delete_folder(f"artifacts/{dataset}")


def test_an_attempt_that_was_followed_at_its_end_does_not_replace_the_content(
    dataset: str,
) -> None:
    with attempt_of(dataset) as late:
        first, gone = (contents.ContentWriter(store(), dataset, name) for name in ("a", "b"))
        first.write(tar_of({"late": b"late"}))
        gone.write(tar_of({"gone": b"gone" * PART}))
        with attempt_of(dataset) as new:
            content = stored(dataset, source_of(tar_of(FILES)), new)
        with pytest.raises(contents.ContentBrokenError, match="no such part"):
            gone.finish(1, 4, replaces=False)  # The new one has removed its parts.
        assert first.finish(1, 4, replaces=False) == content
        with pytest.raises(ApplicationError, match="a later attempt"):
            late.check()
    assert stored_files(dataset, content) == FILES


def test_an_attempt_that_was_followed_before_its_manifest_leaves_that_of_the_new_one(
    dataset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[Content] = []
    finish = contents.ContentWriter.finish

    def finish_late(writer: contents.ContentWriter, *said: Any, **more: Any) -> Content:
        monkeypatch.setattr(contents.ContentWriter, "finish", finish)
        with attempt_of(dataset) as new:
            done.append(stored(dataset, source_of(tar_of(FILES)), new))
        return finish(writer, *said, **more)

    monkeypatch.setattr(contents.ContentWriter, "finish", finish_late)
    with attempt_of(dataset) as late, pytest.raises(ApplicationError, match="a later attempt"):
        stored(dataset, source_of(tar_of({"late": b"late"}), identity="late"), late)
    assert stored_files(dataset, done[0]) == FILES
    assert contents.whole_content(store(), dataset) == done[0]


def test_an_attempt_that_was_followed_after_its_last_part_leaves_the_manifest_of_the_new_one(
    dataset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[Content] = []
    check_parts = contents._check_parts

    def check_late(*given: Any) -> None:
        check_parts(*given)
        monkeypatch.setattr(contents, "_check_parts", check_parts)
        with attempt_of(dataset) as new:
            done.append(stored(dataset, source_of(tar_of(FILES)), new))

    monkeypatch.setattr(contents, "_check_parts", check_late)
    with attempt_of(dataset) as late, pytest.raises(ApplicationError, match="a later attempt"):
        stored(dataset, source_of(tar_of({"late": b"late"}), identity="late"), late)
    assert contents.whole_content(store(), dataset) == done[0]
    assert stored_files(dataset, done[0]) == FILES


def test_what_no_later_attempt_can_use_is_neither_stored_nor_counted(
    migrated: Database, dataset: str
) -> None:
    def break_off() -> None:
        raise ApplicationError("broke off", type="Unavailable")

    for lasts in (True, False):
        with attempt_of(dataset) as attempt, pytest.raises(ApplicationError, match="broke off"):
            stored(dataset, source_of(tar_of(FILES), break_off, lasts=lasts), attempt)
        counted = row_of(migrated, dataset).bytes_transferred
        assert (counted, len(parts_of(dataset))) == ((2 * PART, 2) if lasts else (0, 0))


def test_parts_of_another_version_go_before_the_new_one_is_stored(
    migrated: Database, dataset: str
) -> None:
    def look() -> None:
        sizes = store().sizes(f"artifacts/{dataset}/parts").values()
        assert sum(sizes) <= row_of(migrated, dataset).bytes_transferred

    def break_off() -> None:
        raise ApplicationError("broke off", type="Unavailable")

    for number in range(3):
        tar = tar_of({"a.bin": f"{number}".encode() * 150_000})
        with attempt_of(dataset) as attempt, pytest.raises(ApplicationError, match="broke off"):
            stored(dataset, source_of(tar, break_off, identity=f"{number}"), attempt)
        look()
    with attempt_of(dataset) as attempt:
        stored(dataset, source_of(tar_of(FILES), look, identity="last"), attempt)


def test_what_is_refused_is_neither_stored_nor_counted(migrated: Database, dataset: str) -> None:
    bad = tar_of({"a.bin": b"a" * 150_000, "../up": b"up"})
    with attempt_of(dataset) as attempt, pytest.raises(ApplicationError, match="outside"):
        stored(dataset, source_of(bad), attempt)
    assert (row_of(migrated, dataset).bytes_transferred, parts_of(dataset)) == (0, [])


def test_transfers_of_one_account_get_no_more_together_than_it_has_room_for(
    migrated: Database, account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BASELOAD_ACCOUNT_STORED_MAX_BYTES", "100000")
    settings.cache_clear()
    with ExitStack() as stack:
        first, second = (
            stack.enter_context(attempt_of(add_artifact(migrated, account, name=name)))
            for name in "ab"
        )
        first.reserve(60_000)
        second.reserve(40_000)
        with pytest.raises(ArchiveRefusedError, match="at most 40000 bytes as a tar"):
            second.reserve(40_001)
        first.reserve(60_000)
    settings.cache_clear()


def test_a_manifest_whose_parts_are_not_there_is_no_content(dataset: str) -> None:
    with attempt_of(dataset) as attempt:
        content = stored(dataset, source_of(tar_of(FILES)), attempt)
    assert contents.whole_content(store(), dataset) == content
    store().delete(parts_of(dataset)[0])
    assert contents.whole_content(store(), dataset) is None
