"""Buckets of object stores that have Amazon's S3 API, to which the files of an output are sent.

Its libraries take half a second to import, so its caller imports it when a delivery needs it.
What the store says is not repeated: its code alone, because its words may hold what was sent.
"""

import base64
import hashlib
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from temporalio.exceptions import ApplicationError

from activities.artifacts.destinations.sending import (
    OutputFile,
    Sending,
    read_whole,
    send_each,
    shown_place,
)
from activities.artifacts.sources.object_stores import store_at
from activities.artifacts.sources.tar_streams import refused, unavailable
from workflows.contracts.deliveries import ObjectStoreDestination

PART_BYTES = 8 << 20
"""The parts of larger files; what is no larger is sent at once. The store takes no smaller ones."""
MOST_PARTS = 10_000
_TRY_AGAIN = frozenset({
    "BadDigest", "IncompleteBody", "NoSuchUpload", "OperationAborted", "RequestTimeout",
    "RequestTimeTooSkewed", "SlowDown", "TooManyRequests",
})  # fmt: skip
"""What the store refuses of one request, and may take of another. An upload that is gone was
completed by a request whose answer was lost, or ended by a later attempt: its file is sent again.
"""
_CODE = re.compile(r"[A-Za-z0-9.]{1,60}")


def deliver_bucket(
    destination: ObjectStoreDestination, key: Mapping[str, str], sending: Sending
) -> str:
    """Send the files of an output to a bucket, and say where they are. Blocking.

    key: the fields of a third-party key.
    Raises: ApplicationError `Refused` or `Unavailable`.
    """
    bucket = _Bucket(destination, key)
    send_each(sending, destination.prefix, bucket.put)
    scheme = {"aws": "s3", "wasabi": "wasabi"}[destination.type]
    return shown_place(f"{scheme}://{destination.bucket}", destination.prefix)


class _Bucket:
    """A bucket that files are sent to."""

    def __init__(self, destination: ObjectStoreDestination, key: Mapping[str, str]) -> None:
        self._bucket, self._region = destination.bucket, destination.region
        self._store = store_at(destination.type, destination.region, key)

    def put(self, name: str, file: OutputFile, beat: Callable[[], None]) -> None:
        """Store a file. Raises: ApplicationError."""
        if file.size_bytes > PART_BYTES:
            self._put_in_parts(name, file, beat)
            return
        content = read_whole(file, file.size_bytes)
        self._call("put_object", name, Body=content, ContentMD5=_md5(content))

    def _put_in_parts(self, name: str, file: OutputFile, beat: Callable[[], None]) -> None:
        """Store a large file; nothing of it is there before its last part is."""
        upload = {"UploadId": self._call("create_multipart_upload", name)["UploadId"]}
        most, left = max(PART_BYTES, -(-file.size_bytes // MOST_PARTS)), file.size_bytes
        parts: list[dict[str, Any]] = []
        try:
            while left:
                content = read_whole(file, min(most, left))
                left -= len(content)
                part = {"PartNumber": len(parts) + 1}
                said = {**upload, **part, "Body": content, "ContentMD5": _md5(content)}
                parts.append({**part, "ETag": self._call("upload_part", name, **said)["ETag"]})
                beat()
            done = {"MultipartUpload": {"Parts": parts}}
            self._call("complete_multipart_upload", name, **upload, **done)
        except BaseException:  # Also of a process that stops: its parts would stay, and cost.
            with suppress(ApplicationError):  # The rules of the bucket may remove it later.
                self._call("abort_multipart_upload", name, **upload)
            raise

    def _call(self, method: str, name: str, **said: Any) -> Any:
        """The answer of the store. Raises: ApplicationError, without the words of the store."""
        where = f"{self._bucket}/{name[:200]}"
        try:
            return self._store.call_s3(method, Bucket=self._bucket, Key=name, **said)
        except (OSError, BotoCoreError, ClientError) as error:
            raise self._failure(where, error) from None

    def _failure(self, where: str, error: BaseException) -> ApplicationError:
        answer = _answer(error)
        code = str(answer.get("Error", {}).get("Code", ""))
        status = int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        shown = code if _CODE.fullmatch(code) else str(status)
        if code in _TRY_AGAIN or status in (408, 425, 429) or not 300 <= status < 500:
            return unavailable(f"{where}: {shown if status else type(error).__name__}")
        if status == 404:
            return refused(f"{where}: there is no such bucket ({shown})")
        if status in (301, 307):
            return refused(f"{where}: the bucket is not in region {self._region} ({shown})")
        return refused(f"{where}: the store refuses it ({shown})")


def _answer(error: BaseException) -> dict[str, Any]:
    """What the store has answered; s3fs has it behind an error of its own."""
    found: BaseException | None = error
    while found is not None and not isinstance(found, ClientError):
        found = found.__cause__
    return dict(found.response) if isinstance(found, ClientError) else {}


def _md5(content: bytes) -> str:
    return base64.b64encode(hashlib.md5(content, usedforsecurity=False).digest()).decode()
