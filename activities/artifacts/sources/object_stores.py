"""Buckets of object stores that have Amazon's S3 API: the objects whose names begin alike.

Its libraries take half a second to import, so its caller imports it when a source needs it.
"""

import hashlib
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from fsspec.asyn import sync  # type: ignore[import-untyped]
from s3fs import S3FileSystem

from activities.artifacts.sources.tar_streams import (
    OpenedSource,
    SourceFile,
    name_below,
    refused,
    tar_of,
    tar_size,
    unavailable,
)
from activities.settings import settings
from workflows.contracts.artifacts import MOST_FILES, ObjectStoreSource

READ_BYTES = 8 << 20
TIMEOUTS_S = {"connect_timeout": 10, "read_timeout": 60}
CHECKSUMS = {"request_checksum_calculation": "when_required"}
"""Not every store with this API takes the newer checksums of its own accord."""
ENDPOINTS = {
    "aws": "https://s3.{region}.amazonaws.com",
    "wasabi": "https://s3.{region}.wasabisys.com",
}
"""Hosts that a source cannot change, so their addresses are not checked."""


def open_bucket(
    source: ObjectStoreSource, secret: str | None, session_token: str | None = None
) -> OpenedSource:
    """The objects of a bucket, read by ranges of the version that was listed. Blocking.

    secret: `ACCESS_KEY_ID:SECRET_ACCESS_KEY`; None: the bucket is public.
    Raises: ApplicationError `Refused` or `Unavailable`.
    """
    store = _store(source, secret, session_token)
    files, marks = [], hashlib.sha256()
    for key, found in _listed(store, source).items():
        name = name_below(source.prefix, key)
        etag, size = str(found["ETag"]), int(found["Size"])
        marks.update(f"{name}\0{size}\0{etag}\n".encode("utf-8", "surrogatepass"))
        object_ = (source.bucket, key, etag)
        files.append(SourceFile(name, size, partial(_bytes, store, object_, size)))
    where = f"{source.type} {source.region} {source.bucket} {source.prefix}"
    if not files:
        raise refused(f"{where}: there is no object")
    identity = f"{where} {marks.hexdigest()}"
    return OpenedSource(identity, partial(tar_of, files), tar_size(files))


def _store(source: ObjectStoreSource, secret: str | None, session_token: str | None) -> Any:
    key, _, hidden = (secret or "").partition(":")
    if secret is not None and not (key and hidden):
        raise refused(f"secret {source.secret}: is no ACCESS_KEY_ID:SECRET_ACCESS_KEY")
    login = {
        "access_key_id": key, "secret_access_key": hidden, "session_token": session_token or "",
    }  # fmt: skip
    return store_at(source.type, source.region, login if secret is not None else None)


def store_at(provider: str, region: str, login: Mapping[str, str] | None) -> Any:
    """The store of a provider in a region, as s3fs speaks to it.

    login: the fields of a third-party key; None: nobody logs in.
    """
    key = login or {}
    return S3FileSystem(
        # Without a key it must not look for one: the host may have one of its own.
        anon=login is None,
        key=key.get("access_key_id"),
        secret=key.get("secret_access_key"),
        token=key.get("session_token") or None,
        endpoint_url=settings().s3_endpoint or ENDPOINTS[provider].format(region=region),
        client_kwargs={"region_name": region},
        config_kwargs={**TIMEOUTS_S, "retries": {"max_attempts": 3}, **CHECKSUMS},
        use_listings_cache=False,
        skip_instance_cache=True,
    )


def _listed(store: Any, source: ObjectStoreSource) -> dict[str, dict[str, Any]]:
    """What is said of each key below the prefix, in order; no folders.

    A page at a time, and no page after the limit.
    """
    prefix = source.prefix.rstrip("/")
    found: dict[str, dict[str, Any]] = {}
    count = 0
    for page in _pages(store, source, f"{prefix}/" if prefix else ""):
        count += len(page)
        if count > MOST_FILES:
            raise refused(f"{source.bucket}/{prefix}: has at most {MOST_FILES} objects")
        found.update((str(each["Key"]), each) for each in page)
    if prefix and not found:
        # The first of the names that begin with the prefix is the prefix itself, if it is one.
        first = _page(store, source, {"Prefix": prefix, "MaxKeys": 1})
        found = {str(each["Key"]): each for each in first.get("Contents", ())}
        found = {key: each for key, each in found.items() if key == prefix}
    return {key: each for key, each in sorted(found.items()) if not key.endswith("/")}


def _pages(store: Any, source: ObjectStoreSource, prefix: str) -> Iterator[list[dict[str, Any]]]:
    more: dict[str, Any] = {}
    while True:
        page = _page(store, source, {"Prefix": prefix, **more})
        yield page.get("Contents", [])
        token = page.get("NextContinuationToken")
        if not page.get("IsTruncated") or not token:
            return
        more = {"ContinuationToken": token}


def _page(store: Any, source: ObjectStoreSource, asked: dict[str, Any]) -> dict[str, Any]:
    call = partial(store.call_s3, "list_objects_v2", Bucket=source.bucket, **asked)
    page: dict[str, Any] = _called(source, call)
    return page


def _bytes(store: Any, object_: tuple[str, str, str], size: int, begin: int) -> Iterator[bytes]:
    """The bytes of an object from one on. Raises: ApplicationError, when it has changed."""
    bucket, key, etag = object_
    while begin < size:
        end = min(begin + READ_BYTES, size)
        asked = {"Bucket": bucket, "Key": key, "Range": f"bytes={begin}-{end - 1}", "IfMatch": etag}
        answer = _called(key, partial(store.call_s3, "get_object", **asked))
        chunk = bytes(_called(key, partial(sync, store.loop, answer["Body"].read)))
        if len(chunk) != end - begin:
            raise unavailable(f"{bucket}/{key}: broke off at byte {begin + len(chunk)}")
        begin = end
        yield chunk


def _called(about: object, call: Any) -> Any:
    """The answer of the store. Raises: ApplicationError."""
    name = about if isinstance(about, str) else getattr(about, "bucket", "")
    try:
        return call()
    except PermissionError as error:
        raise refused(f"{name}: the store refuses it: {error}") from error
    except FileNotFoundError as error:
        raise refused(f"{name}: there is no such bucket or object") from error
    except (OSError, BotoCoreError, ClientError, TimeoutError) as error:
        raise unavailable(f"{name}: {error}") from error
