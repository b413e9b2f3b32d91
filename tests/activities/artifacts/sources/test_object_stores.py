"""Buckets of an S3 server, from moto, which has Amazon's own answers."""

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer
from temporalio.exceptions import ApplicationError

from activities.artifacts.sources import object_stores
from activities.artifacts.sources.object_stores import open_bucket
from activities.settings import settings
from tests.activities.artifacts.artifact_rows import files_of
from workflows.contracts.artifacts import ObjectStoreSource

SECRET = "an-access-key:a-hidden-key"
FILES = {"cats/a.bin": b"a" * 50_000, "cats/deep/b.txt": b"b", "cats/empty": b"", "dogs/c": b"c"}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    found = ThreadedMotoServer(port=0, verbose=False)
    found.start()
    host, port = found.get_host_and_port()
    yield f"http://{host}:{port}"
    found.stop()


@pytest.fixture
def bucket(home: Any, server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("BASELOAD_S3_ENDPOINT", server)
    monkeypatch.setattr(object_stores, "READ_BYTES", 20_000)
    settings.cache_clear()
    key, hidden = SECRET.split(":")
    client = boto3.client(
        "s3", endpoint_url=server, region_name="us-east-1", aws_access_key_id=key,
        aws_secret_access_key=hidden,
    )  # fmt: skip
    client.create_bucket(Bucket="pets")
    for name, content in FILES.items():
        client.put_object(Bucket="pets", Key=name, Body=content)
    client.put_object(Bucket="pets", Key="cats/folder/", Body=b"")
    yield client
    for each in client.list_objects_v2(Bucket="pets").get("Contents", ()):
        client.delete_object(Bucket="pets", Key=each["Key"])
    client.delete_bucket(Bucket="pets")


def source(**changes: Any) -> ObjectStoreSource:
    given = {"type": "aws", "bucket": "pets", "prefix": "cats", "secret": "aws", **changes}
    return ObjectStoreSource.model_validate(given)


def test_the_objects_of_a_prefix_become_files_named_by_the_rest(bucket: Any) -> None:
    opened = open_bucket(source(), SECRET)
    tar = b"".join(opened.chunks_from(0))
    assert files_of(tar) == {
        name.removeprefix("cats/"): content
        for name, content in FILES.items()
        if name.startswith("cats/")
    }
    assert opened.total_bytes == len(tar)
    for position in (0, 1, 512, 30_000, len(tar) - 1):
        assert b"".join(opened.chunks_from(position)) == tar[position:]
    assert open_bucket(source(), SECRET).identity == opened.identity


def test_a_listing_is_read_in_pages_and_not_after_the_limit(
    bucket: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    real = object_stores._page

    def page(store: Any, found: ObjectStoreSource, words: dict[str, Any]) -> dict[str, Any]:
        asked.append(len(words))
        return real(store, found, {**words, "MaxKeys": 2})

    monkeypatch.setattr(object_stores, "_page", page)
    whole = open_bucket(source(prefix=""), SECRET)
    assert set(files_of(b"".join(whole.chunks_from(0)))) == set(FILES)
    assert len(asked) == 3  # Of five objects, a folder among them.
    asked.clear()
    monkeypatch.setattr(object_stores, "MOST_FILES", 3)
    with pytest.raises(ApplicationError, match="has at most 3 objects") as refused:
        open_bucket(source(prefix=""), SECRET)
    assert (refused.value.type, len(asked)) == ("Refused", 2)


def test_a_whole_bucket_and_a_single_object_are_read(bucket: Any) -> None:
    whole = open_bucket(source(prefix=""), SECRET)
    assert set(files_of(b"".join(whole.chunks_from(0)))) == set(FILES)
    one = open_bucket(source(prefix="cats/deep/b.txt"), SECRET)
    assert files_of(b"".join(one.chunks_from(0))) == {"b.txt": b"b"}


def test_an_object_that_changes_meanwhile_is_not_mixed_with_what_it_was(bucket: Any) -> None:
    opened = open_bucket(source(), SECRET)
    chunks = opened.chunks_from(0)
    next(chunks)
    next(chunks)
    bucket.put_object(Bucket="pets", Key="cats/a.bin", Body=b"x" * 50_000)
    with pytest.raises(ApplicationError) as changed:
        list(chunks)
    assert changed.value.type == "Unavailable"
    assert open_bucket(source(), SECRET).identity != opened.identity


def test_what_is_not_there_is_refused_and_no_secret_is_told(bucket: Any) -> None:
    for wrong in (source(prefix="birds"), source(bucket="nobody")):
        with pytest.raises(ApplicationError) as refused:
            open_bucket(wrong, SECRET)
        assert refused.value.type == "Refused"
        assert "hidden" not in str(refused.value)
    with pytest.raises(ApplicationError, match="is no ACCESS_KEY_ID:SECRET_ACCESS_KEY") as refused:
        open_bucket(source(), "only-a-hidden-key")
    assert "hidden" not in str(refused.value)


def test_a_public_bucket_is_asked_without_any_key_of_the_host(
    bucket: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "the-hosts-own-key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "the-hosts-own-secret")
    bucket.put_bucket_acl(Bucket="pets", ACL="public-read")
    for name in FILES:
        bucket.put_object_acl(Bucket="pets", Key=name, ACL="public-read")
    bucket.delete_object(Bucket="pets", Key="cats/folder/")
    opened = open_bucket(source(secret=None), None)
    assert "a.bin" in files_of(b"".join(opened.chunks_from(0)))


@pytest.mark.parametrize(
    "changes",
    [{"bucket": "a/../b"}, {"bucket": "UPPER"}, {"region": "x.evil.test/"}, {"secret": "../x"}],
    ids=str,
)
def test_nothing_of_a_source_leads_to_another_host(changes: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=next(iter(changes))):
        source(**changes)
