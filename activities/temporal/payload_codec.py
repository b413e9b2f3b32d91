"""The payload codec: what workflows say and hear, encrypted before it leaves for Temporal.

It is off by default, and for a Temporal that others run. There is one key for the installation and
not one for each account: a codec knows the workflow whose payload it has, but no account; a site in
a customer's network has no database in which to look the account up; and messages go from the
workflows of one account to those of another. Each process encrypts under a data key of its own,
which is derived from that key and a salt in the payload, so that no key serves too many payloads.
A payload needs no context to be read, so workflows stay in the quiet sandbox.
"""

import dataclasses
import os
from collections.abc import Sequence
from functools import lru_cache

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from temporalio.api.common.v1 import Payload
from temporalio.contrib.pydantic import PydanticPayloadConverter
from temporalio.converter import (
    DataConverter,
    DefaultFailureConverterWithEncodedAttributes,
    PayloadCodec,
)

from activities.secrets.sealing import SecretBox, payload_keys
from activities.settings import Settings

ENCODING = b"binary/encrypted"
_SALT = "baseload-salt"
_SALT_BYTES = 16
_ABOUT = b"temporal payload"


class AesGcmCodec(PayloadCodec):
    """AES-GCM under data keys that are derived from the first key; earlier ones decrypt.

    encrypts: whether new payloads are encrypted; those that are encrypted are read in any case.
    """

    def __init__(self, *keys: bytes, encrypts: bool = True) -> None:
        self._keys = keys
        self._encrypts = encrypts
        self._salt = os.urandom(_SALT_BYTES)

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [self._encrypted(each) for each in payloads] if self._encrypts else list(payloads)

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """The payloads as they were before; one that is not encrypted is left as it is.

        Raises: SealBrokenError, when a payload was encrypted under another key, or altered.
        """
        return [self._decrypted(each) for each in payloads]

    def _encrypted(self, payload: Payload) -> Payload:
        content = _box(self._keys, self._salt).seal(payload.SerializeToString(), _ABOUT)
        return Payload(metadata={"encoding": ENCODING, _SALT: self._salt}, data=content)

    def _decrypted(self, payload: Payload) -> Payload:
        if payload.metadata.get("encoding") != ENCODING:
            return payload
        box = _box(self._keys, payload.metadata.get(_SALT, b""))
        return Payload.FromString(box.open(payload.data, _ABOUT))


@lru_cache(maxsize=4096)
def _box(keys: tuple[bytes, ...], salt: bytes) -> SecretBox:
    return SecretBox(*(_derived(key, salt) for key in keys))


def _derived(key: bytes, salt: bytes) -> bytes:
    derivation = HKDF(algorithm=SHA256(), length=len(key), salt=salt, info=b"temporal payloads")
    return derivation.derive(key)


class SharedPayloadConverter(PydanticPayloadConverter):
    """The payload converter of this process, whose cache of type adapters everybody shares.

    Temporal's library makes a converter for each workflow and two for each of its activations. With
    caches of their own they cost a tenth of a worker's time.
    """

    def __new__(cls) -> "SharedPayloadConverter":  # noqa: PYI034 - there is one, of this class
        return _shared()

    def __init__(self) -> None:
        """Leave the one instance as it is; `_shared` has initialised it."""


@lru_cache(maxsize=1)
def _shared() -> SharedPayloadConverter:
    made = object.__new__(SharedPayloadConverter)
    PydanticPayloadConverter.__init__(made)
    return made


shared_data_converter = DataConverter(payload_converter_class=SharedPayloadConverter)
"""Writes and reads payloads as `pydantic_data_converter` does."""


def data_converter(chosen: Settings) -> DataConverter:
    """How this process writes and reads what it exchanges with Temporal.

    Raises: MasterKeyError, when payloads are encrypted and there is no usable key.
    """
    if chosen.payload_codec == "off":
        return shared_data_converter
    encrypts = chosen.payload_codec == "aes-gcm"
    codec = AesGcmCodec(*payload_keys(), encrypts=encrypts)
    converter = dataclasses.replace(shared_data_converter, payload_codec=codec)
    if not encrypts:
        return converter
    # Else the messages of failures, with names and addresses, would stay readable.
    encoded = DefaultFailureConverterWithEncodedAttributes
    return dataclasses.replace(converter, failure_converter_class=encoded)
