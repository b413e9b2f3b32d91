"""A sealed model on its way from the store to a run, and its key, which no history ever has."""

import os
import tarfile
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from activities.federation.attestation import ask, hold_keys
from activities.federation.sealed_models import about, new_key, seal_model
from activities.site import sealed_models
from activities.site.node_client import NodeClient
from activities.site.runs import end_worker, start_worker
from activities.site.sealed_models import model_key
from activities.site.staging import stage_worker
from activities.storage.run_specs import Isolation, RunSpec, seal_run_spec
from tests.activities.federated_sites import federation
from tests.activities.sites import REGION, Site
from tests.activities.software_attestation import (
    AttestingNode,
    SoftwareHolder,
    SoftwareProcessor,
)
from tests.activities.waiting import wait_until
from workflows.contracts.federation import FederatedRun
from workflows.contracts.jobs import WorkerAssignment, run_id
from workflows.contracts.nodes import NodeAddress
from workflows.effects.jobs import EndWorker, StageWorker, StartWorker

JOB = f"job-s{os.getpid()}"
RUN = run_id(JOB, 0, 1)
HASH = "cd" * 32
only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can confine a run: run as root")


class AttestingClient(NodeClient):
    """A node behind sshd, for which a processor of software answers what is to be proved."""

    async def call(self, verb: str, request: dict[str, Any], *more: Any, **limits: Any) -> Any:
        if verb == "attest":
            return await AttestingNode(self._node).call(verb, request)
        return await super().call(verb, request, *more, **limits)


def weights() -> bytes:
    """The tar stream of a small model."""
    packed = BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        entry = tarfile.TarInfo("weights")
        entry.size = 5
        tar.addfile(entry, BytesIO(b"12345"))
    return packed.getvalue()


def staged(site: Site, key: str, *, is_attested: bool) -> StageWorker:
    """What stages a run with a small model that is sealed with this key."""
    plain = weights()
    sealed = b"".join(seal_model([plain], key, about("fed-1", "art-1", HASH)))
    terms = federation(sealed, HASH, needs_attestation=is_attested)
    assert terms.model is not None
    content = terms.model.content.model_copy(update={"size_bytes": len(plain)})
    model = terms.model.model_copy(update={"content": content})
    user = "baseload-job"
    isolation = Isolation(
        node_id=site.node.node_id, minion_id=site.node.minion_id,
        login_user=site.node.user, job_user=user,
    )  # fmt: skip
    run_spec = RunSpec(
        run_id=RUN,
        command='cp "$BASELOAD_MODEL/weights" "$BASELOAD_OUTPUT/seen"; sleep 60',
        isolation=isolation,
        federation=terms.model_copy(update={"model": model}),
        model_key=None if is_attested else key,
    )
    return StageWorker(
        node=site.node,
        run_id=RUN,
        run_spec=seal_run_spec(JOB, 1, 0, REGION, run_spec),
        assignment=WorkerAssignment(worker=0, node=site.node, job_user=user),
    )


@only_root
async def test_a_sealed_model_comes_to_its_run_and_its_key_passes_through_no_history(
    site: Site,
) -> None:
    site.agent.call("prepare", peers=[])
    key = new_key()
    command = staged(site, key, is_attested=False)
    await site.do(stage_worker, command)
    await site.do(stage_worker, command)  # A repeat finds the sealed model there.
    await site.do(start_worker, StartWorker(node=site.node, run_id=RUN))
    seen = site.agent.path(RUN, "output/seen")
    await wait_until(seen.exists, "the run has its model")
    await site.do(start_worker, StartWorker(node=site.node, run_id=RUN))
    await site.do(stage_worker, command)  # So does one after the start, when it is removed.
    assert not site.agent.path(RUN, "model.sealed").exists()
    await site.do(end_worker, EndWorker(node=site.node, run_id=RUN, grace_s=0))
    assert seen.read_text() == "12345"
    assert key not in "".join(site.told)
    texts = [path.read_bytes() for path in site.agent.path(RUN).rglob("*") if path.is_file()]
    assert all(key.encode() not in text for text in texts)


@only_root
async def test_a_run_gets_its_model_from_a_machine_that_proves_what_it_runs_and_from_no_other(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.agent.call("prepare", peers=[])
    holder = SoftwareHolder(AttestingNode.processor.key.public_key(), new_key())
    await site.do(stage_worker, staged(site, holder.key, is_attested=True))
    hold_keys(holder)
    try:
        with pytest.raises(ApplicationError, match="is none of this machine"):
            await site.do(start_worker, StartWorker(node=site.node, run_id=RUN))
        assert site.agent.look(RUN)["state"] == "staged"
        monkeypatch.setattr(sealed_models, "NodeClient", AttestingClient)
        await site.do(start_worker, StartWorker(node=site.node, run_id=RUN))
    finally:
        hold_keys(None)
    seen = site.agent.path(RUN, "output/seen")
    await wait_until(seen.exists, "the run has its model")
    await site.do(end_worker, EndWorker(node=site.node, run_id=RUN, grace_s=0))
    assert seen.read_text() == "12345"
    assert holder.key not in "".join(site.told)


@pytest.fixture
def holder(monkeypatch: pytest.MonkeyPatch) -> Iterator[SoftwareHolder]:
    AttestingNode.processor = SoftwareProcessor()
    monkeypatch.setattr(sealed_models, "NodeClient", AttestingNode)
    found = SoftwareHolder(AttestingNode.processor.key.public_key(), new_key())
    hold_keys(found)
    yield found
    hold_keys(None)


def attested(site: Site) -> tuple[NodeAddress, str, RunSpec]:
    terms: FederatedRun = federation(needs_attestation=True)
    return site.node, RUN, RunSpec(run_id=RUN, command="true", federation=terms)


async def test_a_key_is_released_to_a_machine_that_proves_what_it_runs(
    site: Site, holder: SoftwareHolder
) -> None:
    assert await model_key(*attested(site)) == holder.key
    assert holder.released == [*site.names(RUN)]


async def test_a_key_is_not_released_to_another_image_or_signer_or_for_an_old_report(
    site: Site, holder: SoftwareHolder
) -> None:
    real = AttestingNode.processor
    old = real.evidence(ask(site.names(RUN)[0], site.node.minion_id).bound)

    class Replaying(SoftwareProcessor):
        def evidence(self, bound: bytes) -> Any:
            return old

    for processor, words in (
        (SoftwareProcessor(b"x" * 48, real.key), "something else"),
        (SoftwareProcessor(), "not signed"),
        (Replaying(), "another question"),
    ):
        AttestingNode.processor = processor
        with pytest.raises(ApplicationError, match=words):
            await model_key(*attested(site))
    assert holder.released == []


async def test_a_key_passes_through_no_worker_of_the_consumers(
    site: Site, holder: SoftwareHolder
) -> None:
    node, run_id, run_spec = attested(site)
    own = node.model_copy(update={"own_worker": True})
    with pytest.raises(ApplicationError, match="worker of its region's own"):
        await model_key(own, run_id, run_spec)
    assert holder.released == []


async def test_without_a_holder_of_keys_none_is_released(
    site: Site, holder: SoftwareHolder
) -> None:
    hold_keys(None)
    with pytest.raises(ApplicationError, match="nobody who checks"):
        await model_key(*attested(site))
    assert holder.released == []
