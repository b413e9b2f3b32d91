"""Rows of a provider of the kind Colab, and of what its notebook has announced."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from sqlmodel import Session

from activities.db import tables
from activities.db.session import Database
from activities.providers.colab_endpoints import AnnouncedEndpoint, keep_endpoint
from tests.activities.placement.test_rental_market import add_marketplace
from tests.activities.rows import GIB

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


def endpoint_row(database: Database, provider_id: str) -> tables.ColabEndpointRow:
    with database.read() as session:
        return session.get_one(tables.ColabEndpointRow, provider_id)
