"""A service-account key: what is one, and what is refused before anybody is asked."""

import base64
import json
import time
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from activities.providers.base import KeyMistakeError
from activities.providers.gcp.key import MAX_BYTES, read_key


def pem(key: Any) -> str:
    text: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return text.decode()


PRIVATE = pem(rsa.generate_private_key(65537, 2048))
KEY = {
    "type": "service_account",
    "project_id": "burst-4711",
    "private_key_id": "0123456789abcdef0123456789abcdef01234567",
    "private_key": PRIVATE,
    "client_email": "baseload@burst-4711.iam.gserviceaccount.com",
    "client_id": "123",
    "token_uri": "https://oauth2.googleapis.com/token",
    "universe_domain": "googleapis.com",
}


def with_prime(prime: int, bits: int = 2048) -> str:
    """A private key that names this prime beside a modulus of so many bits."""
    numbers = (0, (1 << bits - 1) | 1, 65537, 3, prime, 3, 3, 1, 1)
    return f"-----BEGIN RSA PRIVATE KEY-----\n{sequence(numbers)}\n-----END RSA PRIVATE KEY-----\n"


def sequence(numbers: tuple[int, ...]) -> str:
    body = b"".join(tagged(2, n.to_bytes(n.bit_length() // 8 + 1, "big")) for n in numbers)
    return base64.b64encode(tagged(0x30, body)).decode()


def tagged(tag: int, content: bytes) -> bytes:
    size = len(content)
    short = size.to_bytes((size.bit_length() + 7) // 8 or 1, "big")
    return bytes((tag, *(() if size < 0x80 else (0x80 | len(short),)))) + short + content


def refused(**changes: Any) -> KeyMistakeError:
    document = {name: value for name, value in {**KEY, **changes}.items() if value is not None}
    with pytest.raises(KeyMistakeError) as refusal:
        read_key(json.dumps(document))
    return refusal.value


def test_a_key_tells_its_project_and_its_account() -> None:
    key = read_key(json.dumps(KEY))
    assert (key.project_id, key.email) == (KEY["project_id"], KEY["client_email"])
    assert key.shown["key"] == "…4567"


@pytest.mark.parametrize(("exponent", "bits"), [(4423, 2048), (4423, 9000)])
def test_a_key_that_takes_long_to_check_is_refused_at_once(exponent: int, bits: int) -> None:
    private = with_prime(2**exponent - 1, bits)
    before_s = time.process_time()
    assert refused(private_key=private).field == "credentials.private_key"
    assert time.process_time() - before_s < 0.5


def test_nothing_that_is_shown_of_a_key_is_secret() -> None:
    key = read_key(json.dumps(KEY))
    for shown in (repr(key), str(key), json.dumps(key.shown)):
        assert "PRIVATE" not in shown
        assert KEY["private_key_id"] not in json.dumps(key.shown)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"type": "authorized_user"}, "type"),
        ({"type": None}, "type"),
        ({"project_id": "Burst!"}, "project_id"),
        ({"project_id": None}, "project_id"),
        ({"client_email": "ada@example.com"}, "client_email"),
        ({"private_key_id": "../1"}, "private_key_id"),
        ({"private_key": "-----BEGIN PRIVATE KEY-----\nMIIE\n"}, "private_key"),
        ({"private_key": pem(ec.generate_private_key(ec.SECP256R1()))}, "private_key"),
        ({"private_key": 7}, "private_key"),
        ({"token_uri": "http://169.254.169.254/token"}, "token_uri"),
        ({"token_uri": "https://oauth2.googleapis.com.evil.test/token"}, "token_uri"),
        ({"universe_domain": "evil.test"}, "universe_domain"),
    ],
)
def test_a_malformed_key_names_the_field_and_the_rule(changes: dict[str, Any], field: str) -> None:
    mistake = refused(**changes)
    assert mistake.field == f"credentials.{field}"
    assert mistake.rule.startswith("is ")
    for value in changes.values():
        assert value is None or str(value) not in str(mistake)


@pytest.mark.parametrize("text", ["", "not JSON", "[]", '"text"', "{", "[" * 5000])
def test_what_is_no_key_at_all_says_so_without_repeating_it(text: str) -> None:
    with pytest.raises(KeyMistakeError, match="service-account key") as refusal:
        read_key(text)
    assert refusal.value.__cause__ is None
    assert refusal.value.field == "credentials"


def test_a_key_is_not_larger_than_keys_are() -> None:
    with pytest.raises(KeyMistakeError, match="at most"):
        read_key(" " * (MAX_BYTES + 1))
