"""An offer of a marketplace is read again before a machine is rented by it, once for a while."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlmodel import select
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.db import tables
from activities.db.session import Database
from activities.placement.cloud_market import market
from activities.providers.base import ProviderError, Unavailable
from activities.providers.machines import create_machine
from activities.providers.rental_offers import keep_offers
from activities.settings import settings
from tests.activities.placement.test_rental_market import PRICE, add_marketplace, rental
from tests.activities.providers.fake_driver import RentedDriver
from tests.activities.providers.kinds import kind_with
from tests.activities.rows import NOW, add_payer
from workflows.contracts import errors
from workflows.contracts.machines import MachineOffer, MachineSpec, RentalOffer
from workflows.contracts.statuses import ProviderKind
from workflows.effects.machines import CreateMachine


class Marketplace:
    """What one marketplace sells now, and how often it was asked."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.driver = RentedDriver()
        self.sold: RentalOffer | ProviderError | None = rental()
        self.asked: list[str] = []
        with database.write() as session:
            self.region = add_marketplace(session, add_payer(session))

    def read(self, *offers: RentalOffer, age_s: float = 0) -> None:
        """Keep these offers as read so long ago."""
        at = datetime.now(UTC) - timedelta(seconds=age_s)
        with self.database.write() as session:
            keep_offers(session, self.region.provider_id, offers, at)

    def offer(self, _: str, chosen: MachineOffer) -> RentalOffer | None:
        self.asked.append(chosen.zone)
        if isinstance(self.sold, ProviderError):
            raise self.sold
        return self.sold

    async def create(self, cap: int | None = None) -> Any:
        command = CreateMachine(
            lease_id="lea-1",
            provider_id=self.region.provider_id,
            provider_kind=ProviderKind.RUNPOD,
            machine_name="baseload-lea-1",
            zone="community",
            offer=rental().machine,
            spec=MachineSpec(lifetime_s=3600, disk_size_gb=73),
            price_cap_microcredits_per_hour=cap,
        )
        return await ActivityEnvironment().run(create_machine, command)

    async def refusal(self, cap: int | None = None) -> ApplicationError:
        with pytest.raises(ApplicationError) as caught:
            await self.create(cap)
        assert self.driver.made.total() == 0
        return caught.value

    @property
    def prices(self) -> list[int]:
        """Of the offers that placement compares."""
        with self.database.read() as session:
            rows = session.exec(select(tables.RentalOfferRow)).all()
            found = market(session, NOW)
            offer_ids = [f"{self.region.id}/{row.offer_id}" for row in rows]
            return [found.offer(each).microcredits_per_hour for each in offer_ids]


@pytest.fixture
def marketplace(migrated: Database) -> Iterator[Marketplace]:
    made = Marketplace(migrated)
    capabilities = {"driver": lambda _: made.driver, "offer": made.offer}
    with kind_with(ProviderKind.RUNPOD, **capabilities):
        yield made


async def test_an_offer_that_was_read_a_moment_ago_is_not_read_again(
    marketplace: Marketplace,
) -> None:
    marketplace.read(rental(), age_s=settings().rental_offer_valid_s - 30)
    await marketplace.create()
    assert (marketplace.asked, marketplace.driver.made.total()) == ([], 1)


async def test_an_older_one_is_read_once_and_its_price_is_what_placement_compares(
    marketplace: Marketplace,
) -> None:
    marketplace.read(rental(), rental("secure", 3 * PRICE), age_s=120)
    marketplace.sold = rental(price=2 * PRICE)
    await marketplace.create(cap=3 * PRICE)
    assert sorted(marketplace.prices) == [2 * PRICE, 3 * PRICE]
    marketplace.driver.machines.clear()
    await marketplace.create(cap=3 * PRICE)
    assert marketplace.asked == ["community"], "the first answer is a moment old"
    assert marketplace.driver.made.total() == 2


async def test_a_machine_that_is_there_already_is_found_whatever_is_sold_now(
    marketplace: Marketplace,
) -> None:
    marketplace.read(rental(), age_s=120)
    marketplace.driver.lost_replies = 1
    with pytest.raises(ApplicationError):
        await marketplace.create()
    marketplace.sold = None
    await marketplace.create()
    assert (len(marketplace.asked), marketplace.driver.made.total()) == (1, 1)


async def test_one_that_is_gone_is_not_rented_nor_chosen_again(marketplace: Marketplace) -> None:
    marketplace.read(rental(), rental("secure", 3 * PRICE), age_s=120)
    marketplace.sold = None
    refusal = await marketplace.refusal()
    assert refusal.type == errors.CAPACITY_EXHAUSTED
    assert "NVIDIA A100 80GB PCIe of 1×A100-80GB in community is not offered any more" in str(
        refusal
    )
    assert marketplace.prices == [3 * PRICE]


async def test_one_that_costs_more_than_the_cap_now_is_not_rented_and_both_prices_are_said(
    marketplace: Marketplace,
) -> None:
    marketplace.read(rental(), age_s=120)
    marketplace.sold = rental(price=2 * PRICE)
    refusal = await marketplace.refusal(cap=2 * PRICE)
    assert (refusal.type, refusal.non_retryable) == (errors.PRICE_CAP, True)
    now, before, cap = (f"{price} credits an hour" for price in ("2.39", "1.19", "2.38"))
    assert f"costs {now} now and cost {before} when it was chosen, the cap is {cap}" in str(refusal)
    assert marketplace.prices == [2 * PRICE]


async def test_where_it_cannot_be_read_the_creation_decides(marketplace: Marketplace) -> None:
    marketplace.read(rental(), age_s=120)
    marketplace.sold = Unavailable("search_quota_exceeded")
    await marketplace.create()
    assert (len(marketplace.asked), marketplace.driver.made.total()) == (1, 1)
