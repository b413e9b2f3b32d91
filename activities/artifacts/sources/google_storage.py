"""Buckets at Google: the objects whose names begin alike, each in the generation that was listed.

By its JSON API, as files of the web are asked: fsspec's library for it asks a control service by
gRPC first, and waits a minute where that does not answer.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any
from urllib.parse import quote, urlencode

from google.auth.exceptions import GoogleAuthError, TransportError
from google.auth.transport.requests import Request
from google.oauth2.service_account import Credentials
from temporalio.exceptions import ApplicationError

from activities.artifacts.sources.tar_streams import (
    OpenedSource,
    SourceFile,
    name_below,
    refused,
    tar_of,
    tar_size,
    unavailable,
)
from activities.artifacts.sources.web import RemoteFile, remote_bytes
from activities.settings import settings
from activities.third_party_keys.of_runs import service_account
from workflows.contracts.artifacts import MOST_FILES, GoogleStorageSource

ENDPOINT = "https://storage.googleapis.com"
READ_ONLY = "https://www.googleapis.com/auth/devstorage.read_only"
TOKEN_S = 20.0
MOST_PAGE_BYTES = 16 << 20
SHOWN = "items(name,size,generation),nextPageToken"


def open_google_bucket(source: GoogleStorageSource, key: Mapping[str, str] | None) -> OpenedSource:
    """The objects of a bucket, read by ranges of the generation that was listed. Blocking.

    key: the fields of a third-party key; None: the bucket is public.
    Raises: ApplicationError `Refused` or `Unavailable`.
    """
    bucket = _Bucket(source, key)
    files, marks = [], hashlib.sha256()
    for name, size, generation in bucket.listed():
        file_name = name_below(source.prefix, name)
        marks.update(f"{file_name}\0{size}\0{generation}\n".encode("utf-8", "surrogatepass"))
        files.append(SourceFile(file_name, size, partial(bucket.read, name, size, generation)))
    where = f"gcp {source.bucket} {source.prefix}"
    if not files:
        raise refused(f"{where}: there is no object")
    identity = f"{where} {marks.hexdigest()}"
    return OpenedSource(identity, partial(tar_of, files), tar_size(files))


class GoogleAccess:
    """Where a bucket is asked for, and the tokens by which it is opened."""

    def __init__(self, bucket: str, key: Mapping[str, str] | None, scope: str) -> None:
        endpoint = settings().gcs_endpoint
        self.base = (endpoint or ENDPOINT).rstrip("/")
        self._bucket = bucket
        self._credentials: Any = None
        if key is not None:
            account = service_account(key)
            if endpoint is not None:
                account["token_uri"] = f"{self.base}/token"
            make: Any = Credentials.from_service_account_info
            self._credentials = make(account, scopes=[scope])

    def authorization(self) -> str:
        """The header with a token that is valid now; empty without a key.

        Raises: ApplicationError `Refused` or `Unavailable`.
        """
        if self._credentials is None:
            return ""
        if not self._credentials.valid:
            try:
                self._credentials.refresh(partial(Request(), timeout=TOKEN_S))
            except TransportError as error:
                raise unavailable(f"{self._bucket}: no token: no answer") from error
            except GoogleAuthError as error:
                # Without its words, which are of whoever answers.
                raise refused(f"{self._bucket}: Google refuses the project's key") from error
        return f"Bearer {self._credentials.token}"


class _Bucket:
    """A bucket, and the tokens by which it is read."""

    def __init__(self, source: GoogleStorageSource, key: Mapping[str, str] | None) -> None:
        self._source = source
        self._access = GoogleAccess(source.bucket, key, READ_ONLY)

    def listed(self) -> list[tuple[str, int, str]]:
        """Name, size and generation of all objects below the prefix, in order; no folders."""
        prefix = self._source.prefix.rstrip("/")
        asked = {"prefix": prefix, "fields": SHOWN, "maxResults": "1000"}
        found: list[tuple[str, int, str]] = []
        while True:
            answer = self._page(asked)
            for each in answer.get("items") or []:
                name, size = str(each["name"]), int(each["size"])
                if (not prefix or f"{name}/".startswith(f"{prefix}/")) and not name.endswith("/"):
                    found.append((name, size, str(each["generation"])))
            if len(found) > MOST_FILES:
                raise refused(f"{self._source.bucket}: has at most {MOST_FILES} objects")
            if not answer.get("nextPageToken"):
                return sorted(found)
            asked["pageToken"] = str(answer["nextPageToken"])

    def read(self, name: str, size: int, generation: str, begin: int) -> Iterator[bytes]:
        """The bytes of an object from one on; a generation never changes, but may be removed."""
        query = urlencode({"alt": "media", "generation": generation})
        url = f"{self._objects}/{quote(name, safe='')}?{query}"
        try:
            yield from remote_bytes(RemoteFile(url, size, "", self._access.authorization()), begin)
        except ApplicationError as error:
            if str(error).endswith("answers 404"):
                raise unavailable(f"{name[:200]}: has changed while it was read") from error
            raise

    @property
    def _objects(self) -> str:
        return f"{self._access.base}/storage/v1/b/{self._source.bucket}/o"

    def _page(self, asked: Mapping[str, str]) -> dict[str, Any]:
        url = f"{self._objects}?{urlencode(asked)}"
        content = b""
        for chunk in remote_bytes(RemoteFile(url, None, "", self._access.authorization()), 0):
            content += chunk
            if len(content) > MOST_PAGE_BYTES:
                raise unavailable(f"{self._objects}: a page has more than {MOST_PAGE_BYTES} bytes")
        try:
            found = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise unavailable(f"{self._objects}: its answer is no JSON") from error
        if not isinstance(found, dict):
            raise unavailable(f"{self._objects}: its answer is no JSON object")
        return found
