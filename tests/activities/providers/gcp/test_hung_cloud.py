"""The real workers while one provider's cloud hangs: rows and other providers feel nothing."""

import asyncio
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowHandle
from temporalio.worker import Worker

from activities.db import tables
from activities.db.session import Database
from activities.providers.calls import CALLS_AT_ONCE
from activities.secrets.credentials import own_place, seal_credentials
from activities.settings import settings
from activities.temporal.client import set_client
from tests.activities.cloud_rows import add_cloud_region
from tests.activities.providers.gcp.asking_workflow import Ask, Asking
from tests.activities.providers.gcp.keys import key_file
from tests.activities.rows import NOW, add_payer
from tests.doubles.gcp.double import GcpDouble
from tests.doubles.gcp.faults import Fault, FaultKind
from tests.waiting import eventually
from workers.main import ROW_THREADS, cloud_workers, main_worker
from workers.registry import workflow_runner
from workers.serving import serving
from workflows.effects.jobs import FindPlacement
from workflows.effects.machines import DescribeMachine, NamedMachine, TerminateMachine

Named = TypeVar("Named", bound=NamedMachine)
TESTED = "tested"
MACHINES = 150
"""More than all slots of a queue."""
MOST_OF_ONE = CALLS_AT_ONCE // 2
"""Slots that one provider takes, when nobody else has any."""
HANGS_S = 60.0
SERVED_LIMIT_S = 15.0
"""Far less than the cloud hangs."""


@pytest.fixture
def dialect() -> str:
    return "sqlite"


@pytest.fixture
def providers(
    gcp: GcpDouble, migrated: Database, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, str]:
    """Two providers at Google; the first one's machines are named `stuck-…`, and hang."""
    monkeypatch.setenv("BASELOAD_SECRETS_KEY", "cd" * 32)
    settings.cache_clear()
    with migrated.write() as session:
        account = add_payer(session)
        regions = [add_cloud_region(session, account, name) for name in ("us-east1", "us-west1")]
        found = [str(region.provider_id) for region in regions]
        for provider_id in found:
            zone = own_place("gcp", provider_id)
            reference = seal_credentials(session, account.id, zone, key_file(gcp), NOW)
            session.get_one(tables.Provider, provider_id).credentials = reference
    hang = Fault(FaultKind.SLOW, "compute.instances.*", "stuck-*", times=None, seconds=HANGS_S)
    gcp.cloud.faults.add(hang)
    return found[0], found[1]


async def asked(client: Client, ask: Ask) -> WorkflowHandle[Asking, None]:
    name = f"asking-{uuid.uuid4().hex}"
    return await client.start_workflow(Asking.run, ask, id=name, task_queue=TESTED)


async def served(client: Client, ask: Ask) -> None:
    await asyncio.wait_for((await asked(client, ask)).result(), SERVED_LIMIT_S)


async def test_rows_and_releases_and_other_providers_are_served_while_a_cloud_hangs(
    gcp: GcpDouble, providers: tuple[str, str], temporal_server: Client
) -> None:
    stuck, other = (
        {"lease_id": "lea-1", "provider_id": each, "zone": "us-central1-a"} for each in providers
    )
    looks = tuple(machine(DescribeMachine, stuck, f"stuck-{number}") for number in range(MACHINES))
    (hang,) = gcp.cloud.faults.scripted
    set_client(temporal_server)
    with ThreadPoolExecutor(ROW_THREADS) as rows:
        tested = Worker(
            temporal_server,
            task_queue=TESTED,
            workflows=[Asking],
            workflow_runner=workflow_runner(),
        )
        workers = (main_worker(temporal_server, rows), *cloud_workers(temporal_server))
        async with serving(tested, *workers):
            looking = await asked(temporal_server, Ask(looks=looks))
            await eventually(lambda: hang.struck == MOST_OF_ONE, "the cloud hangs", 30)
            placement = FindPlacement(job_id="job-1", attempt=1)
            await served(temporal_server, Ask(placements=(placement,)))
            await served(temporal_server, Ask(releases=(machine(TerminateMachine, other),)))
            await served(temporal_server, Ask(looks=(machine(DescribeMachine, other),)))
            assert (await looking.describe()).status is WorkflowExecutionStatus.RUNNING
            assert hang.struck == MOST_OF_ONE
            await looking.terminate()
            gcp.cloud.faults.clear()


def machine(kind: type[Named], of: dict[str, str], name: str = "baseload-gone") -> Named:
    return kind.model_validate({**of, "provider_kind": "gcp", "machine_name": name})
