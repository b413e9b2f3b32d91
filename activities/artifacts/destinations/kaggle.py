"""Datasets at Kaggle, which get a new version with an output, by Kaggle's HTTP API.

`sources/kaggle.py` says why its own library is not used. The requests are those that the code of
this library makes (kaggle 1.7.4, kagglehub 1.0.3, kagglesdk 0.1.38). They were tried against a
double that follows this code, never against Kaggle itself. Above all it is only declared there that
a dataset's description has the notes of its versions, by which a repeat finds its own.
"""

import base64
import json
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import IO, Any
from urllib.parse import urlsplit

from activities.artifacts.destinations.http_sending import HttpSender, Reply
from activities.artifacts.destinations.sending import OutputFile, Sending
from activities.artifacts.scratch import reserve_room
from activities.artifacts.sources.tar_streams import CHUNK_BYTES, refused, unavailable
from activities.settings import settings
from workflows.contracts.deliveries import KaggleDestination

MOST_SINGLE_FILES = 50
"""More files are sent as one archive, which Kaggle unpacks, as its own library does."""
ARCHIVE = "archive.zip"
_ENDED = ("ready", "failed", "deleted")
"""The statuses of a version that Kaggle is not processing."""
_ZIP_OVERHEAD_BYTES = 4096


def deliver_kaggle(destination: KaggleDestination, key: Mapping[str, str], sending: Sending) -> str:
    """Give a dataset, which is there already, a new version with an output. Blocking.

    A dataset that has the version of an earlier attempt stays as it is. While Kaggle processes a
    version, which may be that one, none is made.
    key: the fields of the project's key of the type kaggle.
    Raises: ApplicationError `Refused` or `Unavailable`.
    """
    if not sending.file_count:
        raise refused(f"kaggle {destination.dataset}: a version has at least one file, found none")
    with HttpSender() as sender:
        kaggle = _Kaggle(destination.dataset, key, sender)
        if found := kaggle.version_with(sending.mark):
            return f"kaggle {destination.dataset} version {found}"
        kaggle.check_status()
        if sending.file_count > MOST_SINGLE_FILES:
            files = _Folder(kaggle.upload_archive(sending))
        else:
            files = _Folder()
            for number, file in enumerate(sending.files(0), start=1):
                name = PurePosixPath(file.name)
                token = kaggle.upload(name.name, file.size_bytes, _content(file))
                files.below(name.parts[:-1]).tokens.append(token)
                sending.tell(number)
        sending.tell(sending.file_count)
        kaggle.create_version(sending.mark, files)
    return f"kaggle {destination.dataset}, as its new version"


class _Folder:
    """The files of a version in one folder, by the tokens of what was sent."""

    def __init__(self, *tokens: str) -> None:
        self.tokens = list(tokens)
        self.folders: dict[str, _Folder] = {}

    def below(self, parts: tuple[str, ...]) -> "_Folder":
        """The folder of this path in it."""
        found = self
        for part in parts:
            found = found.folders.setdefault(part, _Folder())
        return found

    def said(self) -> dict[str, Any]:
        """The folder as Kaggle takes it."""
        return {
            "files": [{"token": token} for token in self.tokens],
            "directories": [
                {"name": name, **folder.said()} for name, folder in self.folders.items()
            ],
        }


