"""A double of Kaggle's API for datasets: files are sent to another host, versions are processed."""

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.doubles.http_double import Answer, Asked, Faults


@dataclass
class KaggleVersion:
    notes: str
    files: dict[str, bytes]


@dataclass
class KaggleApi:
    """One dataset, `ada/pets`, which the owner of the key may change."""

    username: str
    key: str
    blobs: str = ""
    """The base URL at which files are sent."""
    versions: list[KaggleVersion] = field(default_factory=list)
    processing: int = 0
    """How often the newest version is still processed when its status is asked for."""
    hides_processed: bool = True
    """Whether a version is shown only when it is ready."""
    faults: Faults = field(default_factory=Faults)
    sent: dict[str, tuple[str, int, bytes | None]] = field(default_factory=dict)
    """By token, the name, the size that was said, and the content."""
    blob_authorizations: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)

    def answer(self, asked: Asked) -> Answer:
        """What `www.kaggle.com` answers."""
        self.asked.append(asked.path)
        login = base64.b64encode(f"{self.username}:{self.key}".encode()).decode()
        if asked.headers.get("authorization") != f"Basic {login}":
            return _json({"code": 401, "message": "Unauthenticated"}, 401)
        if asked.method == "POST" and (status := self.faults.refusal()):
            return _json({"code": status, "message": "no"}, status)
        answers: dict[tuple[str, str], Callable[[], Answer]] = {
            ("GET", "datasets/view/ada/pets"): lambda: _json(self._view()),
            ("GET", "datasets/status/ada/pets"): lambda: _json({"status": self._status()}),
            ("POST", "blobs/upload"): lambda: self._begun(json.loads(asked.body)),
            ("POST", "datasets/create/version/ada/pets"): lambda: self._created(
                json.loads(asked.body)
            ),
        }
        found = answers.get((asked.method, asked.path.removeprefix("/api/v1/")))
        return _json({"code": 404, "message": "Not found"}, 404) if found is None else found()

    def blob_answer(self, asked: Asked) -> Answer:
        """What the host of the files answers."""
        self.blob_authorizations.add(asked.headers.get("authorization", ""))
        token = asked.query.get("upload_id", "")
        if asked.method != "PUT" or token not in self.sent:
            return Answer(403)
        name, size, _ = self.sent[token]
        if len(asked.body) != size:
            return Answer(400)
        self.sent[token] = (name, size, asked.body)
        return Answer(200)

    def _view(self) -> dict[str, Any]:
        shown = self.versions
        if self.processing and self.hides_processed:
            shown = self.versions[:-1]
        versions = [
            {"versionNumber": number, "versionNotes": each.notes, "status": "Ready"}
            for number, each in enumerate(shown, start=1)
        ]
        return {"ref": "ada/pets", "currentVersionNumber": len(shown), "versions": versions}

    def _status(self) -> str:
        if not self.processing:
            return "ready"
        self.processing -= 1
        return "blobsReceived"

    def _begun(self, said: dict[str, Any]) -> Answer:
        if set(said) - {"type", "name", "contentLength", "lastModifiedEpochSeconds"}:
            return _json({"code": 400, "message": "unknown fields"}, 400)
        if said["type"] != "DATASET" or "/" in said["name"] or not said["name"]:
            return _json({"code": 400, "message": "bad blob"}, 400)
        token = f"token-{len(self.sent)}"
        self.sent[token] = (said["name"], int(said["contentLength"]), None)
        return _json({"token": token, "createUrl": f"{self.blobs}/u?upload_id={token}"})

    def _created(self, said: dict[str, Any]) -> Answer:
        if set(said) - {"versionNotes", "deleteOldVersions", "files", "directories"}:
            return _json({"code": 400, "message": "unknown fields"}, 400)
        try:
            files = self._files(said, "")
        except KeyError:
            return _json({"status": "error", "error": "a file was not sent"})
        self.versions.append(KaggleVersion(said["versionNotes"], files))
        return self.faults.after(_json({"status": "ok", "url": "https://www.kaggle.com/ada/pets"}))

    def _files(self, folder: dict[str, Any], path: str) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        for each in folder["files"]:
            name, _, content = self.sent[each["token"]]
            if content is None:
                raise KeyError(name)
            found[path + name] = content
        for each in folder["directories"]:
            found |= self._files(each, f"{path}{each['name']}/")
        return found


def _json(content: Any, status: int = 200) -> Answer:
    return Answer(status, json.dumps(content).encode(), {"Content-Type": "application/json"})
