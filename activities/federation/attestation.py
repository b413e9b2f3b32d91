"""The release of a model's key against an attestation of the machine that is to open it.

Who releases keys is not decided here: a `KeyHolder` has them and knows which reports it believes,
such as those that AMD or Intel has signed for an image that the model's owner has measured. This
installation has none until one is set, and then releases no key that needs an attestation.
"""

import hashlib
import os
from typing import Protocol

from pydantic import Field

from workflows.contracts.base import Contract
from workflows.contracts.federation import FederatedRun

NONCE_BYTES = 32
PURPOSE = b"baseload attestation 1\0"


class AttestationRefusedError(Exception):
    """No key is released; the message says why, and names no secret."""


class AttestationAsked(Contract):
    """What a machine is asked to prove, each time anew."""

    nonce: str
    """32 random bytes in hexadecimal."""
    run_name: str
    """The run as its node knows it."""
    host_key: str
    """`SHA256:…` of the SSH host key by which the platform reached the machine."""

    @property
    def bound(self) -> bytes:
        """The 64 bytes of a report by which it answers this question and no other."""
        said = PURPOSE + bytes.fromhex(self.nonce) + self.run_name.encode()
        return hashlib.sha512(said + b"\0" + self.host_key.encode()).digest()


class Evidence(Contract):
    """What a machine has answered: hearsay, until a key holder has checked who has signed it."""

    kind: str = Field(max_length=64)
    """As its kernel names it: `sev_guest`, `tdx_guest`."""
    report: bytes
    certificates: bytes


class KeyHolder(Protocol):
    """Who holds the keys of models that are released against an attestation alone."""

    async def release(
        self, federation: FederatedRun, asked: AttestationAsked, evidence: Evidence
    ) -> str:
        """The key of the run's model, in hexadecimal.

        Raises: AttestationRefusedError, where the report is not signed by whom the holder believes,
        is of a machine that runs something else, or answers another question.
        """


_holders: list[KeyHolder] = []


def hold_keys(holder: KeyHolder | None) -> None:
    """Let this process release keys by this holder; None: by nobody."""
    _holders[:] = [] if holder is None else [holder]


def key_holder() -> KeyHolder:
    """Who releases keys. Raises: AttestationRefusedError, when nobody does."""
    if not _holders:
        raise AttestationRefusedError("this installation has nobody who checks attestations")
    return _holders[0]


def ask(run_name: str, host_key: str) -> AttestationAsked:
    """A question that was never asked before."""
    return AttestationAsked(
        nonce=os.urandom(NONCE_BYTES).hex(), run_name=run_name, host_key=host_key
    )
