"""Rows of a provider of the kind Colab, and of what its notebook has announced."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from sqlmodel import Session

from activities.db import tables
from activities.db.session import Database
from activities.providers.colab_endpoints import AnnouncedEndpoint, keep_endpoint
from activities.secrets.region_keys import region_key_line
from api.services.announcements import checked_fingerprint
from tests.activities.placement.test_rental_market import add_marketplace
from tests.activities.providers.colab.notebook import Notebook, announced
from tests.activities.rows import GIB
from tests.activities.waiting import wait_for

ENDPOINT = AnnouncedEndpoint(
    host="0.tcp.ngrok.io",
    port=12345,
    ssh_user="root",
    host_key="ssh-ed25519 AAAA",
    minion_id=f"SHA256:{'A' * 43}",
    gpu_type="T4",
    gpu_count=1,
    cpu_count=2,
    memory_bytes=12 * GIB,
)


def add_colab(session: Session, account: tables.Account) -> tables.Region:
    """The implied region of a ready provider without a notebook."""
    found = add_marketplace(session, account)
    found.provider_kind = "colab"
    session.get_one(tables.Provider, found.provider_id).kind = "colab"
    return found


def announce(database: Database, provider_id: str, at: datetime | None = None, **of: Any) -> None:
    """The notebook of a provider announces itself, as if its token had been checked."""
    with database.write() as session:
        row = session.get(tables.ColabEndpointRow, provider_id)
        row = row or tables.ColabEndpointRow(provider_id=provider_id)
        keep_endpoint(session, row, replace(ENDPOINT, **of), at or datetime.now(UTC))


def announce_notebook(database: Database, region: tables.Region, notebook: Notebook) -> None:
    """The cell of a notebook is run, and what it says of itself is kept for the provider."""
    said = announced(notebook, region_key_line(region.id), wait_for)
    announce(
        database,
        region.provider_id,
        host=said["host"],
        port=said["port"],
        ssh_user=said["user"],
        host_key=said["host_public_key"],
        minion_id=checked_fingerprint(said["host_public_key"]),
        gpu_type=None,
        gpu_count=0,
        cpu_count=said["cpu_count"],
        memory_bytes=said["memory_bytes"],
    )


def endpoint_row(database: Database, provider_id: str) -> tables.ColabEndpointRow:
    with database.read() as session:
        return session.get_one(tables.ColabEndpointRow, provider_id)
