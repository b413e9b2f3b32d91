"""Jobs that name a notebook, with ngrok's double: real workflows, activities and processes, and the
SSH server that the notebook's own cell has started."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlmodel import select
from temporalio.client import Client

from activities.accounts.bootstrap import bootstrap
from activities.billing.ledger import add_credits
from activities.db import tables
from activities.db.session import Database
from activities.settings import settings
from tests.activities.providers.colab.notebook import Notebook
from tests.activities.providers.colab.rows import add_colab, announce_notebook, endpoint_row
from tests.activities.providers.local.test_job_on_temporal import is_over, of_nodes, submitted
from tests.activities.providers.runpod.test_job_on_temporal import at_work
from tests.waiting import eventually

SILENCE_LIMIT = "activities.providers.colab_endpoints.SILENCE_LIMIT"


@pytest.fixture
def dialect() -> str:
    return "sqlite"


@pytest.fixture
def region(
    migrated: Database, node_root: Path, notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> tables.Region:
    """The implied region of a provider whose notebook has announced itself by its cell."""
    monkeypatch.setenv("BASELOAD_NODE_NETWORKS", "127.0.0.0/8")
    monkeypatch.setenv("BASELOAD_JOB_NETWORK_WALL", "false")
    settings.cache_clear()
    bootstrap()
    with migrated.write() as session:
        account = session.exec(select(tables.Account)).one()
        add_credits(session, account, 1_000_000, "first", datetime.now(UTC))
        found = add_colab(session, account)
        found.node_root = str(node_root)
    announce_notebook(migrated, found, notebook)
    return found


def states(database: Database) -> set[str]:
    with database.read() as session:
        return of_nodes(session)


async def test_a_job_that_names_the_notebook_runs_there_and_lets_it_go(
    region: tables.Region, migrated: Database, notebook: Notebook, temporal_server: Client
) -> None:
    async with at_work(temporal_server):
        job_id = await submitted(temporal_server, migrated, "colab")
        handle = temporal_server.get_workflow_handle(f"job/{job_id}")
        ended = await asyncio.wait_for(handle.result(), 120)
        await eventually(lambda: is_over(migrated), "the lease has ended, the node is forgotten")
    assert ended["status"] == "finished", ended
    with migrated.read() as session:
        (lease,) = session.exec(select(tables.Lease)).all()
        (node,) = session.exec(select(tables.Node)).all()
    assert (node.region_id, lease.minion_id) == (region.id, node.minion_id)
    assert (lease.microcredits_per_hour, lease.earlier_microcredits) == (0, 0)
    row = endpoint_row(migrated, region.provider_id)
    assert (row.held_by, row.host) == (None, lease.host)
    assert "has ended" not in notebook.printed, "the runtime is the user's to end"


async def test_a_job_whose_notebook_ends_has_lost_its_machine_and_waits(
    region: tables.Region,
    migrated: Database,
    notebook: Notebook,
    temporal_server: Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SILENCE_LIMIT, timedelta(0))
    async with at_work(temporal_server):
        job_id = await submitted(temporal_server, migrated, "colab", command="sleep 1000")
        await eventually(lambda: status_of(migrated, job_id) == "running", "it runs", 120)
        notebook.close()
        await eventually(lambda: "offline" in states(migrated), "its node is offline", 120)
        with migrated.read() as session:
            (lease,) = session.exec(select(tables.Lease)).all()
        await temporal_server.get_workflow_handle(f"lease/{lease.id}").signal("refresh")
        await eventually(
            lambda: status_of(migrated, job_id) == "waiting_for_resources", "it waits", 120
        )
        await temporal_server.get_workflow_handle(f"job/{job_id}").signal("cancel")
        await eventually(lambda: is_over(migrated), "its lease has ended")
    with migrated.read() as session:
        (lease,) = session.exec(select(tables.Lease)).all()
    assert "silent since" in str(lease.status_reason)
    assert endpoint_row(migrated, region.provider_id).held_by is None


def status_of(database: Database, job_id: str) -> str:
    with database.read() as session:
        return session.get_one(tables.Job, job_id).status
