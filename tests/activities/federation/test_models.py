"""The model of a federated job: sealed with a key of its own, in its run specs alone, then gone."""

import asyncio
import io
import tarfile
from dataclasses import dataclass

import pytest
from sqlmodel import select
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.db import tables
from activities.db.session import Database
from activities.federation import models
from activities.federation.attestation import hold_keys
from activities.federation.jobs import create_federated_job
from activities.federation.models import (
    isolate_model,
    make_attested_key,
    sealed_model_of,
    withdraw_model,
)
from activities.federation.run_specs import FederatedInputs, federated_inputs
from activities.federation.sealed_models import sealed_bytes
from activities.jobs.submissions import submission_of
from activities.placement.queue import waiting_queue
from activities.secrets.sealing import SealBrokenError, secret_box
from activities.settings import settings
from activities.site import sealed_models as site_models
from activities.site.sealed_models import model_key
from activities.storage.blobs import BlobStore, blob_store
from activities.storage.contents import ContentWriter
from activities.storage.run_specs import RunSpec
from tests.activities.federation.rows import Federation, federation
from tests.activities.rows import NOW
from tests.activities.software_attestation import AttestingNode, SoftwareHolder
from workflows.contracts import errors
from workflows.contracts.federation import PartyWords
from workflows.contracts.nodes import NodeAddress
from workflows.effects.federation import CreateFederatedJob, IsolateModel, WithdrawModel

NODE = NodeAddress(
    node_id="nod-1", region_id="reg-1", host="192.0.2.1", port=22, user="root", minion_id="SHA256:x"
)
MARKER = b"the weights of this model are a secret"


@dataclass(frozen=True)
class Stored:
    """Both parties, with a model whose content is stored."""

    parties: Federation
    store: BlobStore
    size_bytes: int

    def isolate(self) -> None:
        command = IsolateModel(federated_id=self.parties.federated_id, at=NOW)
        ActivityEnvironment().run(isolate_model, command)

    def withdraw(self) -> None:
        withdraw_model(WithdrawModel(federated_id=self.parties.federated_id))

    def inputs(self) -> FederatedInputs:
        with self.parties.database.read() as session:
            job = session.get_one(tables.Job, self.parties.job_id)
            return federated_inputs(session, job, submission_of(job.spec))

    @property
    def sealed(self) -> bytes:
        return self.store.get(f"federated/{self.parties.federated_id}/model")


@pytest.fixture
def stored(migrated: Database) -> Stored:
    parties, packed = federation(migrated), io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        member = tarfile.TarInfo("weights.bin")
        member.size = len(MARKER)
        tar.addfile(member, io.BytesIO(MARKER))
    store = blob_store(settings().storage)
    writer = ContentWriter(store, parties.model_id, "one")
    writer.write(packed.getvalue())
    content = writer.finish(1, len(MARKER))
    values = content.model_dump(exclude={"sha256"})
    parties.set(tables.Model, parties.model_id, content_sha256=content.sha256, **values)
    return Stored(parties, store, content.size_bytes)


def test_the_model_is_sealed_once_and_nothing_of_it_is_plain(stored: Stored) -> None:
    stored.isolate()
    sealed = stored.sealed
    assert MARKER not in sealed
    assert len(sealed) == sealed_bytes(stored.size_bytes)
    stored.isolate()
    assert stored.sealed == sealed
    found = sealed_model_of(stored.parties.row())
    assert found is not None
    model, key = found
    assert (model.artifact_id, model.name) == (stored.parties.model_id, "lungs")
    assert model.sealed_bytes == len(sealed)
    row = stored.parties.row()
    assert row.sealed_key is not None
    assert key.encode() not in row.sealed_key
    assert key not in repr(row.sealed_model)


