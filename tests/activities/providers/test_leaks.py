"""Of many machines whose making goes wrong in every way, each is found again, and none is left."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from activities.providers.base import CapacityExhausted, Driver, RequestRefused, Unavailable
from activities.providers.json_api import JsonApi
from activities.providers.runpod.driver import RunPodMachines
from activities.providers.runpod.session import RunPodSession
from activities.providers.vastai.driver import VastMachines
from activities.providers.vastai.limits import Limiter
from activities.providers.vastai.session import VastSession
from activities.settings import settings
from tests.doubles.rented.double import RentedDouble
from tests.doubles.rented.faults import FaultKind
from tests.doubles.runpod.double import API_KEY as RUNPOD_KEY
from tests.doubles.runpod.double import RunPodDouble
from tests.doubles.vastai.double import API_KEY as VASTAI_KEY
from tests.doubles.vastai.double import VastDouble
from tests.doubles.vastai.market import Offer
from workflows.contracts.machines import MachineOffer, MachineSpec
from workflows.contracts.statuses import MachineState

MACHINES = 20
MOST_TRIES = 6
PROVIDER = "prv-01abc"
SPEC = MachineSpec(lifetime_s=3600, tags={"region": "reg-1"}, image="image:1", disk_size_gb=20)
WAYS = {
    "lost replies": (FaultKind.LOST_REPLY, 2),
    "errors after it was done": (FaultKind.ERROR_AFTER, 2),
    "lost requests": (FaultKind.LOST_REQUEST, 3),
    "offers that are gone": (FaultKind.NO_CAPACITY, 3),
}
MORE_WAYS = {
    "refusals that leave something": (FaultKind.FAILED_BUT_MADE, 3),
    "rentals that only wait": (FaultKind.SCHEDULED, 3),
}


@dataclass(frozen=True)
class Rented:
    """A double, its driver, the offer of a machine by its number, and the making call's name."""

    double: RentedDouble
    driver: Driver
    offer: Callable[[int], MachineOffer]
    making: str
    left: Callable[[], int]


@pytest.fixture(autouse=True)
def own_settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("BASELOAD_SECRETS_KEY", "11" * 32)
    settings.cache_clear()
    yield
    settings.cache_clear()


@pytest.fixture
def runpod() -> Iterator[Rented]:
    with RunPodDouble() as double:
        double.limits.quotas = {}
        api = JsonApi(double.url, RUNPOD_KEY)
        gpu = "NVIDIA L4"
        double.catalogue.usual_free = 1000
        yield Rented(
            double,
            RunPodMachines(RunPodSession(api), PROVIDER),
            lambda number: offer_of("secure", gpu),
            "pods.create",
            lambda: len(double.pods.by_id),
        )
        api.close()


@pytest.fixture
def vastai() -> Iterator[Rented]:
    with VastDouble() as double:
        for number in range(MACHINES):
            double.market.add(Offer(8000000 + number, "L4", 1, 23034, 0.2))
        api = JsonApi(double.url, VASTAI_KEY)
        limiter = Limiter(double.clock.now, double.clock.advance)
        yield Rented(
            double,
            VastMachines(VastSession(api, limiter), PROVIDER),
            lambda number: offer_of("bg", str(8000000 + number)),
            "asks.accept",
            lambda: len(double.instances.by_id),
        )
        api.close()


def offer_of(zone: str, number: str) -> MachineOffer:
    return MachineOffer(
        zone=zone, machine_type="x-1", gpu_type="L4", gpu_count=1, microcredits_per_hour=390_000,
        provider_offer_id=number,
    )  # fmt: skip


def name_of(number: int) -> str:
    return f"baseload-lea-{number}"


def make_until_done(rented: Rented, number: int) -> None:
    """As a lease does: again and again, whatever has come of it so far."""
    offer = rented.offer(number)
    for _ in range(MOST_TRIES):
        try:
            rented.driver.create(name_of(number), offer, SPEC)
        except (Unavailable, CapacityExhausted, RequestRefused):
            continue
        return
    raise AssertionError(f"{name_of(number)}: not made in {MOST_TRIES} tries")


def none_is_made_twice_or_left(rented: Rented, kind: FaultKind, every: int) -> None:
    rented.double.fault(kind, rented.making, every=every, times=None)
    for number in range(MACHINES):
        make_until_done(rented, number)
    owned = rented.driver.list_owned()
    assert {each.seen.state for each in owned} <= {MachineState.MAKING, MachineState.RUNNING}
    names = [each.machine_name for each in owned]
    assert sorted(names) == sorted(map(name_of, range(MACHINES)))
    assert rented.left() == MACHINES
    for number in range(MACHINES):
        rented.driver.terminate(name_of(number), rented.offer(number).zone)
    assert rented.left() == 0
    assert rented.double.meter.running() == []
    assert rented.double.faults.count()[kind] > 0


@pytest.mark.parametrize("way", WAYS)
def test_none_of_twenty_pods_is_made_twice_or_left(runpod: Rented, way: str) -> None:
    none_is_made_twice_or_left(runpod, *WAYS[way])


@pytest.mark.parametrize("way", [*WAYS, *MORE_WAYS])
def test_none_of_twenty_instances_is_made_twice_or_left(vastai: Rented, way: str) -> None:
    none_is_made_twice_or_left(vastai, *{**WAYS, **MORE_WAYS}[way])
