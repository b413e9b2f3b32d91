"""The model of a federated job: sealed for the job alone, and withdrawn after it."""

from collections.abc import Iterator

from sqlmodel import Session
from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.db.session import database
from activities.db.tables import FederatedJob, Model
from activities.federation.sealed_models import about, new_key, seal_model
from activities.jobs.submissions import submission_of
from activities.secrets.sealing import SecretBox, secret_box
from activities.settings import settings
from activities.storage.blobs import BlobMissingError, BlobStore, blob_store
from activities.storage.contents import ContentBrokenError, ContentReader, manifest_of
from activities.storage.names import federated_folder, sealed_model_name
from activities.temporal.heartbeats import beating_aside
from workflows.contracts.artifacts import ArtifactStatus, Content
from workflows.contracts.base import Done
from workflows.contracts.errors import NOT_FOUND, WORK_REFUSED
from workflows.contracts.federation import FederatedStatus, PartyWords, SealedModel
from workflows.effects.federation import IsolateModel, WithdrawModel
from workflows.rules.jobs.artifacts import folder_of
from workflows.rules.jobs.resources import needs_attestation

KEYS = "federated-keys"
"""The kind of the sealed keys of sealed models."""
READ_BYTES = 1 << 20
ENDED = (FederatedStatus.WITHDRAWING, FederatedStatus.SETTLED, FederatedStatus.REFUSED)


@activity.defn
def isolate_model(command: IsolateModel) -> Done:
    """Seal the model with a new key for this federated job alone; a second call finds both.

    Raises: NotFound, when there is no such federated job; WorkRefused, when the model cannot be
    read, or was withdrawn meanwhile.
    """
    with database().write() as session:
        row = _locked(session, command.federated_id)
        if row.sealed_model is not None:
            return Done()
        if row.status in ENDED:
            raise _refused(command.federated_id, "the model was withdrawn meanwhile")
        key, found = _key_of(row), _model_of(session, row)
        session.add(row)
    with beating_aside():
        model = _seal(command.federated_id, found, key)
    with database().write() as session:
        row = _locked(session, command.federated_id)
        # An activity attempt that was held up may come to its end after the withdrawal.
        is_wanted = row.sealed_key is not None and row.status not in ENDED
        if is_wanted:
            row.sealed_model = model.model_dump(mode="json")
            session.add(row)
    if not is_wanted:
        _store().delete_folder(federated_folder(command.federated_id))
        raise _refused(command.federated_id, "the model was withdrawn meanwhile")
    return Done()


@activity.defn
def withdraw_model(command: WithdrawModel) -> Done:
    """Remove the sealed model and its key; silent when there are none.

    The key goes first: what is left of the sealed model opens for nobody after that.
    Raises: NotFound, when there is no such federated job.
    """
    with database().write() as session:
        row = _locked(session, command.federated_id)
        row.sealed_key, row.sealed_model = None, None
        session.add(row)
    _store().delete_folder(federated_folder(command.federated_id))
    return Done()


def sealed_model_of(row: FederatedJob) -> tuple[SealedModel, str] | None:
    """The sealed model of a federated job and its key; None: there is none, or it was withdrawn."""
    if row.sealed_model is None or row.sealed_key is None:
        return None
    return SealedModel.model_validate(row.sealed_model), _key_of(row)


def make_attested_key(row: FederatedJob) -> None:
    """Make the key of a model that needs an attestation, when the federated job is created.

    A worker of an earlier release, which takes no notice of the attestation, then neither makes a
    key that it can open nor opens this one; so it puts none into a run spec.
    """
    _key_of(row)


def _key_of(row: FederatedJob) -> str:
    """The key of the model, in hexadecimal; the first call makes it."""
    box, about_key = _box(row), _about_key(row)
    if row.sealed_key is None:
        key = new_key()
        row.sealed_key = box.seal(key.encode(), about_key)
        return key
    return box.open(row.sealed_key, about_key).decode()


def _about_key(row: FederatedJob) -> bytes:
    """What the sealed key is bound to; earlier releases know the id of the federated job alone."""
    is_attested = needs_attestation(submission_of(row.spec))
    return (f"{row.id}/attested" if is_attested else row.id).encode()


def _box(row: FederatedJob) -> SecretBox:
    return secret_box(KEYS, row.account_id)


def _model_of(session: Session, row: FederatedJob) -> SealedModel:
    """The model as it will be, before it is sealed. Raises: WorkRefused."""
    model = session.get(Model, row.model_id)
    status = "not there" if model is None else model.status
    if model is None or status != ArtifactStatus.READY or model.content_sha256 is None:
        words = f"asked the model {row.model_id}: it is {status}"
        raise _refused(row.id, "the creator's model is not ready", to_creator=words)
    content = Content(
        sha256=model.content_sha256,
        size_bytes=model.size_bytes or 0,
        unpacked_bytes=model.unpacked_bytes or 0,
        file_count=model.file_count or 0,
    )
    return SealedModel(
        artifact_id=model.id,
        name=folder_of(model.name, model.id),
        reference=sealed_model_name(row.id),
        sealed_bytes=0,
        content=content,
    )


def _seal(federated_id: str, model: SealedModel, key: str) -> SealedModel:
    """Store the sealed model, in the place of one that was not completed."""
    store, size = _store(), 0
    bound_to = about(federated_id, model.artifact_id, model.content.sha256)
    try:
        with store.writer(model.reference) as file:
            for piece in seal_model(_chunks(store, model), key, bound_to):
                file.write(piece)
                size += len(piece)
    except (BlobMissingError, ContentBrokenError) as cause:
        words = "the model cannot be read"
        raise _refused(federated_id, words, to_creator=f"{words}: {cause}") from cause
    return model.model_copy(update={"sealed_bytes": size})


def _chunks(store: BlobStore, model: SealedModel) -> Iterator[bytes]:
    manifest = manifest_of(store, model.artifact_id, model.content.sha256)
    reader = ContentReader(store, model.artifact_id, manifest)
    while chunk := reader.read(READ_BYTES):
        yield chunk


def _locked(session: Session, federated_id: str) -> FederatedJob:
    row = session.get(FederatedJob, federated_id, with_for_update=True)
    if row is None:
        raise ApplicationError(f"{federated_id}: there is no such federated job", type=NOT_FOUND)
    return row


def _store() -> BlobStore:
    return blob_store(settings().storage)


def _refused(federated_id: str, why: str, to_creator: str | None = None) -> ApplicationError:
    """The failure, with its words; to_creator: with a cause that the consumer does not read."""
    said = f"{federated_id}: {why}"
    alone = None if to_creator is None else f"{federated_id}: {to_creator}"
    words = PartyWords(both=said, creator=alone)
    return ApplicationError(said, words.model_dump(mode="json"), type=WORK_REFUSED)
