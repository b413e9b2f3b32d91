"""Third-party keys as a person gives them: read and checked by their types.

Each type takes a JSON object with its fields, and most take a shorter form: the fields separated by
colons, or the file that the service itself hands out. What is stored is the fields alone, so that
nothing that is not checked reaches a library or a run.
"""

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from activities.secrets.platform_key import fingerprint_of
from activities.secrets.private_keys import is_rsa_private_key, public_line_of
from workflows.contracts.third_party_keys import KeyType

MAX_CHARACTERS = 16_384
"""The length of a key as a person gives it."""
MAX_REGISTRIES = 16
DOCKER_HUB = "docker.io"
TOKEN_URI = "https://oauth2.googleapis.com/token"  # noqa: S105 - an address
_DOCKER_HUBS = (
    "https://index.docker.io/v1/",
    "index.docker.io",
    "registry-1.docker.io",
    DOCKER_HUB,
)
_END_OF_KEY = re.compile(r"^-----END [A-Z ]*PRIVATE KEY-----$", re.MULTILINE)
_KNOWN_HOST = re.compile(
    r"[A-Za-z0-9.,:*?\[\]_-]{1,300} [a-z0-9@.-]{5,60} [A-Za-z0-9+/]{40,2000}={0,2}"
)
_REGISTRY = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?(:\d{1,5})?")
_HOST = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


class ThirdPartyKeyError(ValueError):
    """The error for a key that breaks a rule; the message never holds a value.

    field: the path of the field below the key, such as `access_key_id`; empty: the key itself.
    """

    def __init__(self, field: str, rule: str) -> None:
        super().__init__(f"{field}: {rule}" if field else rule)
        self.field = field
        self.rule = rule


@dataclass(frozen=True)
class _Field:
    rule: str
    """What an error says that the field is."""
    holds: Callable[[str], bool]
    is_needed: bool = True


def _text(pattern: str, rule: str, *, is_needed: bool = True) -> _Field:
    found = re.compile(pattern, re.ASCII)
    return _Field(rule, lambda value: found.fullmatch(value) is not None, is_needed)


def _are_known_hosts(text: str) -> bool:
    lines = [line for line in text.split("\n") if line.strip()]
    return len(lines) <= 32 and all(_KNOWN_HOST.fullmatch(line.strip()) for line in lines)


