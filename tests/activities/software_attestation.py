"""A software double of confidential computing: a processor that signs, and who believes it.

It has the parts of SEV-SNP and TDX that the release of a key rests on: a report with a measurement
of what runs and 64 bytes of the asker's, signed by a key that the maker of the processor vouches
for. It keeps nothing confidential.
"""

import base64
from dataclasses import dataclass, field
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from activities.agent.federated import attestation as on_node
from activities.federation.attestation import (
    AttestationAsked,
    AttestationRefusedError,
    Evidence,
)
from activities.site.answers.verbs import Attestation
from workflows.contracts.federation import FederatedRun
from workflows.contracts.nodes import NodeAddress

KIND = "software"
MEASUREMENT_BYTES, BOUND_BYTES = 48, 64
IMAGE = b"the image that the owner of the model has measured".ljust(MEASUREMENT_BYTES)[:48]


@dataclass
class SoftwareProcessor:
    """A processor with a key of its maker's, and the measurement of what runs on it."""

    measurement: bytes = IMAGE
    key: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)

    def evidence(self, bound: bytes) -> Evidence:
        """The signed report for these 64 bytes."""
        said = self.measurement + bound
        return Evidence(kind=KIND, report=said + self.key.sign(said), certificates=b"")


@dataclass
class SoftwareHolder:
    """Who releases one key to what runs the measured image, and says no to all others."""

    maker: Ed25519PublicKey
    key: str
    released: list[str] = field(default_factory=list)
    """The runs that it has released the key to."""

    async def release(
        self, federation: FederatedRun, asked: AttestationAsked, evidence: Evidence
    ) -> str:
        """As `KeyHolder.release`."""
        if not federation.needs_attestation or evidence.kind != KIND:
            raise AttestationRefusedError(f"a report of the kind {evidence.kind}")
        said = evidence.report[: MEASUREMENT_BYTES + BOUND_BYTES]
        try:
            self.maker.verify(evidence.report[len(said) :], said)
        except InvalidSignature:
            raise AttestationRefusedError("the report is not signed by its maker") from None
        if said[:MEASUREMENT_BYTES] != IMAGE:
            raise AttestationRefusedError("the machine runs something else")
        if said[MEASUREMENT_BYTES:] != asked.bound:
            raise AttestationRefusedError("the report answers another question")
        self.released.append(asked.run_name)
        return self.key


class AttestingNode:
    """A node that is asked for an attestation, and answers by a processor of software."""

    processor = SoftwareProcessor()

    def __init__(self, node: NodeAddress) -> None:
        self.node = node

    async def call(self, verb: str, request: dict[str, Any], *_: Any, **__: Any) -> Attestation:
        assert verb == "attest"
        nonce = bytes.fromhex(request["nonce"])
        bound = on_node.bound(nonce, request["run_id"], request["host_key"])
        evidence = self.processor.evidence(bound)
        report = base64.b64encode(evidence.report).decode()
        return Attestation(kind=evidence.kind, report=report, certificates="")
