"""Files of web servers: read from any byte where the server can, and followed where they moved."""

import hashlib
import os
import struct
import uuid
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import httpcore

from activities.artifacts.sources.source_addresses import (
    CheckedNetwork,
    SourceAddressRefusedError,
    shown_url,
)
from activities.artifacts.sources.tar_streams import (
    CHUNK_BYTES,
    ExpectedHash,
    OpenedSource,
    SourceFile,
    after,
    gunzipped,
    refused,
    tar_of,
    tar_size,
    unavailable,
)
from workflows.contracts.artifacts import MOST_FILES, WebSource

MOST_REDIRECTS = 5
MOST_LIST_BYTES = 256 << 20
_LOCATOR_BYTES, _LONG_END_BYTES = 20, 56
_END_BYTES = (1 << 16) + 22 + _LOCATOR_BYTES + _LONG_END_BYTES
"""The end of a zip archive, with the longest comment, and the one of large archives before it."""
TIMEOUTS = {"connect": 10.0, "read": 60.0, "write": 60.0, "pool": 10.0}
_HEADERS: dict[bytes | str, bytes | str] = {"User-Agent": "baseload", "Accept-Encoding": "identity"}
_TRY_AGAIN = (408, 425, 429)
_REDIRECTS = (301, 302, 303, 307, 308)


@dataclass(frozen=True)
class RemoteFile:
    """A file of a server: the URL where it is, its size, and its version."""

    url: str
    size_bytes: int | None
    version: str
    """The strong ETag; empty: the server gives none, or the file at this URL never changes."""
    authorization: str = ""
    """What is sent to the host of the URL, and to no other one that it leads to."""


def open_web(source: WebSource, scratch: Path, most_bytes: int) -> OpenedSource:
    """A file, or what an archive holds. Blocking.

    scratch: a folder for a zip archive, whose list of files is at its end.
    Raises: ApplicationError `Refused` or `Unavailable`.
    """
    found = _look(source.url)
    version = found.version or uuid.uuid4().hex
    identity = f"web {source.url} {version} {found.size_bytes}"
    name = Path(unquote(urlsplit(source.url).path)).name or "file"
    lasts = bool(found.version)
    if source.unpack and name.endswith(".tar"):
        expected = None if source.sha256 is None else ExpectedHash(source.sha256, 0, None)
        return OpenedSource(
            identity, partial(remote_bytes, found), found.size_bytes, expected, lasts
        )
    if source.unpack and name.endswith((".tar.gz", ".tgz")):
        return OpenedSource(identity, partial(_unpacked, found, source.sha256), is_lasting=lasts)
    if found.size_bytes is None or (source.unpack and name.endswith(".zip")):
        path = scratch / "file"
        size = _download(_hashed(found, source.sha256), path, most_bytes)
        if source.unpack and name.endswith(".zip"):
            files = _zipped(path)
            return OpenedSource(identity, partial(tar_of, files), tar_size(files), is_lasting=lasts)
        one = [SourceFile(name, size, partial(_read, path))]
        identity = f"{identity} {size}"
        return OpenedSource(identity, partial(tar_of, one), tar_size(one), is_lasting=lasts)
    file = SourceFile(name, found.size_bytes, partial(remote_bytes, found))
    start = len(file.header)
    expected = None
    if source.sha256 is not None:
        expected = ExpectedHash(source.sha256, start, start + file.size_bytes)
    return OpenedSource(identity, partial(tar_of, [file]), tar_size([file]), expected, lasts)


def open_zip(archive: RemoteFile, scratch: Path, most_bytes: int, identity: str) -> OpenedSource:
    """What a zip archive holds whose files, by their identity, never change. Blocking.

    Raises: ApplicationError `Refused` or `Unavailable`.
    """
    path = scratch / "file"
    _download(remote_bytes(archive, 0), path, most_bytes)
    files = _zipped(path)
    return OpenedSource(identity, partial(tar_of, files), tar_size(files))


