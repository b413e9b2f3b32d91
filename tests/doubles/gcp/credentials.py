"""Service-account keys, and the proof that a request is made with one.

A key signs a JWT. The token endpoint gives an access token for it, and Google's gapic clients send
such a JWT itself as the bearer. Both are verified: signature, issuer, audience and times.
"""

from __future__ import annotations

import base64
import json
import secrets
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qs

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.doubles.gcp.clock import Clock

GRANT_TYPE: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
GOOGLE_TOKEN_URI: Final = "https://oauth2.googleapis.com/token"
TOKEN_LASTS_S: Final = 3599
CLOCK_TOLERANCE_S: Final = 300
LONGEST_JWT_S: Final = 3600


class InvalidGrantError(Exception):
    """Said as `error_description` of the token endpoint's 400."""


@dataclass
class Account:
    """A service account and the keys that it has now."""

    email: str
    project: str
    unique_id: str
    display_name: str = ""
    disabled: bool = False
    keys: dict[str, rsa.RSAPublicKey] = field(default_factory=dict)


@dataclass(frozen=True)
class _Claims:
    email: str
    expires: float
    claims: dict[str, Any]


class Credentials:
    """Every service account of the cloud, and the tokens that were given out."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.accounts: dict[str, Account] = {}
        self._tokens: dict[str, tuple[str, float]] = {}
        self._verified: dict[str, _Claims] = {}

    def add(self, email: str, project: str, unique_id: str, display_name: str = "") -> Account:
        return self.accounts.setdefault(email, Account(email, project, unique_id, display_name))

    def make_key(self, email: str, token_uri: str) -> dict[str, Any]:
        """A new key of the account, as Google's console would let a person download it."""
        account = self.accounts[email]
        # Google's have 2,048 bits; a key of half as many is made in a tenth of the time.
        private = rsa.generate_private_key(public_exponent=65537, key_size=1024)
        key_id = secrets.token_hex(20)
        account.keys[key_id] = private.public_key()
        pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        return {
            "type": "service_account",
            "project_id": account.project,
            "private_key_id": key_id,
            "private_key": pem,
            "client_email": email,
            "client_id": account.unique_id,
            "auth_uri": "https://accounts.google.com/o/oauth2/auth",
            "token_uri": token_uri,
            "auth_provider_x509_cert_url": "https://www.googleapis.com/oauth2/v1/certs",
            "client_x509_cert_url": f"https://www.googleapis.com/robot/v1/metadata/x509/{email}",
            "universe_domain": "googleapis.com",
        }

    def revoke(self, key_id: str) -> None:
        """The key works no more, nor does what was made with it."""
        for account in self.accounts.values():
            if account.keys.pop(key_id, None) is not None:
                self._verified.clear()
                self._tokens = {
                    token: made for token, made in self._tokens.items() if made[0] != account.email
                }

    def token(self, form: bytes, token_uri: str) -> dict[str, Any]:
        """What the token endpoint answers to a form. Raises: InvalidGrantError."""
        fields = parse_qs(form.decode("ascii", "replace"))
        if fields.get("grant_type") != [GRANT_TYPE] or len(fields.get("assertion", [])) != 1:
            raise InvalidGrantError("Bad Request")
        proof = self._verify(fields["assertion"][0])
        if proof.claims.get("aud") not in (token_uri, GOOGLE_TOKEN_URI):
            raise InvalidGrantError("Invalid JWT: Failed audience check.")
        if not proof.claims.get("scope") and not proof.claims.get("target_audience"):
            raise InvalidGrantError("Invalid OAuth scope or ID token audience provided.")
        token = f"ya29.c.{secrets.token_urlsafe(48)}"
        self._tokens[token] = (proof.email, self._clock.now() + TOKEN_LASTS_S)
        return {"access_token": token, "expires_in": TOKEN_LASTS_S, "token_type": "Bearer"}

    def principal(self, authorization: str | None) -> str | None:
        """The e-mail address of who makes a request with this header; None: nobody we know."""
        kind, _, token = (authorization or "").partition(" ")
        if kind.lower() != "bearer":
            return None
        email, expires = self._tokens.get(token, (None, 0.0))
        if email is None:
            proof = self._self_signed(token)
            if proof is None:
                return None
            email, expires = proof.email, proof.expires
        account = self.accounts.get(email)
        alive = account is not None and not account.disabled and expires > self._clock.now()
        return email if alive else None

    def _self_signed(self, token: str) -> _Claims | None:
        if token not in self._verified:
            try:
                proof = self._verify(token)
            except InvalidGrantError:
                return None
            audience = str(proof.claims.get("aud", ""))
            if not audience.startswith("https://") and not proof.claims.get("scope"):
                return None
            self._verified[token] = proof
        return self._verified[token]

    def _verify(self, token: str) -> _Claims:
        try:
            head, body, signature = token.split(".")
            header, claims = json.loads(_decoded(head)), json.loads(_decoded(body))
            signed = _decoded(signature)
            issued, expires = float(claims["iat"]), float(claims["exp"])
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidGrantError("Invalid JWT: could not be decoded.") from error
        account = self.accounts.get(str(claims.get("iss")))
        if account is None or account.disabled:
            raise InvalidGrantError("Invalid grant: account not found")
        key = account.keys.get(str(header.get("kid")))
        if key is None or header.get("alg") != "RS256":
            raise InvalidGrantError("Invalid JWT Signature.")
        try:
            key.verify(signed, f"{head}.{body}".encode(), padding.PKCS1v15(), SHA256())
        except InvalidSignature as error:
            raise InvalidGrantError("Invalid JWT Signature.") from error
        now = self._clock.now()
        too_long = expires - issued > LONGEST_JWT_S
        if too_long or expires < now or issued > now + CLOCK_TOLERANCE_S:
            raise InvalidGrantError(
                "Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable "
                "timeframe. Check your iat and exp values in the JWT claim."
            )
        return _Claims(account.email, expires, claims)


def _decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
