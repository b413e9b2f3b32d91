"""The catalogue of a cloud with its newest prices: those of the files, and those read since."""

from collections.abc import Iterable
from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import func
from sqlmodel import Session, col, select

from activities.db.session import database
from activities.db.tables import CloudPriceRow
from activities.providers.registry import kind_of
from workflows.rules.catalogue.clouds import CloudCatalogue
from workflows.rules.catalogue.price_lists import PriceLine, with_prices
from workflows.rules.catalogue.prices import DiskKind, DiskPrice, GpuPrice, SeriesPrice, Source

NANO = 1_000_000_000
Version = tuple[int, datetime | None]
"""The number of a cloud's stored prices, and when the last was read."""
_priced: dict[str, tuple[Version, CloudCatalogue]] = {}


def catalogue_of(kind: str) -> CloudCatalogue:
    """The catalogue of a provider kind, read from its files.

    Raises: RequestRefused, for a kind that has no catalogue.
    """
    found = kind_of(kind)
    return found.required("catalogue", found.catalogue)()


def priced_catalogue(kind: str, session: Session | None = None) -> CloudCatalogue:
    """The catalogue of a provider kind, with the newest stored prices.

    Each process caches the last answer. Raises: RequestRefused, for kinds without a catalogue.
    """
    catalogue_of(kind)
    if session is None:
        with database().read() as own:
            return known_prices(own, kind)[1]
    return known_prices(session, kind)[1]


def known_prices(session: Session, kind: str) -> tuple[Version, CloudCatalogue]:
    """The catalogue of a provider kind, and the version of its prices.

    Raises: RequestRefused, for a kind that has no catalogue.
    """
    known, version = _priced.get(kind), _version(session, kind)
    if known is None or known[0] != version:
        files = catalogue_of(kind)
        known = version, files if version[0] == 0 else _with_rows(session, kind, files)
        _priced[kind] = known
    return known


def _version(session: Session, kind: str) -> Version:
    query = select(func.count(), func.max(CloudPriceRow.read_at)).where(
        col(CloudPriceRow.provider_kind) == kind
    )
    count, last = session.exec(query).one()
    return count, last


def _with_rows(session: Session, kind: str, files: CloudCatalogue) -> CloudCatalogue:
    """The catalogue with the prices of the rows, without rows that it has no part for any more."""
    series = {machine.series for machine in files.machines}
    query = select(CloudPriceRow).where(col(CloudPriceRow.provider_kind) == kind)
    rows = [
        row
        for row in session.exec(query)
        if files.region(row.cloud_region) is not None
        and (row.counted != "series" or row.name in series)
        and (row.counted != "gpu" or files.gpu(row.name) is not None)
    ]
    sources = [Source(id=name, what=name) for name in sorted({row.source for row in rows})]
    return with_prices(files, [_line(row) for row in rows], sources)


def _line(row: CloudPriceRow) -> PriceLine:
    on_demand, spot = (
        Decimal(row.on_demand_nanodollars) / NANO,
        Decimal(row.spot_nanodollars) / NANO,
    )
    where: dict[str, Any] = {
        "region": row.cloud_region,
        "read_on": row.read_at.date(),
        "source": row.source,
    }
    match row.counted:
        case "series":
            return SeriesPrice(
                series=row.name, on_demand_usd_per_cpu=on_demand, spot_usd_per_cpu=spot, **where
            )
        case "gpu":
            return GpuPrice(gpu_type=row.name, on_demand_usd=on_demand, spot_usd=spot, **where)
    return DiskPrice(
        disk=DiskKind(row.name),
        on_demand_usd_per_gb_month=on_demand,
        spot_usd_per_gb_month=spot,
        **where,
    )


def keep_prices(session: Session, kind: str, lines: Iterable[PriceLine], at: datetime) -> int:
    """Store prices, and return how many. A part without a price in `lines` keeps its last one."""
    kept = 0
    for line in lines:
        counted, name, on_demand, spot = _counted(line)
        row = CloudPriceRow(
            provider_kind=kind,
            counted=counted,
            name=name,
            cloud_region=line.region,
            on_demand_nanodollars=int(on_demand * NANO),
            spot_nanodollars=int(spot * NANO),
            source=line.source,
            read_at=at,
        )
        session.merge(row)
        kept += 1
    return kept


def _counted(line: PriceLine) -> tuple[str, str, Decimal, Decimal]:
    match line:
        case SeriesPrice():
            return "series", line.series, line.on_demand_usd_per_cpu, line.spot_usd_per_cpu
        case GpuPrice():
            return "gpu", line.gpu_type, line.on_demand_usd, line.spot_usd
        case DiskPrice():
            dollars = line.on_demand_usd_per_gb_month, line.spot_usd_per_gb_month
            return "disk", line.disk, *dollars
