"""Rows of a cloud: an account's ready provider and a healthy region of it, what is short there."""

from datetime import UTC, datetime, timedelta
from typing import Any

from sqlmodel import Session, select

from activities.db import tables
from activities.db.ids import new_id
from tests.activities.rows import NOW


def add_cloud_region(
    session: Session, account: tables.Account, cloud_region: str = "us-central1", **provider: Any
) -> tables.Region:
    """A healthy region there, of a ready provider of its own."""
    row = tables.Provider(
        id=new_id("prv"),
        account_id=account.id,
        name="our google",
        status="ready",
        kind="gcp",
        checks=[],
        created_at=NOW,
        updated_at=NOW,
    ).sqlmodel_update(provider)
    session.add(row)
    session.flush()
    region = tables.Region(
        id=new_id("reg"),
        account_id=account.id,
        name=f"burst-{cloud_region}",
        status="healthy",
        provider_id=row.id,
        provider_kind="gcp",
        cloud_region=cloud_region,
        relaxed_requirements=["all"],
        options={},
        created_at=NOW,
        updated_at=NOW,
    )
    session.add(region)
    session.flush()
    return region


def add_shortage(session: Session, region: tables.Region, scope: str, reason: str) -> None:
    """Known now, for ten minutes."""
    until = datetime.now(UTC) + timedelta(minutes=10)
    session.add(
        tables.ShortageRow(provider_id=region.provider_id, scope=scope, reason=reason, until=until)
    )
    session.flush()


def add_lease(
    session: Session, region: tables.Region, holder_id: str, **changes: Any
) -> tables.Lease:
    """Of a machine in the region, released unless it is said otherwise."""
    lease_id = new_id("lea")
    row = tables.Lease(
        id=lease_id,
        account_id=region.account_id,
        name=f"baseload-{lease_id}",
        region_id=region.id,
        provider_id=region.provider_id,
        provider_kind=region.provider_kind,
        holder_id=holder_id,
        offers=[],
        spec={},
        status="released",
        deadline=NOW,
        created_at=NOW,
        updated_at=NOW,
    ).sqlmodel_update(changes)
    session.add(row)
    session.flush()
    return row


def ephemeral_nodes(session: Session) -> list[tables.Node]:
    """Nodes that were made for jobs, by name."""
    query = select(tables.Node).where(tables.Node.type == "ephemeral")
    return sorted(session.exec(query), key=lambda node: node.name)