class _Kaggle:
    """Kaggle's API for one dataset."""

    def __init__(self, dataset: str, key: Mapping[str, str], sender: HttpSender) -> None:
        login = f"{key['username']}:{key['key']}".encode()
        self._authorization = f"Basic {base64.b64encode(login).decode()}"
        self._base = f"{settings().kaggle_endpoint.rstrip('/')}/api/v1"
        self._dataset, self._sender = dataset, sender

    def version_with(self, mark: str) -> int:
        """The number of the version whose notes are the mark; 0: there is none."""
        found = self._ask("GET", f"datasets/view/{self._dataset}")
        versions = found.get("versions")
        for version in versions if isinstance(versions, list) else ():
            if isinstance(version, dict) and version.get("versionNotes") == mark:
                number = version.get("versionNumber")
                return number if isinstance(number, int) and number > 0 else 1
        return 0

    def check_status(self) -> None:
        """Raises: ApplicationError `Unavailable`, while Kaggle processes a version."""
        said = self._ask("GET", f"datasets/status/{self._dataset}").get("status")
        if isinstance(said, str) and said.lower() not in _ENDED:
            raise unavailable(f"kaggle {self._dataset}: is processing a version: {said[:50]}")

    def upload(self, name: str, size_bytes: int, chunks: Iterator[bytes]) -> str:
        """Send a file; the token by which a version names it."""
        blob = {"type": "DATASET", "name": name, "contentLength": size_bytes}
        begun = self._ask("POST", "blobs/upload", blob)
        token, url = begun.get("token"), begun.get("createUrl")
        if not isinstance(token, str) or not isinstance(url, str) or not token:
            raise unavailable(f"kaggle {self._dataset}: says no place for {name[:200]!r}")
        if urlsplit(url).scheme not in ("https", urlsplit(self._base).scheme):
            raise refused(f"kaggle {self._dataset}: says a place for a file that is not https")
        # The place is at another host and a secret, and the key is not for it.
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size_bytes)}
        shown = f"kaggle {self._dataset}: {name[:200]}"
        self._check(self._sender.send("PUT", url, (headers, chunks), shown), shown)
        return token

    def upload_archive(self, sending: Sending) -> str:
        """Send all files as one archive, which is packed on disk first; its token."""
        size = sending.size_bytes + sending.file_count * _ZIP_OVERHEAD_BYTES
        reserve_room(sending.scratch, size)
        path = sending.scratch / ARCHIVE
        with zipfile.ZipFile(path, "w") as archive:
            for file in sending.files(0):
                member = zipfile.ZipInfo(file.name)
                member.file_size = file.size_bytes
                with archive.open(member, "w") as packed:
                    shutil.copyfileobj(file.content, packed, CHUNK_BYTES)
                sending.tell(0)
        with path.open("rb") as packed:
            size = path.stat().st_size
            return self.upload(ARCHIVE, size, _chunks(packed, sending))

    def create_version(self, mark: str, files: _Folder) -> None:
        """Make a version of what was sent, with the mark as its notes."""
        said = {"versionNotes": mark, "deleteOldVersions": False, **files.said()}
        answer = self._ask("POST", f"datasets/create/version/{self._dataset}", said)
        status = answer.get("status")
        if isinstance(status, str) and status.lower() != "ok":
            why = str(answer.get("error") or status)[:200]
            raise refused(f"kaggle {self._dataset}: makes no version: {why}")

    def _ask(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """The JSON that Kaggle answers."""
        content = b"" if body is None else json.dumps(body).encode()
        headers = {"Authorization": self._authorization, "Accept": "application/json"}
        headers["Content-Length"] = str(len(content))
        if body is not None:
            headers["Content-Type"] = "application/json"
        shown = f"{self._base}/{path}"
        reply = self._sender.send(method, shown, (headers, content), shown)
        self._check(reply, shown)
        try:
            found = json.loads(reply.content)
        except (ValueError, RecursionError) as error:
            raise unavailable(f"{shown}: its answer is no JSON") from error
        if not isinstance(found, dict):
            raise unavailable(f"{shown}: its answer is no JSON object")
        if isinstance(code := found.get("code"), int) and code >= 400:
            self._check(Reply(code, {}, b""), shown)
        return found

    def _check(self, reply: Reply, shown: str) -> None:
        """Raises: ApplicationError, when what was asked was not done."""
        if reply.is_taken:
            return
        if reply.may_be_repeated:
            raise unavailable(f"{shown}: its server answers {reply.status}")
        if reply.status in (401, 403, 404):
            raise refused(
                f"{shown}: its server answers {reply.status}: the dataset must be there, and the "
                "project's key of the type kaggle must be of its owner"
            )
        raise refused(f"{shown}: its server answers {reply.status}")


def _content(file: OutputFile) -> Iterator[bytes]:
    while chunk := file.content.read(CHUNK_BYTES):
        yield chunk


def _chunks(packed: IO[bytes], sending: Sending) -> Iterator[bytes]:
    while chunk := packed.read(CHUNK_BYTES):
        yield chunk
        sending.tell(0)
