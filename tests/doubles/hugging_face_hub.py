"""A double of Hugging Face's hub with the branches of one repository, which is written and read."""

import base64
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from tests.doubles.http_double import Answer, Asked, Faults

LARGE_BYTES = 10_000
"""What is larger is sent apart."""
PAGE = 3


@dataclass
class HubCommit:
    id: str
    title: str
    files: dict[str, bytes]


@dataclass
class HuggingFaceHub:
    """The repository `pets/cats`; each branch has its commits, the newest last."""

    token: str
    kind: str = "model"
    url: str = ""
    blobs: str = ""
    """The base URL to which large files are sent."""
    branches: dict[str, list[HubCommit]] = field(default_factory=dict)
    sent: dict[str, bytes] = field(default_factory=dict)
    """What was sent apart, by its hash."""
    faults: Faults = field(default_factory=Faults)
    before_commit: Callable[[], object] | None = None
    """Called once, when the next commit begins: what others do meanwhile."""
    blob_authorizations: set[str] = field(default_factory=set)

    def add(self, branch: str, title: str, files: dict[str, bytes]) -> HubCommit:
        """A commit on a branch, which keeps the files of the one before."""
        commits = self.branches.setdefault(branch, [])
        before = commits[-1].files if commits else {}
        number = sum(map(len, self.branches.values()))
        commit_id = hashlib.sha1(f"{branch} {number} {title}".encode()).hexdigest()
        commits.append(HubCommit(commit_id, title, {**before, **files}))
        return commits[-1]

    def answer(self, asked: Asked) -> Answer:
        """What the hub answers."""
        if asked.headers.get("authorization") != f"Bearer {self.token}":
            return _json({"error": "no"}, 401, {"X-Error-Code": "RepoNotFound"})
        folder = "datasets/" if self.kind == "dataset" else ""
        if asked.path == f"/{folder}pets/cats.git/info/lfs/objects/batch":
            return self._batch(json.loads(asked.body))
        verb, _, revision = asked.path.removeprefix(f"/api/{self.kind}s/pets/cats/").partition("/")
        branch = unquote(revision)
        if verb == "branch":
            self.branches[branch] = list(self.branches["main"])
            return _json({})
        verbs: dict[str, Callable[[], Answer]] = {
            "commits": lambda: self._commits(branch, asked),
            "preupload": lambda: _modes(json.loads(asked.body), self.branches[branch][-1]),
            "commit": lambda: self._committed(branch, asked.body),
            "revision": lambda: _json({"id": "pets/cats", "sha": self.branches[branch][-1].id}),
        }
        if verb not in verbs:
            return _json({"error": "no"}, 404, {"X-Error-Code": "RepoNotFound"})
        if branch not in self.branches:
            return _json({"error": "no"}, 404, {"X-Error-Code": "RevisionNotFound"})
        return verbs[verb]()

    def blob_answer(self, asked: Asked) -> Answer:
        """What the host of large files answers."""
        self.blob_authorizations.add(asked.headers.get("authorization", ""))
        oid = asked.path.removeprefix("/")
        if asked.method != "PUT" or hashlib.sha256(asked.body).hexdigest() != oid:
            return Answer(400)
        self.sent[oid] = asked.body
        return Answer(200)

    def _commits(self, branch: str, asked: Asked) -> Answer:
        page = int(asked.query.get("p", "0"))
        commits = self.branches[branch][::-1]
        shown = [
            {"id": each.id, "title": each.title, "message": "", "authors": [], "date": "2026-01-01"}
            for each in commits[page * PAGE : (page + 1) * PAGE]
        ]
        headers = {}
        if len(commits) > (page + 1) * PAGE:
            headers["Link"] = f'<{self.url}{asked.path}?p={page + 1}>; rel="next"'
        return _json(shown, 200, headers)

    def _batch(self, said: dict[str, Any]) -> Answer:
        objects = []
        for each in said["objects"]:
            found = {"oid": each["oid"], "size": each["size"]}
            if each["oid"] not in self.sent:
                found["actions"] = {"upload": {"href": f"{self.blobs}/{each['oid']}"}}
            objects.append(found)
        return _json({"transfer": "basic", "objects": objects})

    def _committed(self, branch: str, body: bytes) -> Answer:
        if self.before_commit is not None:
            called, self.before_commit = self.before_commit, None
            called()
        if status := self.faults.refusal():
            return _json({"error": "no"}, status)
        lines = [json.loads(line) for line in body.splitlines()]
        header = lines[0]["value"]
        if header["parentCommit"] != self.branches[branch][-1].id:
            return _json({"error": "A commit has happened since."}, 412)
        files = {}
        for line in lines[1:]:
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile" and value["oid"] in self.sent:
                files[value["path"]] = self.sent[value["oid"]]
            else:
                return _json({"error": "a file was not sent"}, 400)
        made = self.add(branch, header["summary"], files)
        answer = {"commitUrl": f"{self.url}/pets/cats/commit/{made.id}", "commitOid": made.id}
        return self.faults.after(_json(answer))


def _modes(said: dict[str, Any], newest: HubCommit) -> Answer:
    """How each file is sent, and the id of the one that is there; a .gitignore leaves out .log."""
    ignores = said.get("gitIgnore", "*.log")
    files = []
    for each in said["files"]:
        is_large = each["size"] > LARGE_BYTES
        found = {
            "path": each["path"],
            "uploadMode": "lfs" if is_large else "regular",
            "shouldIgnore": bool(ignores) and each["path"].endswith(".log"),
        }
        if (content := newest.files.get(each["path"])) is not None:
            found["oid"] = _oid(content, is_large=is_large)
        files.append(found)
    return _json({"files": files})


def _oid(content: bytes, *, is_large: bool) -> str:
    if is_large:
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def _json(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Answer:
    said = {"Content-Type": "application/json", **(headers or {})}
    return Answer(status, json.dumps(content).encode(), said)
