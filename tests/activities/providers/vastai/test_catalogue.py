"""What Vast.ai offers, as a search says it at this moment."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, cast

import pytest

from activities.providers.base import Unavailable
from activities.providers.vastai.catalogue import MOST_ALIKE, gpu_type_of, offer_of, offers_of
from activities.providers.vastai.session import VastSession
from tests.activities.providers.vastai.conftest import Sessions
from tests.doubles.vastai.double import VastDouble
from tests.doubles.vastai.market import Offer
from workflows.contracts.machines import RentalOffer


@dataclass(frozen=True)
class Asks:
    """A session whose search finds these asks."""

    found: list[Mapping[str, Any]]

    def search(self, filters: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        return self.found


def read(vastai: VastDouble, session_with: Sessions) -> dict[str, RentalOffer]:
    return {each.machine.provider_offer_id: each for each in offers_of(session_with(vastai))}


def test_offers_are_what_can_be_reached_and_trusted_the_cheapest_first(
    vastai: VastDouble, session_with: Sessions
) -> None:
    found = read(vastai, session_with)
    rtx4090 = [number for number, each in found.items() if each.machine.gpu_type == "RTX4090"]
    assert rtx4090 == ["7000002", "7000001", "7000003"]
    assert "7000004" not in found, "it is not verified"
    assert "7000005" not in found, "it has no ports"
    assert "7000009" not in found, "it has no space"
    assert vastai.calls == ["asks.search"]


def test_an_offer_has_the_price_without_its_disk_and_the_price_of_a_disk(
    vastai: VastDouble, session_with: Sessions
) -> None:
    offer = read(vastai, session_with)["7000002"]
    assert (offer.machine.zone, offer.machine.gpu_count) == ("bg", 1)
    assert offer.machine.microcredits_per_hour == 310_000
    assert offer.disk_microcredits_per_gb_month == 150_000
    assert offer.cpu_count == 16
    assert offer.memory_bytes == 20_000 // 4 * 1024**2


def test_a_country_that_is_not_stated_is_any(vastai: VastDouble, session_with: Sessions) -> None:
    found = read(vastai, session_with)
    assert {number: found[number].machine.zone for number in ("7000001", "7000003", "7000007")} == {
        "7000001": "us",
        "7000003": "any",
        "7000007": "us",
    }


def test_of_many_offers_alike_the_cheapest_are_kept(
    vastai: VastDouble, session_with: Sessions
) -> None:
    for number in range(20):
        vastai.market.add(Offer(8000000 + number, "L4", 1, 23034, 0.2 + number / 1000))
    kept = [each for each in read(vastai, session_with) if each.startswith("80000")]
    assert kept == [str(8000000 + number) for number in range(MOST_ALIKE)]


def test_every_offer_is_another_one_with_a_label_of_its_own(
    vastai: VastDouble, session_with: Sessions
) -> None:
    machines = [each.machine for each in read(vastai, session_with).values()]
    assert len({machine.scope for machine in machines}) == len(machines)
    assert len({machine.label for machine in machines}) == len(machines)


@pytest.mark.parametrize(
    ("name", "memory_mib", "gpu_type"),
    [
        ("A100 SXM4", 40960, "A100"),
        ("A100 PCIE", 40536, "A100"),
        ("A100 SXM4", 81920, "A100-80GB"),
        ("A100 PCIE", 80994, "A100-80GB"),
        ("Tesla V100", 16384, "V100"),
        ("Tesla V100", 32768, "V100-32GB"),
        ("H200", 143771, "H200"),
        ("H100 SXM", 81559, "H100"),
        ("RTX 6000Ada", 49140, "RTX6000Ada"),
        ("RTX PRO 6000 WS", 97887, "RTXPRO6000"),
        ("Q RTX 8000", 49152, "QuadroRTX8000"),
        ("RTX 4090", 49140, None),
        ("RTX 4090", None, None),
    ],
)
def test_a_name_and_a_memory_make_one_type_of_ours(
    name: str, memory_mib: int | None, gpu_type: str | None
) -> None:
    assert gpu_type_of(name, memory_mib) == gpu_type


def test_offers_that_cannot_be_read_are_unavailable(
    vastai: VastDouble, session_with: Sessions
) -> None:
    vastai.limits.searches = 0
    with pytest.raises(Unavailable, match="search_quota_exceeded"):
        read(vastai, session_with)


def test_one_ask_is_read_with_one_request_as_it_is_now(
    vastai: VastDouble, session_with: Sessions
) -> None:
    chosen = read(vastai, session_with)["7000002"].machine
    vastai.market.offers[7000002].dph_base = 0.5
    found = offer_of(session_with(vastai), chosen)
    assert found is not None
    assert (found.machine.scope, found.machine.microcredits_per_hour) == (chosen.scope, 500_000)
    assert found.most_disk_gb == 500
    vastai.market.offers[7000002].renter = 1
    assert offer_of(session_with(vastai), chosen) is None, "somebody has it"
    assert vastai.calls == ["asks.search"] * 3


def test_a_model_that_the_catalogue_does_not_know_is_offered_under_its_own_name(
    vastai: VastDouble, session_with: Sessions
) -> None:
    vastai.market.add(Offer(8000000, "RTX 9999", 1, 65536, 0.5))
    assert read(vastai, session_with)["8000000"].machine.gpu_type == "RTX 9999"


@pytest.mark.parametrize(
    "field",
    ["gpu_ram", "disk_bw", "disk_space", "cpu_ram", "cpu_cores", "cpu_cores_effective"],
)
@pytest.mark.parametrize("number", ["1e9999999", "1e-9999999", "1e999999999", "-1", "NaN"])
def test_a_number_that_no_machine_has_spoils_no_other_offer(field: str, number: str) -> None:
    ask = Offer(7000001, "RTX 4090", 1, 24564, 0.3).row(0, 0)
    liar = {**ask, "id": 7000002, field: Decimal(number)}
    found = list(offers_of(cast("VastSession", Asks([liar, ask]))))
    assert found[-1].machine.provider_offer_id == "7000001"
    assert all(each.memory_bytes < 2**60 for each in found)


@pytest.mark.parametrize("field", ["id", "num_gpus"])
def test_a_count_that_no_machine_has_is_no_offer(field: str) -> None:
    ask = Offer(7000001, "RTX 4090", 1, 24564, 0.3).row(0, 0)
    assert list(offers_of(cast("VastSession", Asks([{**ask, field: 10**4000}])))) == []
