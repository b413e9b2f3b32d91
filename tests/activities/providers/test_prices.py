"""Prices that a cloud has told: kept, used before the files', and the last good ones stay."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from sqlmodel import Session, select
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.db import tables
from activities.db.session import Database
from activities.placement.cloud_market import market
from activities.providers import price_refresh
from activities.providers.base import RequestRefused, Unavailable
from activities.providers.price_refresh import refresh_prices
from activities.providers.prices import keep_prices, priced_catalogue
from tests.activities.cloud_rows import add_cloud_region
from tests.activities.providers.kinds import kind_with
from tests.activities.rows import NOW, add_payer
from tests.rules.placement.offers import job
from workflows.contracts.providers import PricesState
from workflows.contracts.statuses import ProviderKind
from workflows.effects.providers import PricesRefreshed, RefreshPrices
from workflows.rules.catalogue.price_lists import PriceLine, PriceList
from workflows.rules.catalogue.prices import DiskKind, DiskPrice, GpuPrice, SeriesPrice

GCP = ProviderKind.GCP
LATER = datetime(2027, 1, 2, 3, 4, 5, tzinfo=UTC)


def a100(dollars: str) -> GpuPrice:
    return GpuPrice(
        region="us-central1",
        read_on=LATER.date(),
        source="the cloud itself",
        gpu_type="A100",
        on_demand_usd=Decimal(dollars),
        spot_usd=Decimal("0.5"),
    )


def on_demand(session: Session | None = None) -> int:
    catalogue = priced_catalogue(GCP, session)
    assert catalogue is not None
    machine = catalogue.machine_for("A100", 1, spot=False)
    assert machine is not None
    price = catalogue.price(machine, "us-central1")
    assert price is not None
    return price.on_demand_microcredits_per_hour


def test_what_was_told_comes_before_the_files_until_something_else_is(migrated: Database) -> None:
    before = on_demand()
    with migrated.write() as session:
        assert keep_prices(session, GCP, [a100("3.93391")], LATER) == 1
        assert on_demand(session) == before + 1_000_000
    with migrated.write() as session:
        keep_prices(session, GCP, [a100("4.93391")], LATER + timedelta(days=1))
    assert on_demand() == before + 2_000_000
    with migrated.read() as session:
        (row,) = session.exec(select(tables.CloudPriceRow))
        assert (row.on_demand_nanodollars, row.source) == (4_933_910_000, "the cloud itself")
        assert row.read_at == LATER + timedelta(days=1)


def test_each_kind_of_price_is_kept_and_what_nobody_counts_any_more_is_passed_over(
    migrated: Database,
) -> None:
    where: dict[str, Any] = {"region": "us-east4", "read_on": LATER.date(), "source": "s"}
    series = SeriesPrice(
        series="e2-standard",
        on_demand_usd_per_cpu=Decimal("0.5"),
        spot_usd_per_cpu=Decimal("0.25"),
        **where,
    )
    disk = DiskPrice(
        disk=DiskKind.BOOT,
        on_demand_usd_per_gb_month=Decimal("0.2"),
        spot_usd_per_gb_month=Decimal("0.2"),
        **where,
    )
    gone = series.model_copy(update={"series": "m9-standard"})
    with migrated.write() as session:
        assert keep_prices(session, GCP, [series, disk, gone], LATER) == 3
    catalogue = priced_catalogue(GCP)
    assert catalogue is not None
    found = catalogue.series_price("e2-standard", "us-east4")
    assert found is not None
    assert found.on_demand_usd_per_cpu == Decimal("0.5")
    assert catalogue.boot_disk_microcredits_per_gb_month("us-east4") == 200_000
    assert catalogue.boot_disk_microcredits_per_gb_month("us-central1") == 100_000
    assert catalogue.series_price("m9-standard", "us-east4") is None


def test_placement_plans_with_what_was_told_and_shows_its_day(migrated: Database) -> None:
    with migrated.write() as session:
        account = add_payer(session)
        add_cloud_region(session, account)
        demand = job(gpus=1, account_id=account.id).demand
        (first, *_) = market(session, NOW).fitting(demand)
        today: list[PriceLine] = [a100("9"), first_series(first.offer.machine_type)]
        keep_prices(session, GCP, today, LATER)
        (again, *_) = market(session, NOW).fitting(demand)
    assert first.offer.price_read_on == date(2026, 8, 22)
    assert again.offer.offer_id == first.offer.offer_id
    told = 500_000 + 12 * 10_000
    ssd = first.offer.microcredits_per_hour - (1_434_100 + round(12 * 30_812.5))
    assert again.offer.microcredits_per_hour == pytest.approx(told + ssd, abs=10)


def first_series(machine_type: str) -> SeriesPrice:
    return SeriesPrice(
        series=machine_type.rpartition("-")[0],
        region="us-central1",
        read_on=LATER.date(),
        source="the cloud itself",
        on_demand_usd_per_cpu=Decimal("0.1"),
        spot_usd_per_cpu=Decimal("0.01"),
    )


class Cloud:
    """What a cloud answers about its prices, by provider, and what the providers are told."""

    def __init__(self) -> None:
        self.answers: dict[str, PriceList | Exception] = {}
        self.told: list[tuple[str, str]] = []
        self.asked: list[str] = []

    def read(self, provider_id: str) -> PriceList:
        self.asked.append(provider_id)
        answer = self.answers[provider_id]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def tell(self, workflow_id: str, signal: str, state: PricesState) -> bool:
        assert signal == "prices_state"
        self.told.append((workflow_id.removeprefix("provider/"), state.trouble))
        return True


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cloud]:
    made = Cloud()
    monkeypatch.setattr(price_refresh, "tell", made.tell)
    with kind_with(prices=made.read):
        yield made


def two_providers(database: Database) -> tuple[str, str]:
    with database.write() as session:
        account = add_payer(session)
        first = add_cloud_region(session, account)
        second = add_cloud_region(session, account, "us-east1")
        add_cloud_region(session, account, "us-west1", status="failed")
        ids = sorted([str(first.provider_id), str(second.provider_id)])
    return ids[0], ids[1]


async def refreshed() -> PricesRefreshed:
    found: PricesRefreshed = await ActivityEnvironment().run(
        refresh_prices, RefreshPrices(provider_kind=GCP)
    )
    return found


async def test_a_provider_that_may_not_read_them_is_told_and_the_next_one_is_asked(
    migrated: Database, cloud: Cloud
) -> None:
    first, second = two_providers(migrated)
    cloud.answers = {
        first: RequestRefused("Cloud Billing API has not been used"),
        second: PriceList((a100("9"),), ("T4 in us-central1: spot 2 is dearer",)),
    }
    found = await refreshed()
    assert (found.kept, len(found.rejected)) == (1, 1)
    assert found.refused == (f"{first}: Cloud Billing API has not been used",)
    assert cloud.told == [
        (first, "they cannot be read: Cloud Billing API has not been used"),
        (second, "1 price not valid: T4 in us-central1: spot 2 is dearer"),
    ]
    cloud.answers = {first: PriceList((a100("8"),)), second: PriceList(())}
    assert (await refreshed()).kept == 1
    assert cloud.told[2:] == [(first, "")]


async def test_where_nobody_may_read_them_or_nothing_comes_what_is_known_stays(
    migrated: Database, cloud: Cloud
) -> None:
    first, second = two_providers(migrated)
    with migrated.write() as session:
        keep_prices(session, GCP, [a100("9")], LATER)
    known = on_demand()
    cloud.answers = dict.fromkeys((first, second), RequestRefused("no"))
    assert (await refreshed()).kept == 0
    cloud.answers[first] = Unavailable("no answer")
    with pytest.raises(ApplicationError, match="no answer") as failure:
        await refreshed()
    assert not failure.value.non_retryable
    assert on_demand() == known


async def test_without_a_provider_nobody_is_asked(migrated: Database, cloud: Cloud) -> None:
    with migrated.write() as session:
        add_cloud_region(session, add_payer(session), status="failed")
    assert await refreshed() == PricesRefreshed()
    assert cloud.asked == []
