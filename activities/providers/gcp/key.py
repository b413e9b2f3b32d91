"""The service-account key as a person downloads it: parsed, and refused when it is malformed.

This module needs none of Google's libraries, so the API can check a key without loading them.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from activities.providers.base import KeyMistakeError
from activities.secrets.private_keys import is_rsa_private_key
from activities.settings import settings

MAX_BYTES = 16 * 1024
TOKEN_URI = "https://oauth2.googleapis.com/token"  # noqa: S105 - an address
_PROJECT = re.compile(r"([a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]")
_EMAIL = re.compile(r"[^@\s]+@[a-z0-9.-]+\.gserviceaccount\.com")


@dataclass(frozen=True)
class ServiceAccountKey:
    """A well-formed service-account key; only Google can say whether it works."""

    project_id: str
    email: str
    key_id: str
    document: Mapping[str, Any] = field(repr=False)
    """The whole key, as Google's libraries take it. Secret: never show it."""

    @property
    def shown(self) -> dict[str, str]:
        """The parts of the key that are not secret, with only the end of the key's id."""
        return {
            "project_id": self.project_id,
            "service_account": self.email,
            "key": f"…{self.key_id[-4:]}",
        }


def read_key(text: str) -> ServiceAccountKey:
    """The key in a file's content. Raises: KeyMistakeError, with the first thing wrong."""
    if len(text.encode()) > MAX_BYTES:
        raise KeyMistakeError("credentials", f"is at most {MAX_BYTES} bytes")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        # Without the cause, which quotes the key.
        raise KeyMistakeError("credentials", "is the JSON of a service-account key") from None
    if not isinstance(document, dict):
        raise KeyMistakeError("credentials", "is the JSON object of a service-account key")
    for name, rule, holds in _RULES:
        value = document.get(name)
        if not isinstance(value, str) or not holds(value):
            raise KeyMistakeError(f"credentials.{name}", rule)
    if document.get("universe_domain", "googleapis.com") != "googleapis.com":
        raise KeyMistakeError("credentials.universe_domain", "is googleapis.com")
    return ServiceAccountKey(
        project_id=document["project_id"],
        email=document["client_email"],
        key_id=document["private_key_id"],
        document=document,
    )


def _is_token_uri(uri: str) -> bool:
    """Whether the address is Google's, so that a key cannot send us anywhere else.

    With the setting `gcp_endpoint`, which replaces Google, any address is accepted.
    """
    return uri == TOKEN_URI or settings().gcp_endpoint is not None


_RULES: tuple[tuple[str, str, Callable[[str], bool]], ...] = (
    ("type", "is service_account: a key of a service account", lambda v: v == "service_account"),
    ("project_id", "is the id of a project", lambda v: bool(_PROJECT.fullmatch(v))),
    ("client_email", "is a service account's address", lambda v: bool(_EMAIL.fullmatch(v))),
    ("private_key_id", "is the key's id, hex digits", lambda v: bool(re.fullmatch("[0-9a-f]+", v))),
    ("private_key", "is an RSA private key in PEM", is_rsa_private_key),
    ("token_uri", f"is {TOKEN_URI}", _is_token_uri),
)
