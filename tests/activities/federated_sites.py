"""Federated runs as a site brings them to a node: a sealed model in the store, and its terms."""

from collections.abc import Callable
from typing import Any

from activities.federation.attestation import hold_keys
from activities.settings import settings
from activities.site.sealed_models import model_key
from activities.site.staging import stage_worker
from activities.storage.blobs import blob_store
from activities.storage.run_specs import RunSpec
from workflows.contracts.artifacts import Content
from workflows.contracts.federation import FederatedRun, SealedModel
from workflows.contracts.nodes import NodeAddress
from workflows.effects.jobs import StageWorker

REFERENCE = "sealed-models/fed-1"
HONEST: dict[str, dict[str, Any]] = {
    "has_model": {"present": False},
    "attest": {"kind": "sev_guest", "report": "AAAA", "certificates": ""},
}
"""What our agent answers to the verbs of federated runs."""


class Anybody:
    """Who releases a key to any machine, so that nothing but the machine itself is in question."""

    async def release(self, *_: object) -> str:
        return "00" * 32


def federated_verbs(
    stage: Callable[..., StageWorker], node: NodeAddress
) -> dict[str, Callable[[], tuple[Any, Any]]]:
    """By verb of federated runs: an activity and its command, for a machine that lies.

    stage: makes the command that stages a run with this run spec.
    """

    async def released(run_spec: RunSpec) -> str:
        hold_keys(Anybody())
        try:
            return await model_key(node, run_spec.run_id, run_spec)
        finally:
            hold_keys(None)

    def attested() -> RunSpec:
        terms = federation(needs_attestation=True)
        return RunSpec(run_id=stage().run_id, command="true", federation=terms)

    return {
        "has_model": lambda: (stage_worker, stage(federation=federation())),
        "receive_model": lambda: (stage_worker, stage(federation=federation())),
        "attest": lambda: (released, attested()),
    }


def federation(
    sealed: bytes = b"sealed", sha256: str = "0" * 64, *, needs_attestation: bool = False
) -> FederatedRun:
    """How a run is confined whose sealed model is in the store."""
    blob_store(settings().storage).put(REFERENCE, sealed)
    model = SealedModel(
        artifact_id="art-1",
        name="small",
        reference=REFERENCE,
        sealed_bytes=len(sealed),
        content=Content(sha256=sha256, size_bytes=1, unpacked_bytes=1, file_count=1),
    )
    return FederatedRun(federated_id="fed-1", model=model, needs_attestation=needs_attestation)