def test_a_second_attempt_after_a_kill_seals_with_the_same_key(
    stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise RuntimeError("the worker is killed")

    with monkeypatch.context() as patched:
        patched.setattr(models, "_seal", killed)
        with pytest.raises(RuntimeError):
            stored.isolate()
    before = stored.parties.row().sealed_key
    stored.isolate()
    assert stored.parties.row().sealed_key == before


async def test_a_key_that_needs_an_attestation_is_in_no_run_spec_and_goes_to_machines_that_prove(
    stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored.parties.ask_attestation()
    await asyncio.to_thread(stored.isolate)
    create_federated_job(CreateFederatedJob(federated_id=stored.parties.federated_id, at=NOW))
    stored.parties.set(tables.Job, stored.parties.job_id, status="waiting_for_resources")
    with stored.parties.database.read() as session:
        (waiting,) = waiting_queue(session, {"A100"}).demands
    assert (waiting.demand.needs_confinement, waiting.demand.needs_attestation) == (True, True)
    inputs, found = stored.inputs(), sealed_model_of(stored.parties.row())
    assert inputs.federation is not None
    assert inputs.federation.needs_attestation
    assert inputs.model_key is None
    assert found is not None
    run_spec = RunSpec(run_id="job-fedproof-0-1", command="true", federation=inputs.federation)
    monkeypatch.setattr(site_models, "NodeClient", AttestingNode)
    asked = NODE, run_spec.run_id, run_spec
    with pytest.raises(ApplicationError, match="nobody who checks"):
        await model_key(*asked)
    hold_keys(SoftwareHolder(AttestingNode.processor.key.public_key(), found[1]))
    try:
        assert await model_key(*asked) == found[1]
    finally:
        hold_keys(None)


def test_a_worker_of_an_earlier_release_opens_no_key_that_needs_an_attestation(
    stored: Stored,
) -> None:
    stored.parties.ask_attestation()
    with stored.parties.database.write() as session:
        make_attested_key(stored.parties.row(session))
    row = stored.parties.row()
    assert row.sealed_key is not None
    with pytest.raises(SealBrokenError):
        secret_box(models.KEYS, row.account_id).open(row.sealed_key, row.id.encode())
    stored.isolate()
    assert stored.parties.row().sealed_key == row.sealed_key


def test_the_run_spec_has_the_confinement_and_the_key_and_the_model_as_no_other_content(
    stored: Stored,
) -> None:
    stored.isolate()
    command = CreateFederatedJob(federated_id=stored.parties.federated_id, at=NOW)
    create_federated_job(command)
    inputs = stored.inputs()
    assert inputs.federation is not None
    assert inputs.federation.egress == ("api.example.com:443",)
    assert inputs.federation.model is not None
    assert inputs.federation.model.reference == f"federated/{stored.parties.federated_id}/model"
    assert inputs.model_key is not None
    assert len(bytes.fromhex(inputs.model_key)) == 32
    assert inputs.submission.data.model is None


def test_a_model_that_is_withdrawn_is_gone_with_its_key_and_starts_no_run(stored: Stored) -> None:
    stored.isolate()
    create_federated_job(CreateFederatedJob(federated_id=stored.parties.federated_id, at=NOW))
    stored.withdraw()
    stored.withdraw()
    row = stored.parties.row()
    assert (row.sealed_key, row.sealed_model) == (None, None)
    assert stored.store.names(f"federated/{stored.parties.federated_id}") == []
    with pytest.raises(ApplicationError, match="it was withdrawn") as refused:
        stored.inputs()
    assert refused.value.type == errors.WORK_REFUSED


def test_an_attempt_that_was_held_up_leaves_nothing_after_the_withdrawal(
    stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    seal = models._seal

    def late(*given: object) -> object:
        sealed = seal(*given)  # type: ignore[arg-type]
        stored.withdraw()
        return sealed

    monkeypatch.setattr(models, "_seal", late)
    with pytest.raises(ApplicationError, match="was withdrawn meanwhile"):
        stored.isolate()
    assert stored.store.names(f"federated/{stored.parties.federated_id}") == []
    assert stored.parties.row().sealed_model is None


@pytest.mark.parametrize(
    ("changes", "both", "cause"),
    [
        ({"status": "removing"}, "the creator's model is not ready", "it is removing"),
        ({"content_sha256": "ef" * 32}, "the model cannot be read", f"content {'ef' * 32}, found"),
    ],
)
def test_why_a_model_cannot_be_sealed_is_for_its_owner_alone(
    stored: Stored, changes: dict[str, str], both: str, cause: str
) -> None:
    stored.parties.set(tables.Model, stored.parties.model_id, **changes)
    with pytest.raises(ApplicationError) as refused:
        stored.isolate()
    assert refused.value.type == errors.WORK_REFUSED
    words = PartyWords.model_validate(refused.value.details[0])
    assert words.both == refused.value.message == f"{stored.parties.federated_id}: {both}"
    assert words.consumer is None
    assert cause in (words.creator or "")


def test_a_job_that_is_its_projects_own_has_no_confinement(stored: Stored) -> None:
    create_federated_job(CreateFederatedJob(federated_id=stored.parties.federated_id, at=NOW))
    stored.parties.set(tables.Job, stored.parties.job_id, federated_id=None)
    inputs = stored.inputs()
    assert (inputs.federation, inputs.model_key) == (None, None)
    assert inputs.submission.data.model is not None
    with stored.parties.database.read() as session:
        assert session.exec(select(tables.FederatedJob)).one()


def test_an_attempt_that_begins_after_the_end_makes_no_key(stored: Stored) -> None:
    parties = stored.parties
    parties.set(tables.FederatedJob, parties.federated_id, status="refused")
    with pytest.raises(ApplicationError, match="was withdrawn meanwhile"):
        stored.isolate()
    assert parties.row().sealed_key is None
