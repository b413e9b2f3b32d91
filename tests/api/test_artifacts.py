"""Datasets, models, checkpoints and volumes over HTTP: made, sent in parts, exported, removed."""

import asyncio
import hashlib
from typing import Any

import httpx
import pytest
from sqlalchemy import event

from activities.db import tables
from activities.settings import settings
from activities.storage.blobs import blob_store
from activities.storage.contents import ContentWriter
from api.services import artifacts
from api.services.uploads import Received
from tests.activities.artifacts.artifact_rows import files_of, tar_of
from tests.api.http_server import Person, Site
from tests.api.test_leases import BEGAN
from workflows.contracts.lifecycles import ARTIFACT_NOUNS, LifecycleNoun

pytestmark = pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
UPLOAD = {"type": "upload"}
WEB = {"type": "web", "url": "https://example.test/cats.tar"}
FILES = {"a/one.txt": b"1" * 2000, "two.txt": b"2"}


async def made(person: Person, source: dict[str, Any] = UPLOAD, **more: Any) -> Any:
    return await person.made("/v1/datasets", {"name": "cats", "source": source, **more})


async def send(person: Person, dataset_id: str, index: int, content: bytes) -> httpx.Response:
    sha256 = hashlib.sha256(content).hexdigest()
    path = f"/v1/datasets/{dataset_id}/parts/{index}?sha256={sha256}"
    return await person.call("PUT", path, content=content)


def complete(site: Site, artifact_id: str) -> bytes:
    """The artifact is ready, as its workflow makes it."""
    tar = tar_of(FILES)
    writer = ContentWriter(blob_store(settings().storage), artifact_id, "a test")
    writer.write(tar)
    content = writer.finish(2, 2001)
    table = tables.table_of_artifact(artifact_id)
    site.set(
        table, artifact_id, status="ready", content_sha256=content.sha256,
        size_bytes=content.size_bytes, unpacked_bytes=2001, file_count=2,
    )  # fmt: skip
    return tar


@pytest.mark.parametrize("noun", ARTIFACT_NOUNS, ids=lambda noun: noun.name)
async def test_each_noun_is_made_listed_exported_and_removed(
    site: Site, ada: Person, noun: LifecycleNoun
) -> None:
    path = f"/v1/{noun.plural}"
    found = await ada.made(path, {"name": "cats", "source": WEB})
    assert found["id"].startswith(f"{noun.prefix}-")
    assert (found["status"], found["project_id"]) == ("new", ada.project_id)
    assert (await ada.get(path)).json()["items"] == [found]
    events = (await ada.get(f"{path}/{found['id']}/events")).json()["items"]
    assert [event["type"] for event in events] == [f"{noun.name}.requested"]
    assert (await ada.get(f"{path}/{found['id']}/content")).status_code == 409
    tar = complete(site, found["id"])
    answer = await ada.get(f"{path}/{found['id']}/content")
    assert (answer.content, answer.headers["content-length"]) == (tar, str(len(tar)))
    assert files_of(answer.content) == FILES
    assert (await ada.call("DELETE", f"{path}/{found['id']}")).status_code == 202
    verbs = [row.verb for row in site.rows(tables.OutboxRow, resource_id=found["id"])]
    assert sorted(verbs) == ["remove", "start"]


async def test_a_name_is_unique_in_its_project_among_those_that_are_there(
    site: Site, ada: Person, bob: Person
) -> None:
    first = await made(ada)
    again = await ada.call("POST", "/v1/datasets", json={"name": "cats", "source": UPLOAD})
    assert (again.status_code, again.json()["code"]) == (409, "conflict")
    assert first["id"] in again.json()["detail"]
    await made(bob)
    await ada.made("/v1/models", {"name": "cats", "source": UPLOAD})
    site.set(tables.Dataset, first["id"], status="archived")
    await made(ada)


@pytest.mark.parametrize(
    "source",
    [
        {"type": "empty"},
        {"type": "upload", "part_count": 1},
        {"type": "web", "url": "ftp://example.test/a"},
        {"type": "web", "url": "https://user:secret@example.test/a"},
        {"type": "git", "url": "http://example.test/a"},
        {"type": "git", "url": "https://example.test/a", "revision": "--upload-pack=x"},
        {"type": "web", "url": "https://example.test/a", "token": "x"},
        {"type": "job", "job_id": "../../etc"},
        {"type": "regional"},
        {},
    ],
    ids=str,
)
async def test_a_source_that_breaks_a_rule_is_refused_with_its_field(
    site: Site, ada: Person, source: dict[str, Any]
) -> None:
    answer = await ada.call("POST", "/v1/datasets", json={"name": "cats", "source": source})
    assert answer.status_code == 422, answer.text
    assert all(error["field"].startswith("source") for error in answer.json()["errors"])
    assert site.rows(tables.Dataset) == []


