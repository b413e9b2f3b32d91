"""A double of Google's object store: its JSON API and its tokens, with what it refuses.

It answers as fake-gcs-server does, and asks for more: a signed request for a token, and the token.
"""

import base64
import json
from dataclasses import dataclass, field
from urllib.parse import parse_qs, unquote

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from tests.doubles.http_double import Answer, Asked, part_of

TOKEN = "ya29.a-token-that-is-made-up"
PAGE = 2
"""The objects of a page."""


@dataclass
class GoogleStorage:
    """One bucket, `pets`; private: for the service account of this key alone."""

    private_key: str | None = None
    objects: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    """By name, each object's generation and content."""
    tokens: int = 0
    """How many were given."""

    def put(self, name: str, content: bytes) -> None:
        self.objects[name] = (self.objects.get(name, (1000, b""))[0] + 1, content)

    def answer(self, asked: Asked) -> Answer:
        if asked.path == "/token":
            return self._token(asked)
        sent = asked.headers.get("authorization")
        if self.private_key is not None and sent != f"Bearer {TOKEN}":
            return Answer(401 if sent is None else 403, b"{}")
        folder = "/storage/v1/b/pets/o"
        if asked.path == folder:
            return self._list(asked)
        generation, content = self.objects.get(unquote(asked.path[len(folder) + 1 :]), (0, b""))
        if not asked.path.startswith(folder) or asked.query.get("generation") != str(generation):
            return Answer(404, b"{}")
        return part_of(content, asked, {})

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
        if claims["scope"] != "https://www.googleapis.com/auth/devstorage.read_only":
            return Answer(400, b'{"error": "invalid_scope"}')
        self.tokens += 1
        body = {"access_token": TOKEN, "expires_in": 3600, "token_type": "Bearer"}
        return Answer(200, json.dumps(body).encode(), {"Content-Type": "application/json"})


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
