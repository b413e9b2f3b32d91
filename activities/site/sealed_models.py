"""The sealed model of a federated run on its way to a node, and its key, which follows later."""

import asyncio
import base64
import binascii
from collections.abc import AsyncGenerator, Iterator

from temporalio.exceptions import ApplicationError

from activities.federation.attestation import AttestationRefusedError, Evidence, ask, key_holder
from activities.secrets.platform_key import platform_key_fingerprint
from activities.settings import settings
from activities.site.answers.verbs import Attestation, ModelPresence
from activities.site.node_client import NodeClient
from activities.site.run_names import RunNames
from activities.storage.blobs import BlobMissingError, blob_store
from activities.storage.run_specs import RunSpec
from activities.temporal.heartbeats import set_details
from workflows.contracts import errors
from workflows.contracts.federation import FederatedRun, SealedModel
from workflows.contracts.nodes import NodeAddress
from workflows.contracts.statuses import RunState

CALL_S = 30.0
TRANSFER_S = 3000.0
WAITING = frozenset({RunState.UNKNOWN, RunState.STAGED})


async def bring_model(node: NodeAddress, run_id: str, federation: FederatedRun | None) -> None:
    """Bring the sealed model of a run that waits for its start, if it is not there.

    Raises: ApplicationError, as `NodeClient`; NOT_FOUND, when the model was withdrawn.
    """
    if federation is None or federation.model is None:
        return
    name, model = RunNames(node).of(run_id), federation.model
    status = await NodeClient(node).run_status(name, limit_s=CALL_S)
    if status.state not in WAITING:  # A run that has started has opened and removed it.
        return
    asked = {"run_id": name}
    found = await NodeClient(node).call("has_model", asked, ModelPresence, limit_s=CALL_S)
    if found.present:
        return
    request = {**asked, "owner": platform_key_fingerprint(), "sealed_bytes": model.sealed_bytes}
    await NodeClient(node).feed("receive_model", request, _chunks(model), limit_s=TRANSFER_S)


async def _chunks(model: SealedModel) -> AsyncGenerator[bytes]:
    """The sealed model from the store, read without blocking the event loop."""
    chunks: Iterator[bytes] = blob_store(settings().storage).stream(model.reference)
    sent = 0
    try:
        while chunk := await asyncio.to_thread(next, chunks, b""):
            yield chunk
            sent += len(chunk)
            set_details(f"sending the sealed model: {sent >> 20} MiB")
    except BlobMissingError as error:
        raise ApplicationError(
            f"model {model.artifact_id}: its sealed model was withdrawn", type=errors.NOT_FOUND
        ) from error


async def model_key(node: NodeAddress, run_id: str, run_spec: RunSpec) -> str:
    """The key of a run's sealed model, for the node that starts the run.

    Raises: ApplicationError: REFUSED, when the run has none; NODE_REFUSED, when the node does not
    prove what it must; as `NodeClient`.
    """
    federation = run_spec.federation
    if run_spec.model_key is not None:
        return run_spec.model_key
    if federation is None or not federation.needs_attestation:
        raise ApplicationError(f"run {run_id}: its model has no key", type=errors.REFUSED)
    if node.own_worker:
        words = "the key of the model is not released: it would pass through a worker of its region"
        raise _unreleased(f"{node.node_id}: {words}'s own, whose owner could read it")
    asked = ask(RunNames(node).of(run_id), node.minion_id)
    request = {"nonce": asked.nonce, "run_id": asked.run_name, "host_key": asked.host_key}
    said = await NodeClient(node).call("attest", request, Attestation, limit_s=CALL_S)
    try:
        evidence = Evidence(
            kind=said.kind,
            report=base64.b64decode(said.report, validate=True),
            certificates=base64.b64decode(said.certificates, validate=True),
        )
        return await key_holder().release(federation, asked, evidence)
    except (AttestationRefusedError, binascii.Error) as refused:
        words = f"{node.node_id}: the key of the model is not released: {refused}"
        raise _unreleased(words) from refused


def _unreleased(words: str) -> ApplicationError:
    return ApplicationError(words, {"code": "no-attestation"}, type=errors.NODE_REFUSED)