async def test_an_upload_is_sent_in_parts_resumed_and_completed(
    site: Site, ada: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.services.artifacts.PART_BYTES", 10_000)
    monkeypatch.setattr("api.routes.artifacts.PART_BYTES", 10_000)
    tar = tar_of({"a": b"a" * 20_000})
    parts = [tar[start : start + 10_000] for start in range(0, len(tar), 10_000)]
    dataset = (await made(ada))["id"]
    path = f"/v1/datasets/{dataset}"
    assert (await send(ada, dataset, 0, b"an earlier try")).status_code == 200
    for index, part in reversed(list(enumerate(parts))):
        if index != 1:
            assert (await send(ada, dataset, index, part)).status_code == 200
    early = await ada.call("POST", f"{path}/complete", json={"part_count": len(parts)})
    assert early.json()["errors"][0]["rule"].endswith("lacking 1")
    found = (await ada.get(f"{path}/parts")).json()
    assert [each["index"] for each in found["items"]] == [0, *range(2, len(parts))]
    assert found["items"][0]["sha256"] == hashlib.sha256(parts[0]).hexdigest()
    await send(ada, dataset, 1, parts[1])
    replaced = len(b"an earlier try")  # It stays stored until the upload is complete.
    assert (await ada.get(path)).json()["bytes_transferred"] == len(tar) + replaced
    done = await ada.call("POST", f"{path}/complete", json={"part_count": len(parts)})
    assert done.json()["source"] == {"type": "upload", "part_count": len(parts)}
    again = await ada.call("POST", f"{path}/complete", json={"part_count": len(parts)})
    assert again.status_code == 202
    (told,) = [row for row in site.rows(tables.OutboxRow) if row.verb == "complete"]
    assert told.argument == {"source": {"type": "upload", "part_count": len(parts)}}
    late = await send(ada, dataset, 0, parts[0])
    assert (late.status_code, "is complete" in late.text) == (409, True)


async def test_a_part_is_refused_that_is_too_large_or_has_another_hash(
    site: Site, ada: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.routes.artifacts.PART_BYTES", 10_000)
    dataset = (await made(ada))["id"]
    large = await send(ada, dataset, 0, b"x" * 10_001)
    assert (large.status_code, large.json()["code"]) == (413, "too-large")
    wrong = f"/v1/datasets/{dataset}/parts/0?sha256={'0' * 64}"
    answer = await ada.call("PUT", wrong, content=b"x")
    assert answer.json()["errors"][0]["field"] == "sha256"
    assert (await send(ada, dataset, -1, b"x")).status_code == 422
    assert (await send(ada, dataset, 65_536, b"x")).status_code == 422
    assert (await send(ada, dataset, 0, b"")).status_code == 422
    assert site.rows(tables.ArtifactPart) == []
    assert blob_store(settings().storage).names("artifacts") == []


async def test_a_part_for_which_the_account_has_no_room_is_refused(
    site: Site, ada: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = (await made(ada))["id"]
    monkeypatch.setenv("BASELOAD_ACCOUNT_STORED_MAX_BYTES", "1000")
    settings.cache_clear()
    assert (await send(ada, dataset, 0, b"x" * 900)).status_code == 200
    refused = await send(ada, dataset, 1, b"x" * 900)
    assert (refused.status_code, refused.json()["code"]) == (409, "storage-exhausted")
    assert "900 bytes of datasets, models, checkpoints and volumes" in refused.text
    settings.cache_clear()


async def test_what_is_sent_after_the_removal_is_not_kept(site: Site, ada: Person) -> None:
    dataset = (await made(ada))["id"]
    site.set(tables.Dataset, dataset, status="removing")
    assert (await send(ada, dataset, 0, b"x")).status_code == 409
    assert blob_store(settings().storage).names("artifacts") == []


async def test_a_removal_is_refused_while_jobs_use_it_and_names_them(
    site: Site, ada: Person
) -> None:
    dataset = (await made(ada))["id"]
    complete(site, dataset)
    job = await ada.job()
    site.write(tables.ArtifactUse(job_id=job, artifact_id=dataset, role="dataset"))
    refused = await ada.call("DELETE", f"/v1/datasets/{dataset}")
    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
    assert job in refused.json()["detail"]
    assert (await ada.get(f"/v1/datasets/{dataset}")).json()["job_ids"] == [job]
    site.set(tables.Job, job, status="finished")
    assert (await ada.get(f"/v1/datasets/{dataset}")).json()["job_ids"] == []
    assert (await ada.call("DELETE", f"/v1/datasets/{dataset}")).status_code == 202


async def test_of_many_jobs_some_are_named_and_all_are_counted(site: Site, ada: Person) -> None:
    dataset = (await made(ada))["id"]
    complete(site, dataset)
    jobs = [await ada.job() for _ in range(artifacts.JOBS_SHOWN + 2)]
    site.write(
        *(tables.ArtifactUse(job_id=job, artifact_id=dataset, role="dataset") for job in jobs)
    )
    found = (await ada.get(f"/v1/datasets/{dataset}")).json()
    assert (found["job_ids"], found["job_count"]) == (jobs[: artifacts.JOBS_SHOWN], len(jobs))
    refused = (await ada.call("DELETE", f"/v1/datasets/{dataset}")).json()["detail"]
    assert refused.endswith(f"is used by {', '.join(jobs[:5])} and {len(jobs) - 5} more")


async def test_who_may_not_read_jobs_learns_how_many_use_a_dataset_and_not_which(
    site: Site, ada: Person, bob: Person
) -> None:
    dataset = (await made(ada))["id"]
    complete(site, dataset)
    job = await ada.job()
    site.write(
        tables.ArtifactUse(job_id=job, artifact_id=dataset, role="dataset"),
        tables.ProjectMember(
            project_id=ada.project_id, user_id=bob.user_id,
            permissions={"dataset": "all"}, created_at=BEGAN,
        ),
    )  # fmt: skip
    for person in (bob, ada.with_key(("datasets:read", "datasets:write"))):
        (found,) = (await person.get("/v1/datasets")).json()["items"]
        assert (found["job_ids"], found["job_count"]) == ([], 1)
        refused = await person.call("DELETE", f"/v1/datasets/{dataset}")
        assert refused.status_code == 409
        assert refused.json()["detail"].endswith("is used by 1 job")


async def test_an_array_of_jobs_asks_once_how_large_their_dataset_is(
    site: Site, ada: Person
) -> None:
    dataset = (await made(ada))["id"]
    complete(site, dataset)
    site.set(tables.Dataset, dataset, unpacked_bytes=5000, file_count=2)
    asked: list[str] = []

    def count(connection: object, cursor: object, statement: str, *rest: object) -> None:
        asked.extend(["sum"] if "sum(" in statement and "unpacked_bytes" in statement else [])

    with site.database.connection() as connection:
        engine = connection.engine
    body = {
        "name": "many",
        "type": "training",
        "resources": {"gpus": "cpu", "cpu_count": 1},
        "workers": [{"command": "true"}],
        "data": {"datasets": [dataset]},
        "array": 20,
    }
    event.listen(engine, "before_cursor_execute", count)
    await ada.made("/v1/jobs/arrays", body)
    event.remove(engine, "before_cursor_execute", count)
    assert len(asked) == 1
    assert {row.data_bytes for row in site.rows(tables.Job)} == {5000 + 2 * 4096}


async def test_only_a_failed_transfer_is_tried_again(site: Site, ada: Person) -> None:
    dataset = (await made(ada, WEB))["id"]
    early = await ada.call("POST", f"/v1/datasets/{dataset}/retry")
    assert (early.status_code, "must be failed" in early.text) == (409, True)
    site.set(tables.Dataset, dataset, status="failed", status_reason="answers 404")
    assert (await ada.call("POST", f"/v1/datasets/{dataset}/retry")).status_code == 202
    verbs = [row.verb for row in site.rows(tables.OutboxRow, resource_id=dataset)]
    assert sorted(verbs) == ["retry", "start"]


async def test_a_source_is_copied_only_by_those_who_may_read_it(
    site: Site, ada: Person, bob: Person
) -> None:
    dataset = (await made(ada))["id"]
    copy = {"name": "copy", "source": {"type": "artifact", "artifact_id": dataset}}
    assert (await ada.call("POST", "/v1/models", json=copy)).status_code == 409
    complete(site, dataset)
    assert (await ada.call("POST", "/v1/models", json=copy)).status_code == 202
    assert (await bob.call("POST", "/v1/models", json=copy)).status_code == 404
    job = await ada.job()
    of_job = {"name": "out", "source": {"type": "job", "job_id": job}}
    assert (await bob.call("POST", "/v1/datasets", json=of_job)).status_code == 404
    early = await ada.call("POST", "/v1/datasets", json=of_job)
    assert (early.status_code, "must have ended" in early.json()["detail"]) == (409, True)
    site.set(tables.Job, job, status="finished")
    assert (await ada.call("POST", "/v1/datasets", json=of_job)).status_code == 202


async def test_a_member_reads_what_the_membership_says_and_the_owner_pays(
    site: Site, ada: Person, bob: Person
) -> None:
    dataset = (await made(ada))["id"]
    complete(site, dataset)
    site.write(
        tables.ProjectMember(
            project_id=ada.project_id, user_id=bob.user_id,
            permissions={"dataset": "read", "model": "all"}, created_at=BEGAN,
        )
    )  # fmt: skip
    assert (await bob.get(f"/v1/datasets/{dataset}/content")).status_code == 200
    assert [each["id"] for each in (await bob.get("/v1/datasets")).json()["items"]] == [dataset]
    assert (await bob.call("DELETE", f"/v1/datasets/{dataset}")).status_code == 403
    asked = {"name": "his", "source": UPLOAD, "project_id": ada.project_id}
    assert (await bob.call("POST", "/v1/datasets", json=asked)).status_code == 403
    model = await bob.made("/v1/models", asked)
    assert model["account_id"] == ada.account_id
    read = [row.action for row in site.rows(tables.AuditRow) if row.actor_account_id]
    assert "get_dataset_content" in read


async def test_a_content_that_is_broken_is_not_sent_as_if_it_were_whole(
    site: Site, ada: Person
) -> None:
    dataset = (await made(ada))["id"]
    tar = complete(site, dataset)
    store = blob_store(settings().storage)
    (name,) = store.names(f"artifacts/{dataset}/parts")
    store.put(name, b"broken")
    answer = await ada.get(f"/v1/datasets/{dataset}/content")
    assert b"broken" not in answer.content
    assert len(answer.content) < len(tar)


async def test_a_key_copies_nothing_that_it_may_not_read(site: Site, ada: Person) -> None:
    model = (await ada.made("/v1/models", {"name": "m", "source": UPLOAD}))["id"]
    complete(site, model)
    writer = ada.with_key(("datasets:write",))
    copied = {"name": "copy", "source": {"type": "artifact", "artifact_id": model}}
    answer = await writer.call("POST", "/v1/datasets", json=copied)
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    assert "models:read" in answer.json()["detail"]
    from_job = {"name": "output", "source": {"type": "job", "job_id": "job-" + "0" * 26}}
    answer = await writer.call("POST", "/v1/datasets", json=from_job)
    assert "jobs:read" in answer.json()["detail"]
    reader = ada.with_key(("datasets:write", "models:read"))
    await reader.made("/v1/datasets", copied)


async def test_parts_that_are_replaced_count_until_they_go(
    site: Site, ada: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = (await made(ada))["id"]
    monkeypatch.setenv("BASELOAD_ACCOUNT_STORED_MAX_BYTES", "1300")
    settings.cache_clear()
    for content in (b"a" * 400, b"b" * 400, b"b" * 400, b"c" * 400):
        assert (await send(ada, dataset, 0, content)).status_code == 200
    refused = await send(ada, dataset, 0, b"d" * 400)
    assert (refused.status_code, refused.json()["code"]) == (409, "storage-exhausted")
    stored = blob_store(settings().storage).sizes("artifacts")
    assert (
        sum(stored.values())
        == (await ada.get(f"/v1/datasets/{dataset}")).json()["bytes_transferred"]
    )
    monkeypatch.setenv("BASELOAD_ACCOUNT_STORED_MAX_BYTES", "2000")
    monkeypatch.setenv("BASELOAD_ARTIFACT_MAX_BYTES", "1000")
    settings.cache_clear()
    refused = await send(ada, dataset, 0, b"d" * 400)
    assert (refused.status_code, refused.json()["code"]) == (413, "too-large")
    settings.cache_clear()


async def test_parts_that_come_at_once_get_no_more_together_than_there_is_room_for(
    site: Site, ada: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = (await made(ada))["id"]
    monkeypatch.setenv("BASELOAD_ACCOUNT_STORED_MAX_BYTES", "1000")
    settings.cache_clear()
    parts = [bytes([index]) * 400 for index in range(5)]
    sent = await asyncio.gather(*(send(ada, dataset, *part) for part in enumerate(parts)))
    assert sorted(answer.status_code for answer in sent) == [200, 200, 409, 409, 409]
    stored = blob_store(settings().storage).sizes("artifacts")
    assert sum(stored.values()) == 800
    settings.cache_clear()


async def test_a_part_that_comes_when_its_upload_has_just_been_completed_is_not_kept(
    site: Site, ada: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = (await made(ada))["id"]
    await send(ada, dataset, 0, b"named")
    store_part = artifacts.store_part

    def store_late(artifact_id: str, received: Received) -> None:
        store_part(artifact_id, received)
        site.set(tables.Dataset, dataset, source={"type": "upload", "part_count": 1})

    monkeypatch.setattr(artifacts, "store_part", store_late)
    assert (await send(ada, dataset, 1, b"late")).status_code == 409
    assert (await send(ada, dataset, 1, b"named")).status_code == 409
    assert list(blob_store(settings().storage).sizes("artifacts").values()) == [len(b"named")]


async def test_a_failed_copy_is_tried_again_only_by_those_who_may_read_its_source(
    site: Site, ada: Person, bob: Person
) -> None:
    dataset = (await made(ada))["id"]
    complete(site, dataset)
    member = tables.ProjectMember(
        project_id=ada.project_id, user_id=bob.user_id,
        permissions={"dataset": "read", "job": "read"}, created_at=BEGAN,
    )  # fmt: skip
    site.write(member)
    copy = {"name": "copy", "source": {"type": "artifact", "artifact_id": dataset}}
    model = (await bob.made("/v1/models", copy))["id"]
    site.set(tables.Model, model, status="failed")
    limited = bob.with_key(("models:write",))
    answer = await limited.call("POST", f"/v1/models/{model}/retry")
    assert (answer.status_code, "datasets:read" in answer.text) == (403, True)
    with site.database.write() as session:
        session.delete(session.merge(member))
    answer = await bob.call("POST", f"/v1/models/{model}/retry")
    assert (answer.status_code, answer.json()["code"]) == (404, "not-found")
    assert [row.verb for row in site.rows(tables.OutboxRow, resource_id=model)] == ["start"]


async def test_the_secrets_of_a_project_are_used_with_a_right_of_their_own(
    site: Site, ada: Person, bob: Person
) -> None:
    await ada.made(f"/v1/projects/{ada.project_id}/secrets", {"name": "aws", "value": "k:h"})
    bucket = {"type": "aws", "bucket": "pets", "secret": "aws"}
    asked = {"name": "cats", "source": bucket, "project_id": ada.project_id}
    writer = ada.with_key(("datasets:write",))
    answer = await writer.call("POST", "/v1/datasets", json=asked)
    assert (answer.status_code, "secrets:use" in answer.text) == (403, True)
    user = ada.with_key(("datasets:write", "secrets:use"))
    dataset = (await user.made("/v1/datasets", asked))["id"]
    site.set(tables.Dataset, dataset, status="failed")
    assert (await writer.call("POST", f"/v1/datasets/{dataset}/retry")).status_code == 403
    assert (await user.call("POST", f"/v1/datasets/{dataset}/retry")).status_code == 202
    for permissions, status in (({"dataset": "all"}, 403), ({"dataset": "all", "job": "all"}, 202)):
        member = tables.ProjectMember(
            project_id=ada.project_id, user_id=bob.user_id, permissions=permissions,
            created_at=BEGAN,
        )  # fmt: skip
        with site.database.write() as session:
            session.merge(member)
        answer = await bob.call("POST", "/v1/datasets", json={**asked, "name": f"his-{status}"})
        assert answer.status_code == status, answer.text


async def test_a_job_is_not_removed_while_its_output_is_copied(site: Site, ada: Person) -> None:
    job_id = await ada.job()
    site.set(tables.Job, job_id, status="finished")
    source = {"type": "job", "job_id": job_id}
    copy = await made(ada, source, name="results")
    refused = await ada.call("DELETE", f"/v1/jobs/{job_id}")
    assert refused.status_code == 409
    assert "its output is being copied to dataset results" in refused.json()["detail"]
    site.set(tables.Dataset, copy["id"], status="failed")
    assert (await ada.call("DELETE", f"/v1/jobs/{job_id}")).status_code == 202
