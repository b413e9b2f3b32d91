"""What RunPod offers, as its catalogue says it at this moment."""

import pytest

from activities.providers.base import Unavailable
from activities.providers.runpod.catalogue import GIB, offer_of, offers_of
from tests.activities.providers.runpod.conftest import Sessions
from tests.doubles.runpod.catalogue import GpuType
from tests.doubles.runpod.double import RunPodDouble
from workflows.contracts.machines import RentalOffer


@pytest.fixture
def offers(runpod: RunPodDouble, session_with: Sessions) -> dict[tuple[str, int, str], RentalOffer]:
    runpod.catalogue.free["NVIDIA L4", "SECURE"] = 1
    runpod.catalogue.free["NVIDIA B200", "SECURE"] = 0
    return {
        (each.machine.gpu_type or "", each.machine.gpu_count, each.machine.zone): each
        for each in offers_of(session_with(runpod))
    }


Offers = dict[tuple[str, int, str], RentalOffer]


def test_an_offer_has_our_name_and_runpods_own(offers: Offers) -> None:
    offer = offers["H100", 2, "community"]
    assert offer.machine.provider_offer_id == "NVIDIA H100 80GB HBM3"
    assert offer.machine.microcredits_per_hour == 2 * 2_690_000
    assert offer.memory_bytes == 2 * 80 * GIB


def test_a_name_with_two_blanks_is_mapped_and_asked_for_as_it_is(offers: Offers) -> None:
    assert offers["A30", 1, "community"].machine.provider_offer_id == "NVIDIA  A30"


def test_what_a_cloud_does_not_have_is_not_offered(offers: Offers) -> None:
    assert ("L4", 1, "secure") in offers
    assert ("L4", 2, "secure") not in offers, "one is free"
    assert ("L4", 1, "community") not in offers, "it is in the secure cloud alone"
    assert ("B200", 1, "secure") not in offers, "none is free"
    assert ("RTX4090", 8, "community") not in offers, "its machines have four"


def test_every_offer_is_another_one_with_a_label_of_its_own(offers: Offers) -> None:
    machines = [each.machine for each in offers.values()]
    assert len({machine.scope for machine in machines}) == len(machines)
    assert len({machine.label for machine in machines}) == len(machines)


def test_reading_takes_one_request_for_each_cloud_and_number(
    runpod: RunPodDouble, offers: Offers
) -> None:
    assert runpod.calls == ["gpus.list"] * 16


def test_offers_that_cannot_be_read_are_unavailable(
    runpod: RunPodDouble, session_with: Sessions
) -> None:
    runpod.away(60)
    with pytest.raises(Unavailable):
        list(offers_of(session_with(runpod)))


def test_one_offer_is_read_with_one_request_as_it_is_now(
    runpod: RunPodDouble, session_with: Sessions, offers: Offers
) -> None:
    chosen, before = offers["H100", 2, "community"].machine, len(runpod.calls)
    runpod.catalogue.reprice("NVIDIA H100 80GB HBM3", "COMMUNITY", 3.0)
    found = offer_of(session_with(runpod), chosen)
    assert found is not None
    assert (found.machine.scope, found.machine.microcredits_per_hour) == (chosen.scope, 6_000_000)
    runpod.catalogue.free["NVIDIA H100 80GB HBM3", "COMMUNITY"] = 1
    assert offer_of(session_with(runpod), chosen) is None, "one is free, and two were chosen"
    assert len(runpod.calls) == before + 2


def test_a_model_that_the_catalogue_does_not_know_is_offered_under_its_own_name(
    runpod: RunPodDouble, session_with: Sessions
) -> None:
    runpod.catalogue.types["NVIDIA  RTX 9999"] = GpuType("NVIDIA  RTX 9999", "9999", 64, 1.0, 0.5)
    found = [each.machine for each in offers_of(session_with(runpod)) if "9999" in each.offer_id]
    assert {each.gpu_type for each in found} == {"NVIDIA RTX 9999"}
    assert {each.provider_offer_id for each in found} == {"NVIDIA  RTX 9999"}
