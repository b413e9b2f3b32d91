"""A job that names local machines, from its submission to its end: real workflows, activities, SSH
and processes on a machine that is made of this host for it, and taken away."""

import asyncio
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlmodel import Session, select
from temporalio.client import Client

from activities.accounts.bootstrap import bootstrap
from activities.billing.ledger import add_credits
from activities.db import tables
from activities.db.session import Database
from activities.outbox.relay import relay
from activities.outbox.requests import create
from activities.providers.local.catalogue import local_offers
from activities.providers.rental_offers import keep_offers
from activities.settings import settings
from tests.activities.placement.rows import add_waiting_job
from tests.activities.placement.test_rental_market import add_marketplace
from tests.activities.providers.runpod.test_job_on_temporal import at_work
from tests.waiting import eventually
from workflows.contracts.job_submission import SubmittedPlacement

COMMAND = 'echo "home: $HOME"; echo done > "$BASELOAD_OUTPUT/result"'


@pytest.fixture
def dialect() -> str:
    return "sqlite"


@pytest.fixture
def region(migrated: Database, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tables.Region:
    """The implied region of a provider of the administrators' account, with this host's offers."""
    monkeypatch.setenv("BASELOAD_TRUSTED_LOCAL", "true")
    monkeypatch.setenv("BASELOAD_LOCAL_FOLDER", str(folder))
    monkeypatch.setenv("BASELOAD_NODE_NETWORKS", "127.0.0.0/8")
    monkeypatch.setenv("BASELOAD_JOB_NETWORK_WALL", "false")
    settings.cache_clear()
    bootstrap()
    now = datetime.now(UTC)
    with migrated.write() as session:
        account = session.exec(select(tables.Account)).one()
        add_credits(session, account, 1_000_000, "first", now)
        found = add_marketplace(session, account)
        found.provider_kind = "local"
        session.get_one(tables.Provider, found.provider_id).kind = "local"
    with migrated.write() as session:
        keep_offers(session, found.provider_id, local_offers(found.provider_id), now)
    return found


async def submitted(
    client: Client, database: Database, *providers: str, command: str = COMMAND
) -> str:
    """The id of a job without GPUs, begun as the API begins it."""
    with database.write() as session:
        account = session.exec(select(tables.Account)).one()
        job = add_waiting_job(
            session,
            account,
            gpus=0,
            placement=SubmittedPlacement(providers=providers),
            created_at=datetime.now(UTC),
        )
        job.status, job.spec = "new", {**job.spec, "workers": [{"command": command}]}
        request = create(session, job)
    await relay(client, [request])
    return job.id


def of_nodes(session: Session) -> set[str]:
    nodes = session.exec(select(tables.Node.status)).all()
    return {*nodes, *session.exec(select(tables.Lease.status)).all()}


def is_over(database: Database) -> bool:
    with database.read() as session:
        return of_nodes(session) == {"archived", "released"}


async def test_a_job_that_names_this_host_runs_on_it_free_of_charge_and_leaves_nothing(
    folder: Path, region: tables.Region, migrated: Database, temporal_server: Client
) -> None:
    async with at_work(temporal_server):
        job_id = await submitted(temporal_server, migrated, "local")
        handle = temporal_server.get_workflow_handle(f"job/{job_id}")
        ended = await asyncio.wait_for(handle.result(), 120)
        await eventually(lambda: is_over(migrated), "nothing is left of its machine")
    assert ended["status"] == "finished", ended
    with migrated.read() as session:
        (lease,) = session.exec(select(tables.Lease)).all()
        (node,) = session.exec(select(tables.Node)).all()
    assert node.region_id == region.id
    assert (lease.microcredits_per_hour, lease.earlier_microcredits) == (0, 0)
    assert os.listdir(folder) == [".lock"]  # noqa: PTH208 - its names
