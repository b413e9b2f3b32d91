"""The tests' own driver of machines keeps to what every driver keeps to."""

import pytest

from tests.activities.leases.rows import OFFER
from tests.activities.providers.driver_contract import DriverContract, Market
from tests.activities.providers.fake_driver import RentedDriver


class TestRentedDriver(DriverContract):
    @pytest.fixture
    def market(self) -> Market:
        driver = RentedDriver()

        def change(name: str, value: object) -> None:
            setattr(driver, name, value)

        return Market(
            driver=driver,
            offer=OFFER,
            another=OFFER.model_copy(update={"spot": True}),
            lose_a_reply=lambda: change("lost_replies", 1),
            sell_out=lambda: change("is_sold_out", True),
            refuse=lambda: change("refuses", "the image does not exist"),
            go_away=lambda: change("is_away", True),
            made=driver.made.total,
        )
