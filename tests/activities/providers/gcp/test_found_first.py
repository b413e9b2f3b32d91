"""Every creation at a provider looks for the name first, and is not asked for again.

Google itself refuses a second thing of one name, and so does its double; another cloud might make
it. So the requests that create are counted here, refused or not, and not what there is at the end.
"""

from collections import Counter
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.providers.gcp.errors import GoogleUnavailableError
from activities.providers.gcp.project_resources import RESOURCES
from activities.providers.gcp.session import GoogleSession
from activities.providers.gcp.subnetworks import make_subnetwork
from activities.providers.machines import create_machine
from tests.activities.providers.fake_driver import Owned, RentedDriver
from tests.activities.providers.gcp.test_project_resources import without_threads_left
from tests.activities.providers.kinds import kind_with
from tests.activities.providers.test_machines import CREATE
from tests.doubles.gcp.double import GcpDouble
from tests.doubles.gcp.faults import Fault, FaultKind
from workflows.contracts.machines import MachineObservation, MachineOffer, MachineSpec
from workflows.contracts.statuses import ProviderKind
from workflows.rules.catalogue.providers import traits_of

__all__ = ["without_threads_left"]
PROVIDER = "prv-01abc"
CREATES = ("*.insert", "*.create", "pubsub.Create*", "pubsub.SetIamPolicy")
TRIES = 50
"""Far more than an operation needs to end, at one look each."""
Make = Callable[[GoogleSession], str]


def _subnetwork(session: GoogleSession) -> str:
    return make_subnetwork(session, PROVIDER, "us-central1")


def _of_the_provider(name: str) -> Make:
    return lambda session: RESOURCES[name].make(session, PROVIDER)


MAKES: dict[str, Make] = {
    **{name: _of_the_provider(name) for name in RESOURCES},
    "subnetwork": _subnetwork,
}
"""Every cloud resource, each after what it needs."""


@pytest.fixture
def asked(gcp: GcpDouble, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each method that creates something was asked, with what it was asked for."""
    found: Counter[str] = Counter()
    take = gcp.cloud.faults.take

    def taking(among: Any, method: str, name: str) -> Any:
        if among and any(fnmatchcase(method, pattern) for pattern in CREATES):
            found[f"{method} {name}"] += 1
        return take(among, method, name)

    monkeypatch.setattr(gcp.cloud.faults, "take", taking)
    return found


def _made(make: Make, session: GoogleSession) -> str:
    """What is made at last, when what is under way has ended."""
    for _ in range(TRIES):
        try:
            return make(session)
        except GoogleUnavailableError as error:
            last = error
    raise last


def test_every_resource_of_a_provider_and_its_regions_is_asked_for() -> None:
    traits = traits_of(ProviderKind.GCP)
    assert tuple(MAKES) == (*traits.resources, *traits.region_resources)


@pytest.mark.parametrize("name", MAKES)
def test_a_resource_whose_creation_went_unanswered_is_asked_for_once(
    gcp: GcpDouble, google: GoogleSession, asked: Counter[str], name: str
) -> None:
    for earlier in list(MAKES)[: list(MAKES).index(name)]:
        _made(MAKES[earlier], google)
    asked.clear()
    lost = [
        gcp.cloud.faults.add(Fault(FaultKind.LOST_REPLY, pattern, times=1)) for pattern in CREATES
    ]
    with pytest.raises(GoogleUnavailableError):
        MAKES[name](google)
    first = _made(MAKES[name], google)
    assert sum(fault.struck for fault in lost) == 1
    ((method, times),) = asked.items()
    # Compute Engine shows what is being made only when it is made; until then it refuses a second.
    assert times == 1 or method.startswith("compute.")
    asked.clear()
    assert [MAKES[name](google) for _ in range(3)] == [first] * 3
    assert not asked


class GladDriver(RentedDriver):
    """A provider that would make another machine of one name each time that it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: Counter[Owned] = Counter()

    def create(self, name: str, offer: MachineOffer, spec: MachineSpec) -> MachineObservation:
        self.asked[Owned(name, offer.zone)] += 1
        return super().create(name, offer, spec)


@pytest.mark.parametrize("is_lost", [False, True])
async def test_a_machine_is_asked_for_once_whatever_goes_unanswered(is_lost: bool) -> None:
    glad = GladDriver()
    glad.lost_replies = int(is_lost)
    with kind_with(driver=lambda _: glad):
        if is_lost:
            with pytest.raises(ApplicationError, match="cut before the answer"):
                await ActivityEnvironment().run(create_machine, CREATE)
        for _ in range(3):
            await ActivityEnvironment().run(create_machine, CREATE)
    assert glad.asked == {Owned(CREATE.machine_name, CREATE.offer.zone): 1}