_BLANKLESS = "characters, none of them a blank"
_S3 = {
    "access_key_id": _text(r"[\w.-]{3,128}", "is 3 to 128 letters, digits, dots, - and _"),
    "secret_access_key": _text(r"[!-~]{8,200}", f"is 8 to 200 {_BLANKLESS}"),
    "session_token": _text(r"[!-~]{1,4096}", f"is at most 4096 {_BLANKLESS}", is_needed=False),
}
_FIELDS: dict[KeyType, dict[str, _Field]] = {
    KeyType.AWS: _S3,
    KeyType.WASABI: {name: each for name, each in _S3.items() if each.is_needed},
    KeyType.AZURE: {
        "account_name": _text(r"[a-z0-9]{3,24}", "is a storage account: 3 to 24 of a-z and 0-9"),
        "account_key": _text(r"[A-Za-z0-9+/]{20,200}={0,2}", "is in base64", is_needed=False),
        "sas_token": _text(r"\??[!-~]{10,2000}", f"is 10 to 2000 {_BLANKLESS}", is_needed=False),
    },
    KeyType.GCP: {
        "project_id": _text(r"([a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]", "is a project's id"),
        "client_email": _text(
            r"[^@\s]{1,100}@[a-z0-9.-]{1,100}\.gserviceaccount\.com",
            "is a service account's address",
        ),
        "private_key_id": _text(r"[0-9a-f]{1,100}", "is the key's id, hex digits"),
        "private_key": _Field("is an RSA private key in PEM", is_rsa_private_key),
    },
    KeyType.HUGGINGFACE: {"token": _text(r"[!-~]{8,200}", f"is 8 to 200 {_BLANKLESS}")},
    KeyType.KAGGLE: {
        "username": _text(r"[\w.-]{1,100}", "is a user's name at Kaggle"),
        "key": _text(r"[!-~]{8,200}", f"is 8 to 200 {_BLANKLESS}"),
    },
    KeyType.NGC: {"api_key": _text(r"[!-~]{8,500}", f"is 8 to 500 {_BLANKLESS}")},
    KeyType.GIT: {
        "private_key": _Field(
            "is a private key for SSH, as ssh-keygen writes it: RSA (at most 4096 bits), ECDSA or "
            "Ed25519, without a passphrase",
            lambda text: public_line_of(text) is not None,
            is_needed=False,
        ),
        "known_hosts": _Field(
            "has lines of a known_hosts file, at most 32: HOST TYPE KEY",
            _are_known_hosts,
            is_needed=False,
        ),
        "host": _Field(
            "is the host of repositories over HTTPS, such as github.com",
            lambda text: _HOST.fullmatch(text) is not None,
            is_needed=False,
        ),
        "username": _text(r"[\w.@-]{1,100}", "is a user's name", is_needed=False),
        "token": _text(r"[!-~]{8,500}", f"is 8 to 500 {_BLANKLESS}", is_needed=False),
    },
}
_SHORT: dict[KeyType, tuple[str, ...]] = {
    KeyType.AWS: ("access_key_id", "secret_access_key"),
    KeyType.WASABI: ("access_key_id", "secret_access_key"),
    KeyType.AZURE: ("account_name", "account_key"),
    KeyType.HUGGINGFACE: ("token",),
    KeyType.KAGGLE: ("username", "key"),
    KeyType.NGC: ("api_key",),
}
"""The fields of the short form of a type, in their order."""
FORMS: dict[KeyType, str] = {
    KeyType.AWS: "ACCESS_KEY_ID:SECRET_ACCESS_KEY",
    KeyType.WASABI: "ACCESS_KEY_ID:SECRET_ACCESS_KEY",
    KeyType.AZURE: "ACCOUNT_NAME:ACCOUNT_KEY, or a connection string",
    KeyType.DOCKER: "USER:PASSWORD of docker.io, or docker's config.json with auths",
    KeyType.GCP: "the JSON file of a service account's key",
    KeyType.GIT: "a private key for SSH and, below it, lines of a known_hosts file",
    KeyType.HUGGINGFACE: "a token",
    KeyType.KAGGLE: "kaggle.json, or USERNAME:KEY",
    KeyType.NGC: "an API key",
}
"""What a person gives of each type, beside a JSON object of its fields."""


def read_key(kind: KeyType, text: str) -> dict[str, str]:
    """The fields of a key; those of `docker` are registries, each with USER:PASSWORD.

    Raises: ThirdPartyKeyError.
    """
    if not text.strip() or len(text) > MAX_CHARACTERS:
        raise ThirdPartyKeyError("", f"is 1 to {MAX_CHARACTERS} characters")
    document = _document(text)
    if kind is KeyType.DOCKER:
        return _registries(text, document)
    given = _short(kind, text) if document is None else _of_document(kind, document)
    found = _checked(kind, given)
    _check_together(kind, found)
    return found


def hint_of(kind: KeyType, fields: Mapping[str, str]) -> str | None:
    """What may be shown of a key, so that a person knows which one it is; never a secret."""
    if kind in (KeyType.AWS, KeyType.WASABI):
        return f"…{fields['access_key_id'][-4:]}"
    if kind is KeyType.DOCKER:
        return ", ".join(fields)[:200]
    if kind is KeyType.GIT and (key := fields.get("private_key")):
        return fingerprint_of(public_line_of(key) or "")
    name = {KeyType.AZURE: "account_name", KeyType.GCP: "client_email", KeyType.GIT: "host"}
    return fields.get(name.get(kind, "username"))


