"""A double of Azure's blob store, with the signature of each request checked as Azure does.

It answers as Azurite does, as far as the source asks.
"""

import base64
import hashlib
import hmac
import re
from dataclasses import dataclass, field
from urllib.parse import unquote
from xml.sax.saxutils import escape

from tests.doubles.http_double import Answer, Asked, Faults, part_of

SIGNED = (
    "content-encoding", "content-language", "content-length", "content-md5", "content-type", "date",
    "if-modified-since", "if-match", "if-none-match", "if-unmodified-since", "range",
)  # fmt: skip
DATED = "Wed, 25 Nov 2026 02:00:00 GMT"


@dataclass
class AzureStorage:
    """The container `pets` of the account `pictures`."""

    account_key: str | None = None
    """In base64; None: the container is public."""
    sas_token: str | None = None
    blobs: dict[str, bytes] = field(default_factory=dict)
    faults: Faults = field(default_factory=Faults)
    blocks: dict[str, dict[str, bytes]] = field(default_factory=dict)
    """The blocks of each blob that are not part of it yet, by their ids."""
    writes: int = 0
    """How often a blob was stored."""

    def answer(self, asked: Asked) -> Answer:
        if not self._is_permitted(asked):
            return _error(403, "AuthenticationFailed")
        if asked.path == "/pictures/pets" and asked.query.get("comp") == "list":
            return self._list(asked)
        if not asked.path.startswith("/pictures/pets/"):
            return _error(404, "ContainerNotFound")
        name = unquote(asked.path.removeprefix("/pictures/pets/"))
        return self._write(name, asked) if asked.method == "PUT" else self._read(name, asked)

    def _write(self, name: str, asked: Asked) -> Answer:
        status = self.faults.refusal()
        return _error(status, "Refused") if status else self.faults.after(self._put(name, asked))

    def _read(self, name: str, asked: Asked) -> Answer:
        if name not in self.blobs:
            return _error(404, "BlobNotFound")
        content = self.blobs[name]
        if asked.headers.get("if-match", _etag(content)) != _etag(content):
            return _error(412, "ConditionNotMet")
        headers = {
            "ETag": _etag(content), "Last-Modified": DATED, "x-ms-blob-type": "BlockBlob",
            "Content-Type": "application/octet-stream",
        }  # fmt: skip
        return part_of(content, asked, headers)

    def _put(self, name: str, asked: Asked) -> Answer:
        """Store a blob, one of its blocks, or the list of blocks that it is made of."""
        digest = base64.b64encode(hashlib.md5(asked.body, usedforsecurity=False).digest()).decode()
        comp, blocks = asked.query.get("comp"), self.blocks.setdefault(name, {})
        if comp == "blocklist":
            ids = re.findall("<Latest>([^<]*)</Latest>", asked.body.decode())
            if not set(ids) <= blocks.keys():
                return _error(400, "InvalidBlockList")
            self._store(name, b"".join(blocks[each] for each in ids))
        elif asked.headers.get("content-md5") != digest:
            return _error(400, "Md5Mismatch")
        elif comp == "block":
            assert len({len(each) for each in (*blocks, asked.query["blockid"])}) == 1
            blocks[asked.query["blockid"]] = asked.body
        else:
            assert asked.headers["x-ms-blob-type"] == "BlockBlob"
            self._store(name, asked.body)
        said = {"Last-Modified": DATED, "Content-MD5": digest}
        return Answer(201, b"", {"ETag": _etag(self.blobs.get(name, b"")), **said})

    def _store(self, name: str, content: bytes) -> None:
        """Store a blob, whose other blocks then are gone."""
        self.blobs[name] = content
        self.blocks[name] = {}
        self.writes += 1

    def _list(self, asked: Asked) -> Answer:
        prefix = asked.query.get("prefix", "")
        blobs = "".join(
            f"<Blob><Name>{escape(name)}</Name><Properties><Etag>{_etag(content)}</Etag>"
            f"<Content-Length>{len(content)}</Content-Length><BlobType>BlockBlob</BlobType>"
            f"<Last-Modified>{DATED}</Last-Modified></Properties></Blob>"
            for name, content in sorted(self.blobs.items())
            if name.startswith(prefix)
        )
        said = f"<EnumerationResults><Blobs>{blobs}</Blobs><NextMarker/></EnumerationResults>"
        return Answer(200, said.encode(), {"Content-Type": "application/xml"})

    def _is_permitted(self, asked: Asked) -> bool:
        if self.sas_token is not None:
            return asked.query.get("sig") == self.sas_token.rpartition("sig=")[2]
        if self.account_key is None:
            return "authorization" not in asked.headers
        return asked.headers.get("authorization") == f"SharedKey pictures:{self._signature(asked)}"

    def _signature(self, asked: Asked) -> str:
        values = [asked.headers.get(name, "") for name in SIGNED]
        values[2] = "" if values[2] == "0" else values[2]
        own = sorted(name for name in asked.headers if name.startswith("x-ms-"))
        lines = [asked.method, *values, *(f"{name}:{asked.headers[name]}" for name in own)]
        lines.append(f"/pictures{asked.path}")
        lines += [f"{name}:{asked.query[name]}" for name in sorted(asked.query)]
        key = base64.b64decode(self.account_key or "")
        digest = hmac.new(key, "\n".join(lines).encode(), hashlib.sha256).digest()
        return base64.b64encode(digest).decode()


def _etag(content: bytes) -> str:
    return f'"0x{hashlib.sha256(content).hexdigest()[:16].upper()}"'


def _error(status: int, code: str) -> Answer:
    said = f"<Error><Code>{code}</Code><Message>no</Message></Error>"
    return Answer(
        status, said.encode(), {"x-ms-error-code": code, "Content-Type": "application/xml"}
    )
