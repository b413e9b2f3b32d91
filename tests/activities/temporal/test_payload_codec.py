"""With the codec on, Temporal has nothing to read but ids, and everything works as before."""

import uuid
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import Client, WorkflowHandle
from temporalio.converter import DataConverter
from temporalio.exceptions import ApplicationError
from temporalio.worker import Replayer

from activities.secrets.sealing import (
    MasterKeyError,
    SealBrokenError,
    make_master_key,
    payload_keys,
)
from activities.settings import Settings, settings
from activities.temporal.client import signal_once
from activities.temporal.payload_codec import ENCODING, AesGcmCodec, data_converter
from tests.workflows.conftest import served
from tests.workflows.jobs.test_job_lifecycle import at_running
from tests.workflows.nodes.test_node_lifecycle import reaches
from workers.registry import WORKFLOWS, workflow_runner
from workflows.contracts.base import Contract
from workflows.contracts.jobs import EndRequest
from workflows.contracts.removals import Removal
from workflows.contracts.statuses import JobStatus, NodeStatus
from workflows.nodes.node_lifecycle import NodeLifecycle

PLAIN = Payload(metadata={"encoding": b"json/plain"}, data=b"the secret plan")
HOST, REASON, PERSON = "10.0.0.1", "the-reason-why", "somebody-we-know"


@pytest.fixture
def converter(home: Path) -> DataConverter:
    make_master_key(settings().master_key_path)
    return data_converter(Settings(payload_codec="aes-gcm"))


def with_converter(client: Client, converter: DataConverter) -> Client:
    """The same connection and namespace, with another way to write payloads."""
    return Client(client.service_client, namespace=client.namespace, data_converter=converter)


async def test_a_job_and_a_node_say_nothing_in_temporal_and_end_as_ever(
    temporal_server: Client, converter: DataConverter
) -> None:
    async def fail(_: Contract) -> None:
        raise ApplicationError(f"{HOST} has refused the connection")

    async with served(with_converter(temporal_server, converter)) as stage:
        stage.world.faults["prepare_node"] = [fail]
        job, node = await stage.job(), await stage.node()
        await at_running(stage, job)
        await reaches(stage, NodeStatus.MAINTENANCE)
        end = EndRequest(reason=REASON)
        await signal_once(stage.client, job.id, "cancel", [end], request_id=uuid.uuid4().hex)
        assert (await job.result()).status is JobStatus.CANCELED
        await node.signal(NodeLifecycle.remove, Removal(requested_by=PERSON))
        await node.result()
    await unreadable(job, converter, "digits", REASON, "prj-1")
    await unreadable(node, converter, HOST, PERSON, "SHA256:key", "refused the connection")


async def unreadable(
    handle: WorkflowHandle[Any, Any], converter: DataConverter, *words: str
) -> None:
    """Check that the server has none of these words, and that the history replays all the same."""
    history = await handle.fetch_history()
    stored = b"".join(event.SerializeToString() for event in history.events)
    assert ENCODING in stored
    assert [word for word in words if word.encode() in stored] == []
    replayer = Replayer(
        workflows=WORKFLOWS, workflow_runner=workflow_runner(), data_converter=converter
    )
    await replayer.replay_workflow(history)


async def test_what_was_written_before_and_by_other_processes_is_read(home: Path) -> None:
    key = bytes(32)
    writer, reader = AesGcmCodec(key), AesGcmCodec(key, encrypts=False)
    (written,) = await writer.encode([PLAIN])
    assert b"secret" not in written.SerializeToString()
    assert await reader.decode([written, PLAIN]) == [PLAIN, PLAIN]
    assert await reader.encode([PLAIN]) == [PLAIN]
    (again,) = await writer.encode([PLAIN])
    assert again.data != written.data
    with pytest.raises(SealBrokenError):
        await AesGcmCodec(b"x" * 32).decode([written])


def test_a_site_without_the_master_key_has_the_key_of_payloads(home: Path) -> None:
    with pytest.raises(MasterKeyError):
        data_converter(Settings(payload_codec="aes-gcm"))
    (home / "keys").mkdir()
    (home / "keys" / "temporal.key").write_text("ab" * 32)
    assert payload_keys() == [bytes.fromhex("ab" * 32)]
    assert data_converter(Settings(payload_codec="decode")).payload_codec is not None
    assert data_converter(Settings()).payload_codec is None
