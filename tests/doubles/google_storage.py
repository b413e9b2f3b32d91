"""A double of Google's object store: its JSON API and its tokens, with what it refuses.

It answers as fake-gcs-server does, and asks for more: a signed request for a token, and the token.
"""

import base64
import hashlib
import json
from dataclasses import dataclass, field
from urllib.parse import parse_qs, unquote

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from tests.doubles.http_double import Answer, Asked, Faults, part_of

TOKEN = "ya29.a-token-that-is-made-up"
SCOPES = {
    f"https://www.googleapis.com/auth/devstorage.{name}": f"{TOKEN}{end}"
    for name, end in (("read_only", ""), ("read_write", "-and-writes"))
}
"""The tokens by their scopes."""
WRITING_TOKEN = f"{TOKEN}-and-writes"
UNIT_BYTES = 256 << 10
"""Each chunk of an upload but the last has a multiple of it."""
PAGE = 2
"""The objects of a page."""


@dataclass
class Upload:
    """A resumable upload."""

    name: str
    size_bytes: int
    content: bytearray = field(default_factory=bytearray)
    is_over: bool = False


@dataclass
class GoogleStorage:
    """One bucket, `pets`; private: for the service account of this key alone."""

    private_key: str | None = None
    objects: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    """By name, each object's generation and content."""
    tokens: int = 0
    """How many were given."""
    faults: Faults = field(default_factory=Faults)
    uploads: dict[str, "Upload"] = field(default_factory=dict)
    """Resumable uploads that have not ended, by their ids."""
    takes_bytes: list[int] = field(default_factory=list)
    """How many bytes of the next chunks arrive, in whole units; the answers to them are lost."""
    leads_to: str = ""
    """Where uploads begin; empty: at this server."""
    spoils: bool = False
    """Whether what is stored has other bytes."""
    writes: int = 0
    """How often an object was stored."""

    def put(self, name: str, content: bytes) -> None:
        self.objects[name] = (self.objects.get(name, (1000, b""))[0] + 1, content)

    def answer(self, asked: Asked) -> Answer:
        if asked.path == "/token":
            return self._token(asked)
        sent = asked.headers.get("authorization")
        if asked.path.startswith("/upload/"):
            return self._write(asked, sent)
        if self.private_key is not None and sent not in {f"Bearer {t}" for t in SCOPES.values()}:
            return Answer(401 if sent is None else 403, b"{}")
        folder = "/storage/v1/b/pets/o"
        if asked.path == folder:
            return self._list(asked)
        generation, content = self.objects.get(unquote(asked.path[len(folder) + 1 :]), (0, b""))
        if not asked.path.startswith(folder) or asked.query.get("generation") != str(generation):
            return Answer(404, b"{}")
        return part_of(content, asked, {})

    def _write(self, asked: Asked, sent: str | None) -> Answer:
        """A request that stores an object, or a part of one."""
        if status := self.faults.refusal():
            return Answer(status, b"{}")
        if sent != f"Bearer {WRITING_TOKEN}":
            return Answer(401 if sent is None else 403, b"{}")
        if asked.path != "/upload/storage/v1/b/pets/o":
            return Answer(404, b"{}")
        if asked.method == "PUT":
            return self.faults.after(self._part(asked))
        name = asked.query["name"]
        if asked.query["uploadType"] == "media":
            return self.faults.after(self._stored(name, asked.body))
        assert asked.query["uploadType"] == "resumable"
        assert not asked.body
        upload_id = f"upload-{len(self.uploads)}"
        self.uploads[upload_id] = Upload(name, int(asked.headers["x-upload-content-length"]))
        base = self.leads_to or f"http://{asked.headers['host']}"
        where = f"{base}{asked.path}?uploadType=resumable&upload_id={upload_id}"
        return self.faults.after(Answer(200, b"", {"Location": where}))

    def _part(self, asked: Asked) -> Answer:
        """A chunk of a resumable upload, or the question how far it is."""
        upload = self.uploads.get(asked.query["upload_id"])
        if upload is None:
            return Answer(404, b"{}")
        span, _, size = asked.headers["content-range"].removeprefix("bytes ").partition("/")
        assert int(size) == upload.size_bytes
        if span == "*":
            return self._progress(asked, upload)
        first, last = (int(each) for each in span.split("-"))
        assert (first, last - first + 1) == (len(upload.content), len(asked.body)), "a gap"
        assert last + 1 == upload.size_bytes or len(asked.body) % UNIT_BYTES == 0
        if self.takes_bytes:
            upload.content += asked.body[: self.takes_bytes.pop(0)]
            return Answer(is_lost=True)
        upload.content += asked.body
        return self._progress(asked, upload)

    def _progress(self, asked: Asked, upload: "Upload") -> Answer:
        if len(upload.content) == upload.size_bytes:
            if not upload.is_over:
                self._stored(upload.name, bytes(upload.content))
                upload.is_over = True
            return self._described(upload.name)
        arrived = {"Range": f"bytes=0-{len(upload.content) - 1}"} if upload.content else {}
        return Answer(308, b"", arrived)

    def _stored(self, name: str, content: bytes) -> Answer:
        self.put(name, b"spoiled" if self.spoils else content)
        self.writes += 1
        return self._described(name)

    def _described(self, name: str) -> Answer:
        generation, content = self.objects[name]
        digest = hashlib.md5(content, usedforsecurity=False).digest()
        said = {
            "name": name, "generation": str(generation), "size": str(len(content)),
            "md5Hash": base64.b64encode(digest).decode(),
        }  # fmt: skip
        return Answer(200, json.dumps(said).encode())

    def _list(self, asked: Asked) -> Answer:
        prefix, after = asked.query["prefix"], asked.query.get("pageToken", "")
        names = [name for name in sorted(self.objects) if name.startswith(prefix) and name > after]
        items = [
            {"name": name, "size": str(len(content)), "generation": str(generation)}
            for name in names[:PAGE]
            for generation, content in (self.objects[name],)
        ]
        more = {"nextPageToken": names[PAGE - 1]} if len(names) > PAGE else {}
        return Answer(200, json.dumps({"items": items, **more}).encode())

    def _token(self, asked: Asked) -> Answer:
        """A token for a request that the service account has signed."""
        form = parse_qs(asked.body.decode())
        signed, _, signature = form["assertion"][0].rpartition(".")
        key = load_pem_private_key((self.private_key or "").encode(), None)
        assert isinstance(key, RSAPrivateKey)
        claims = json.loads(_decoded(signed.partition(".")[2]))
        try:
            key.public_key().verify(_decoded(signature), signed.encode(), PKCS1v15(), SHA256())
        except InvalidSignature:
            return Answer(400, b'{"error": "invalid_grant"}')
        token = SCOPES.get(claims["scope"])
        if token is None:
            return Answer(400, b'{"error": "invalid_scope"}')
        self.tokens += 1
        body = {"access_token": token, "expires_in": 3600, "token_type": "Bearer"}
        return Answer(200, json.dumps(body).encode(), {"Content-Type": "application/json"})


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