def _look(url: str) -> RemoteFile:
    """What the server says of a file, without reading it."""
    with _response(url, {}) as (where, response):
        headers = _headers(response)
        length = headers.get("content-length", "")
        etag = headers.get("etag", "")
        is_ranged = headers.get("accept-ranges") == "bytes" and not etag.startswith("W/")
        size = int(length) if length.isdigit() and "content-encoding" not in headers else None
        return RemoteFile(where, size, etag if is_ranged else "")


def remote_bytes(found: RemoteFile, begin: int) -> Iterator[bytes]:
    """The bytes of a file from one on.

    Raises: ApplicationError `Unavailable`, when the file has changed or its server breaks off.
    """
    headers: dict[bytes | str, bytes | str] = {}
    if begin:
        headers["Range"] = f"bytes={begin}-"
    if begin and found.version:
        headers["If-Range"] = found.version
    if found.authorization:
        headers["Authorization"] = found.authorization
    if begin and begin == found.size_bytes:
        return
    with _response(found.url, headers) as (_, response):
        etag = _headers(response).get("etag", "")
        if found.version and etag != found.version:
            raise unavailable(f"{shown_url(found.url)}: the file has changed while it was read")
        is_rest = _headers(response).get("content-range", "").startswith(f"bytes {begin}-")
        if response.status == 206 and not is_rest:
            raise unavailable(
                f"{shown_url(found.url)}: asked for the bytes from {begin}, got others"
            )
        skipped = 0 if response.status == 206 else begin
        at = begin - skipped
        for chunk in after(_chunks(found.url, response), skipped):
            at += len(chunk)
            yield chunk
        at += skipped
    if found.size_bytes is not None and at != found.size_bytes:
        raise unavailable(f"{shown_url(found.url)}: broke off at byte {at} of {found.size_bytes}")


def _hashed(found: RemoteFile, sha256: str | None) -> Iterator[bytes]:
    """All bytes of a file. Raises: ApplicationError `Refused` at their end, for another hash."""
    digest = hashlib.sha256()
    for chunk in remote_bytes(found, 0):
        digest.update(chunk)
        yield chunk
    if sha256 is not None and digest.hexdigest() != sha256:
        shown = shown_url(found.url)
        raise refused(f"{shown}: asked for the SHA-256 {sha256}, found {digest.hexdigest()}")


def _unpacked(found: RemoteFile, sha256: str | None, begin: int) -> Iterator[bytes]:
    return after(gunzipped(_hashed(found, sha256)), begin)


@contextmanager
def _response(
    url: str, headers: Mapping[bytes | str, bytes | str]
) -> Iterator[tuple[str, httpcore.Response]]:
    """The answer to a GET, and the URL that has given it after redirects."""
    with httpcore.ConnectionPool(network_backend=CheckedNetwork(), retries=0) as pool:
        for _ in range(MOST_REDIRECTS + 1):
            try:
                with pool.stream(
                    "GET",
                    url,
                    headers={**_HEADERS, **headers},
                    extensions={"timeout": TIMEOUTS},
                ) as response:
                    if response.status not in _REDIRECTS:
                        _check_status(url, response.status)
                        yield url, response
                        return
                    to = _redirected(url, _headers(response).get("location", ""))
                    if urlsplit(to).netloc != urlsplit(url).netloc:
                        headers = {k: v for k, v in headers.items() if k != "Authorization"}
                    url = to
            except SourceAddressRefusedError as error:
                raise refused(f"{shown_url(url)}: {error}") from error
            except (httpcore.NetworkError, httpcore.ProtocolError) as error:
                raise unavailable(f"{shown_url(url)}: {error or type(error).__name__}") from error
            except httpcore.TimeoutException as error:
                raise unavailable(
                    f"{shown_url(url)}: {error or 'no answer within its limit'}"
                ) from error
            except httpcore.UnsupportedProtocol as error:
                raise refused(f"{shown_url(url)}: {error}") from error
    raise refused(f"{shown_url(url)}: leads on more than {MOST_REDIRECTS} times")


