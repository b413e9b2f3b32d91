"""Buckets at Google, to which the files of an output are sent by its JSON API.

Small files are sent by one request, larger ones in chunks of a resumable upload. What Google says
is not repeated, and the address of an upload is a secret.
"""

import base64
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from urllib.parse import urlencode, urlsplit

from temporalio.exceptions import ApplicationError

from activities.artifacts.destinations.http_sending import HttpSender, Reply
from activities.artifacts.destinations.sending import (
    OutputFile,
    Sending,
    read_whole,
    send_each,
    shown_place,
)
from activities.artifacts.sources.google_storage import GoogleAccess
from activities.artifacts.sources.tar_streams import refused, unavailable
from workflows.contracts.deliveries import GoogleStorageDestination
from workflows.contracts.errors import UNAVAILABLE

READ_WRITE = "https://www.googleapis.com/auth/devstorage.read_write"
CHUNK_BYTES = 8 << 20
"""The chunks of larger files, a multiple of 256 KiB; what is no larger is sent at once."""
TRIES = 3
"""How often a chunk is sent whose answer is lost, each time from where the upload is."""
_RANGE = re.compile(r"bytes=0-(\d{1,18})")


def deliver_google_bucket(
    destination: GoogleStorageDestination, key: Mapping[str, str], sending: Sending
) -> str:
    """Send the files of an output to a bucket, and say where they are. Blocking.

    key: the fields of a third-party key.
    Raises: ApplicationError `Refused` or `Unavailable`.
    """
    with HttpSender() as sender:
        bucket = _Bucket(
            destination.bucket, GoogleAccess(destination.bucket, key, READ_WRITE), sender
        )
        send_each(sending, destination.prefix, bucket.put)
    return shown_place(f"gs://{destination.bucket}", destination.prefix)


class _Bucket:
    """A bucket that files are sent to."""

    def __init__(self, name: str, access: GoogleAccess, sender: HttpSender) -> None:
        self._name, self._access, self._sender = name, access, sender

    def put(self, name: str, file: OutputFile, beat: Callable[[], None]) -> None:
        """Store a file. Raises: ApplicationError."""
        shown = f"{self._name}/{name[:200]}"
        if file.size_bytes <= CHUNK_BYTES:
            content = read_whole(file, file.size_bytes)
            reply = self._ask("POST", self._url("media", name), {}, content, shown)
            _check(shown, reply)
            _compare(shown, reply, _md5(content))
            return
        said = {"X-Upload-Content-Length": str(file.size_bytes)}
        begun = self._ask("POST", self._url("resumable", name), said, b"", shown)
        _check(shown, begun)
        upload = _Upload(self, self._session(shown, begun), file.size_bytes, shown)
        upload.put_all(file, beat)

    def send_part(self, url: str, content_range: str, content: bytes, shown: str) -> Reply:
        """Send a part of an upload, or ask with no bytes how far it is."""
        return self._ask("PUT", url, {"Content-Range": content_range}, content, shown)

    def _ask(
        self, method: str, url: str, more: Mapping[str, str], content: bytes, shown: str
    ) -> Reply:
        headers = {
            "Authorization": self._access.authorization(),
            "Content-Type": "application/octet-stream",
            "Content-Length": str(len(content)),
            **more,
        }
        return self._sender.send(method, url, (headers, content), shown)

    def _url(self, kind: str, name: str) -> str:
        query = urlencode({"uploadType": kind, "name": name})
        return f"{self._access.base}/upload/storage/v1/b/{self._name}/o?{query}"

    def _session(self, shown: str, begun: Reply) -> str:
        """The address of a resumable upload, which is at the same server."""
        found = begun.headers.get("location", "")
        own, at = urlsplit(self._access.base), urlsplit(found)
        if (at.scheme, at.netloc) != (own.scheme, own.netloc):
            raise refused(f"{shown}: its upload leads to another server")
        return found


class _Upload:
    """A resumable upload of one file."""

    def __init__(self, bucket: _Bucket, url: str, size_bytes: int, shown: str) -> None:
        self._bucket, self._url, self._size, self._shown = bucket, url, size_bytes, shown

    def put_all(self, file: OutputFile, beat: Callable[[], None]) -> None:
        """Send the content in chunks. Raises: ApplicationError."""
        at, digest = 0, hashlib.md5(usedforsecurity=False)
        reply: Reply | None = None
        while at < self._size:
            chunk = read_whole(file, min(CHUNK_BYTES, self._size - at))
            digest.update(chunk)
            reply = self._put(chunk, at)
            at += len(chunk)
            beat()
        if reply is None or not reply.is_taken:
            raise unavailable(f"{self._shown}: all is sent, and the upload has not ended")
        _compare(self._shown, reply, digest.digest())

    def _put(self, chunk: bytes, at: int) -> Reply:
        """Send a chunk, going on after the bytes of it that have arrived."""
        end, begin = at + len(chunk), at
        for _ in range(TRIES):
            reply = self._sent(chunk[begin - at :], begin)
            if reply.is_taken:
                return reply
            if reply.status != 308:
                continue
            begin = self._arrived(reply)
            if begin == end:
                return reply
            if not at <= begin < end:
                raise unavailable(f"{self._shown}: its upload has lost bytes, and begins anew")
        raise unavailable(f"{self._shown}: a chunk was sent {TRIES} times and has not arrived")

    def _sent(self, content: bytes, begin: int) -> Reply:
        said = f"bytes {begin}-{begin + len(content) - 1}/{self._size}"
        try:
            reply = self._bucket.send_part(self._url, said, content, self._shown)
        except ApplicationError as failure:
            if failure.type != UNAVAILABLE:
                raise
            reply = None
        if reply is None or reply.may_be_repeated:
            reply = self._bucket.send_part(self._url, f"bytes */{self._size}", b"", self._shown)
        if reply.status in (404, 410):
            raise unavailable(f"{self._shown}: its upload is gone, and begins anew")
        if reply.status != 308 and not reply.may_be_repeated:
            _check(self._shown, reply)
        return reply

    def _arrived(self, reply: Reply) -> int:
        """How many bytes of the upload have arrived."""
        found = _RANGE.fullmatch(reply.headers.get("range", ""))
        return int(found.group(1)) + 1 if found else 0


def _check(shown: str, reply: Reply) -> None:
    if reply.is_taken:
        return
    if reply.may_be_repeated:
        raise unavailable(f"{shown}: Google answers {reply.status}")
    if reply.status == 404:
        raise refused(f"{shown}: there is no such bucket (404)")
    if reply.status in (401, 403):
        raise refused(f"{shown}: Google refuses the key, or what it may do ({reply.status})")
    raise refused(f"{shown}: Google refuses it ({reply.status})")


def _compare(shown: str, reply: Reply, digest: bytes) -> None:
    """Raises: ApplicationError `Unavailable`, when the object that is stored has other bytes."""
    try:
        found = json.loads(reply.content)
    except (ValueError, RecursionError):
        raise unavailable(f"{shown}: the answer of Google is no JSON") from None
    said = found.get("md5Hash") if isinstance(found, dict) else None
    if said is not None and said != base64.b64encode(digest).decode():
        raise unavailable(f"{shown}: Google has stored other bytes")


def _md5(content: bytes) -> bytes:
    return hashlib.md5(content, usedforsecurity=False).digest()
