"""Prices: what a GPU-hour costs is in dated tables, by class."""

from datetime import UTC, datetime, timedelta

import pytest

from workflows.rules.billing import usage_fees
from workflows.rules.billing.usage_fees import FeeTable, gpu_hour_fee, usage_rates

NOW = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("gpu_type", "fee"),
    [
        ("RTX4090", 50_000),
        ("GeForce GTX 1080", 50_000),
        ("Radeon RX 7900 XTX", 50_000),
        ("Quadro RTX 8000", 100_000),
        ("RTX A6000", 100_000),
        ("Radeon Pro W7900", 100_000),
        ("Tesla P40", 250_000),
        ("A100", 250_000),
        ("Instinct MI300X", 250_000),
    ],
)
def test_the_class_of_a_gpu_sets_its_fee(gpu_type: str, fee: int) -> None:
    assert gpu_hour_fee(gpu_type, NOW) == fee


def test_a_worker_pays_for_its_gpus_and_its_cores() -> None:
    rates = usage_rates("A100", 4, 8, NOW, cpu_core_hour=1_000)
    assert rates.microcredits_per_hour == 4 * 250_000 + 8 * 1_000


def test_a_worker_without_gpus_pays_for_its_cores_alone() -> None:
    assert usage_rates("A100", 0, 8, NOW, cpu_core_hour=1_000).microcredits_per_hour == 8_000
    assert usage_rates(None, 0, 8, NOW, cpu_core_hour=0).microcredits_per_hour == 0


def test_a_worker_without_gpus_pays_no_fee_for_any() -> None:
    assert usage_rates("A100", 0, 8, NOW, cpu_core_hour=0).microcredits_per_gpu_hour == 0
    assert usage_rates(None, 2, 8, NOW, cpu_core_hour=0).microcredits_per_gpu_hour == 0


@pytest.fixture
def later_fees(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second fee table, in force from 2027 on."""
    later = FeeTable(datetime(2027, 1, 1, tzinfo=UTC), {"datacenter": 300_000})
    monkeypatch.setattr(usage_fees, "USAGE_FEES", (*usage_fees.USAGE_FEES, later))


@pytest.mark.usefixtures("later_fees")
def test_the_fee_in_force_is_taken_and_a_new_one_from_its_first_instant_on() -> None:
    first = datetime(2027, 1, 1, tzinfo=UTC)
    assert gpu_hour_fee("A100", first - timedelta(microseconds=1)) == 250_000
    assert gpu_hour_fee("A100", first) == 300_000


@pytest.mark.usefixtures("later_fees")
def test_an_instant_before_every_table_is_refused() -> None:
    first = datetime(2020, 1, 1, tzinfo=UTC)
    assert gpu_hour_fee("A100", first) == 250_000
    with pytest.raises(ValueError, match="the first are of 2020-01-01"):
        gpu_hour_fee("A100", first - timedelta(microseconds=1))
