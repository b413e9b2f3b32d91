"""Federated runs as a site brings them to a node: a sealed model in the store, and its terms."""

import json
from collections.abc import Callable
from typing import Any

from activities.settings import settings
from activities.site.runs import start_worker
from activities.site.staging import stage_worker
from activities.storage.blobs import blob_store
from tests.failure.hostile_node import HostileNode, Words
from workflows.contracts.artifacts import Content
from workflows.contracts.federation import FederatedRun, SealedModel
from workflows.effects.jobs import StageWorker, StartWorker

REFERENCE = "sealed-models/fed-1"
NO_KEY = Words(
    json.dumps({"ok": False, "error": {"code": "no-model-key", "message": "no key"}}).encode()
)
"""What a node answers to the start of a run whose model is sealed."""
HONEST: dict[str, dict[str, Any]] = {
    "has_model": {"present": False},
    "attest": {"kind": "sev_guest", "report": "AAAA", "certificates": ""},
}
"""What our agent answers to the verbs of federated runs."""


def federated_verbs(
    stage: Callable[..., StageWorker], machine: HostileNode
) -> dict[str, Callable[[], tuple[Any, Any]]]:
    """By verb of federated runs: an activity and its command, for a machine that lies.

    stage: makes the command that stages a run with this run spec.
    """

    def attested() -> StartWorker:
        staged = stage(federation=federation(needs_attestation=True))
        machine.says["start"] = NO_KEY
        return StartWorker(node=staged.node, run_id=staged.run_id)

    return {
        "has_model": lambda: (stage_worker, stage(federation=federation())),
        "receive_model": lambda: (stage_worker, stage(federation=federation())),
        "attest": lambda: (start_worker, attested()),
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
