"""A worker process whose database is away at its start, and again while it serves."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlmodel import select
from temporalio.client import Client

from activities.db import tables
from activities.db.ids import new_id
from activities.db.session import Database
from activities.lifecycles.kinds import KINDS
from activities.outbox.requests import create
from activities.outbox.workflow_starts import register
from tests.activities.rows import NOW, add_payer
from tests.postgresql_server import PostgresqlServer
from tests.temporal_server import CHECKOUT
from tests.waiting import eventually


@pytest.fixture
def postgresql() -> Iterator[PostgresqlServer]:
    """A server of this test's own, which may go away."""
    try:
        server = PostgresqlServer()
    except FileNotFoundError as cause:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(cause))
    server.start()
    yield server
    server.stop()


class Worker:
    """A main worker process, with what it has logged."""

    def __init__(self, home: Path, database_url: str, client: Client) -> None:
        self._log = home / "worker.log"
        named = {
            "BASELOAD_HOME": str(home),
            "BASELOAD_DATABASE_URL": database_url,
            "BASELOAD_TEMPORAL_ADDRESS": client.service_client.config.target_host,
            "BASELOAD_TEMPORAL_NAMESPACE": client.namespace,
        }
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "workers", "main"],
                cwd=CHECKOUT,
                env={**os.environ, **named},
                stdout=log,
                stderr=log,
            )

    def said(self, words: str) -> int:
        """How many lines of its log contain the words."""
        assert self.process.poll() is None, self._log.read_text()[-3000:]
        return sum(words in line for line in self._log.read_text().splitlines())

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(30)


def add_provider(database: Database, name: str) -> str:
    """A provider of own machines whose workflow waits in the outbox to be started."""
    register(KINDS)
    with database.write() as session:
        account = session.exec(select(tables.Account)).first() or add_payer(session)
        row = tables.Provider(
            id=new_id("prv"),
            account_id=account.id,
            name=name,
            kind="physical",
            checks=[],
            created_at=NOW,
            updated_at=NOW,
        )
        create(session, row)
        return row.id


def status_of(database: Database, provider_id: str) -> str:
    with database.read() as session:
        return session.get_one(tables.Provider, provider_id).status


async def test_a_database_that_is_away_ends_no_process_and_is_waited_for(
    postgresql: PostgresqlServer, temporal_server: Client, tmp_path: Path
) -> None:
    url = postgresql.url(postgresql.create())
    postgresql.go_away()
    worker = Worker(tmp_path, url, temporal_server)
    try:
        await eventually(lambda: worker.said("waits for the database") == 1, "it waits")
        await asyncio.to_thread(postgresql.come_back)
        await eventually(lambda: worker.said("serves") > 0, "it serves")
        database = Database(url)
        for name in ("before", "after"):
            provider_id = add_provider(database, name)
            await eventually(lambda: status_of(database, provider_id) == "ready", name)  # noqa: B023
            if name == "before":
                await asyncio.to_thread(postgresql.go_away)
                await eventually(lambda: worker.said("OperationalError") > 0, "it meets the outage")
                await asyncio.to_thread(postgresql.come_back)
        assert worker.said("waits for the database") == 1
        database.close()
    finally:
        worker.end()