def _document(text: str) -> dict[str, Any] | None:
    """The JSON object that the text is; None: it is in a short form."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        # Without the cause, which quotes the key.
        raise ThirdPartyKeyError("", "begins with { and is no JSON object") from None
    assert isinstance(found, dict)  # noqa: S101 - it begins with {
    return found


def _short(kind: KeyType, text: str) -> dict[str, Any]:
    if kind is KeyType.GIT:
        return _key_and_hosts(text)
    if kind is KeyType.AZURE and "AccountName=" in text:
        return _connection_string(text)
    names = _SHORT.get(kind)
    parts = text.strip().split(":", len(names) - 1) if names else []
    if names is None or len(parts) != len(names):
        raise ThirdPartyKeyError("", f"is {FORMS[kind]}")
    return dict(zip(names, parts, strict=True))


def _key_and_hosts(text: str) -> dict[str, Any]:
    end = _END_OF_KEY.search(text.replace("\r\n", "\n"))
    if end is None:
        raise ThirdPartyKeyError("", f"is {FORMS[KeyType.GIT]}")
    plain = text.replace("\r\n", "\n")
    key, hosts = plain[: end.end()].strip() + "\n", plain[end.end() :].strip()
    return {"private_key": key, **({"known_hosts": hosts} if hosts else {})}


def _connection_string(text: str) -> dict[str, Any]:
    """Its account and key alone: its addresses could lead anywhere."""
    pairs = (part.partition("=") for part in text.strip().split(";"))
    found = {name: value for name, _, value in pairs}
    names = {
        "AccountName": "account_name",
        "AccountKey": "account_key",
        "SharedAccessSignature": "sas_token",
    }
    return {field: found[name] for name, field in names.items() if name in found}


def _of_document(kind: KeyType, document: dict[str, Any]) -> dict[str, Any]:
    """The fields that a document has; other fields are refused, but those of Google's own file."""
    known = _FIELDS[kind]
    if kind is KeyType.GCP:
        if document.get("type") != "service_account":
            rule = "is service_account: a key of a service account"
            raise ThirdPartyKeyError("type", rule)
        return {name: value for name, value in document.items() if name in known}
    strangers = [name for name in document if name not in known]
    if strangers:
        # The names of its fields could be a key themselves, put in the wrong place.
        raise ThirdPartyKeyError("", f"has no fields but {', '.join(known)}")
    return document


def _checked(kind: KeyType, given: Mapping[str, Any]) -> dict[str, str]:
    found = {}
    for name, field in _FIELDS[kind].items():
        value = given.get(name)
        if value is None and not field.is_needed:
            continue
        if not isinstance(value, str) or not field.holds(value):
            raise ThirdPartyKeyError(name, field.rule)
        found[name] = value
    return found


def _check_together(kind: KeyType, found: Mapping[str, str]) -> None:
    if kind is KeyType.AZURE and ("account_key" in found) == ("sas_token" in found):
        raise ThirdPartyKeyError("", "has account_key or sas_token, and not both")
    if kind is not KeyType.GIT:
        return
    if ("host" in found) != ("token" in found):
        raise ThirdPartyKeyError("", "has host and token together, for repositories over HTTPS")
    if "private_key" not in found and "token" not in found:
        raise ThirdPartyKeyError("", "has private_key for SSH, or host and token for HTTPS")


def _registries(text: str, document: dict[str, Any] | None) -> dict[str, str]:
    if document is None:
        return {DOCKER_HUB: _login("", text.strip())}
    if "auths" not in document:
        given = {name: document.get(name) for name in ("registry", "username", "password")}
        if set(document) - given.keys():
            raise ThirdPartyKeyError("", "has registry, username and password, or auths")
        for name in ("username", "password"):
            if not isinstance(given[name], str):
                raise ThirdPartyKeyError(name, "is needed")
        registry = _registry(given["registry"] or DOCKER_HUB)
        return {registry: _login("password", f"{given['username']}:{given['password']}")}
    auths = document["auths"]
    if not isinstance(auths, dict) or not 1 <= len(auths) <= MAX_REGISTRIES:
        raise ThirdPartyKeyError("auths", f"has 1 to {MAX_REGISTRIES} registries")
    return {_registry(name): _auth(each) for name, each in auths.items()}


def _registry(name: Any) -> str:
    if name in _DOCKER_HUBS:
        return DOCKER_HUB
    if not isinstance(name, str) or _REGISTRY.fullmatch(name) is None:
        raise ThirdPartyKeyError("registry", "is the host of a registry, such as ghcr.io")
    return name


def _auth(entry: Any) -> str:
    """The login of an entry of `auths`; without one, a credential helper of that person has it."""
    auth = entry.get("auth") if isinstance(entry, dict) else None
    try:
        login = base64.b64decode(auth or "", validate=True).decode()
    except (binascii.Error, ValueError, TypeError):
        login = ""
    return _login("auths", login)


def _login(field: str, login: str) -> str:
    user, _, password = login.partition(":")
    is_whole = user and password and len(login) <= 8192 and login.isprintable()
    if not is_whole:
        raise ThirdPartyKeyError(field, "is USER:PASSWORD, and in auths that in base64 as auth")
    return login