def _redirected(url: str, location: str) -> str:
    to = urljoin(url, location)
    was, scheme = urlsplit(url).scheme, urlsplit(to).scheme
    is_less = was == "https" and scheme == "http"
    if scheme not in ("http", "https") or is_less or not location or not to.isascii():
        shown = ascii(shown_url(to)[:200])
        raise refused(
            f"{shown_url(url)}: leads to {shown}; followed are http and https, never from https"
        )
    return to


def _check_status(url: str, status: int) -> None:
    if status in (200, 206):
        return
    if status >= 500 or status in _TRY_AGAIN:
        raise unavailable(f"{shown_url(url)}: its server answers {status}")
    raise refused(f"{shown_url(url)}: its server answers {status}")


def _headers(response: httpcore.Response) -> dict[str, str]:
    decoded = (
        (name.decode("latin-1"), value.decode("latin-1")) for name, value in response.headers
    )
    return {name.lower(): value for name, value in decoded}


def _chunks(url: str, response: httpcore.Response) -> Iterator[bytes]:
    try:
        yield from response.iter_stream()
    except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException) as error:
        raise unavailable(
            f"{shown_url(url)}: broke off: {error or type(error).__name__}"
        ) from error


def _download(chunks: Iterator[bytes], path: Path, most_bytes: int) -> int:
    size = 0
    with path.open("wb") as file:
        for chunk in chunks:
            size += len(chunk)
            if size > most_bytes:
                raise refused(f"its file has at most {most_bytes} bytes, found more")
            file.write(chunk)
    return size


def _read(path: Path, begin: int) -> Iterator[bytes]:
    with path.open("rb") as file:
        file.seek(begin)
        while chunk := file.read(CHUNK_BYTES):
            yield chunk


def _zipped(path: Path) -> list[SourceFile]:
    """The files of a zip archive, in the order of their names.

    Raises: ApplicationError `Refused`.
    """
    try:
        count, size = _list_of(path)
        if size > MOST_LIST_BYTES or count > MOST_FILES:
            rule = f"its list of files has at most {MOST_LIST_BYTES} bytes and {MOST_FILES} files"
            raise refused(rule)
        archive = zipfile.ZipFile(path)
        members = sorted((each for each in archive.infolist() if not each.is_dir()), key=_name)
        for member in members:
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                # Python unpacks the others without a limit of memory.
                raise refused(f"{member.filename[:200]}: is stored or deflated, in a zip archive")
        if sum(member.compress_size for member in members) > path.stat().st_size:
            raise refused("is a zip archive whose files lie in each other")
    except (zipfile.BadZipFile, ValueError, OSError) as error:
        raise refused(f"is no whole zip archive: {error}") from error
    return [
        SourceFile(member.filename, member.file_size, partial(_unzipped, archive, member))
        for member in members
    ]


def _list_of(path: Path) -> tuple[int, int]:
    """How many files and bytes the list at the end of a zip archive says that it has.

    Python reads all of it into the memory.
    """
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _END_BYTES))
        end = file.read()
    at = end.rfind(b"PK\5\6")
    if at < 0 or len(end) < at + 22:
        raise zipfile.BadZipFile("it has no end")
    files, list_bytes = struct.unpack_from("<HL", end, at + 10)
    longer = at - _LOCATOR_BYTES - _LONG_END_BYTES
    if end[at - _LOCATOR_BYTES : at].startswith(b"PK\6\7"):  # Python then takes what this says.
        if longer < 0 or not end.startswith(b"PK\6\6", longer):
            raise zipfile.BadZipFile("its list is not before its end")
        files, list_bytes = struct.unpack_from("<QQ", end, longer + 32)
    return int(files), int(list_bytes)


def _name(member: zipfile.ZipInfo) -> str:
    return member.filename


def _unzipped(archive: zipfile.ZipFile, member: zipfile.ZipInfo, begin: int) -> Iterator[bytes]:
    try:
        with archive.open(member) as file:
            yield from after(iter(lambda: file.read(CHUNK_BYTES), b""), begin)
    except (zipfile.BadZipFile, RuntimeError, ValueError, OSError, EOFError) as error:
        # RuntimeError: it is encrypted, or packed in a way that Python does not know.
        raise refused(f"{member.filename[:200]}: cannot be unpacked: {error}") from error
