"""Two installations with one account of a marketplace: neither sees or ends a machine of the other,
even where the names of one begin with those of the other."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from temporalio.testing import ActivityEnvironment

from activities.db import tables
from activities.db.session import Database
from activities.leases import reconciliation
from activities.leases.orphaned_machines import terminate_orphaned_machine
from activities.leases.reconciliation import reconcile_machines
from activities.providers.base import Driver
from activities.providers.image_machines import marketplace_name, own_machine_name
from activities.providers.registry import driver_of, kind_of
from activities.providers.vastai import session as vastai_sessions
from activities.providers.vastai.limits import Limiter
from activities.secrets.credentials import own_place, seal_credentials
from activities.settings import settings
from tests.activities.placement.test_rental_market import add_marketplace
from tests.activities.providers.driver_contract import SPEC
from tests.activities.rows import NOW, add_payer
from tests.doubles.runpod.double import API_KEY as RUNPOD_KEY
from tests.doubles.runpod.double import RunPodDouble
from tests.doubles.runpod.fixtures import runpod
from tests.doubles.vastai.double import API_KEY as VASTAI_KEY
from tests.doubles.vastai.double import VastDouble
from tests.doubles.vastai.fixtures import vastai
from workflows.contracts.machines import MachineOffer, RentalOffer
from workflows.contracts.statuses import ProviderKind
from workflows.effects.machines import TerminateOrphanedMachine
from workflows.effects.reconciliation import MachinesReconciled, ReconcileMachines

__all__ = ["runpod", "vastai"]
NAMES = ("baseload-lea-1", "baseload-lea-11", "baseload-lea-1-1")
"""The same names in both installations, each the beginning of the next or nearly so."""


@dataclass(frozen=True)
class Account:
    """One account of a marketplace with two providers, of two installations."""

    kind: ProviderKind
    offers: tuple[MachineOffer, ...]
    there: Callable[[], set[str]]
    """The names of all machines at the marketplace itself."""
    ours: str
    theirs: str

    @property
    def driver(self) -> Driver:
        return driver_of(self.kind, self.ours)

    def rent(self, provider_id: str, *names: str) -> None:
        for name in names:
            number = len(self.there())
            driver_of(self.kind, provider_id).create(name, self.offers[number], SPEC)

    def of_theirs(self, *names: str) -> set[str]:
        return {marketplace_name(name, self.theirs) for name in names}


@pytest.fixture
def dialect() -> str:
    return "sqlite"


@pytest.fixture(autouse=True)
def own_settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("BASELOAD_SECRETS_KEY", "11" * 32)
    settings.cache_clear()
    yield
    settings.cache_clear()


def _enabled(database: Database, kind: ProviderKind, key: str, owner: str) -> str:
    """A ready provider with this key, in an account of its own; its id."""
    with database.write() as session:
        account = add_payer(session, owner)
        region = add_marketplace(session, account)
        provider = session.get_one(tables.Provider, region.provider_id)
        provider.kind = region.provider_kind = kind
        place = own_place(kind, provider.id)
        provider.credentials = seal_credentials(session, account.id, place, key, NOW)
    return provider.id


@pytest.fixture(params=[ProviderKind.RUNPOD, ProviderKind.VASTAI])
def account(request: pytest.FixtureRequest, migrated: Database) -> Account:
    found: Account = request.getfixturevalue(f"at_{request.param}")
    return found


@pytest.fixture
def at_runpod(runpod: RunPodDouble, migrated: Database) -> Account:
    settings.cache_clear()
    kind = ProviderKind.RUNPOD
    ours, theirs = (_enabled(migrated, kind, RUNPOD_KEY, name) for name in ("ada", "bob"))
    offers = tuple(offer.machine for offer in _offers(kind, ours) if offer.machine.gpu_count == 1)
    return Account(
        kind, offers, lambda: {pod.name for pod in runpod.pods.by_id.values()}, ours, theirs
    )


@pytest.fixture
def at_vastai(vastai: VastDouble, migrated: Database, monkeypatch: pytest.MonkeyPatch) -> Account:
    settings.cache_clear()
    limiter = Limiter(vastai.clock.now, vastai.clock.advance)
    monkeypatch.setattr(vastai_sessions, "limiter_of", lambda endpoint, key: limiter)
    kind = ProviderKind.VASTAI
    ours, theirs = (_enabled(migrated, kind, VASTAI_KEY, name) for name in ("ada", "bob"))
    offers = tuple(offer.machine for offer in _offers(kind, ours))
    there = vastai.instances.by_id
    return Account(kind, offers, lambda: {str(each.label) for each in there.values()}, ours, theirs)


def _offers(kind: ProviderKind, provider_id: str) -> tuple[RentalOffer, ...]:
    found = kind_of(kind)
    return found.required("offers", found.offers)(provider_id)


async def reconciled(account: Account) -> MachinesReconciled:
    command = ReconcileMachines(provider_id=account.ours, provider_kind=account.kind)
    found: MachinesReconciled = await ActivityEnvironment().run(reconcile_machines, command)
    return found


def test_each_finds_and_lists_its_own_machines_alone(account: Account) -> None:
    account.rent(account.theirs, *NAMES)
    assert [account.driver.find(name, account.offers[0].zone) for name in NAMES] == [None] * 3
    assert list(account.driver.list_owned()) == []
    account.rent(account.ours, NAMES[0])
    assert [each.machine_name for each in account.driver.list_owned()] == [NAMES[0]]
    assert len(account.there()) == 4, "a name of the other is not taken for ours"


def test_each_ends_its_own_machine_of_a_name_alone(account: Account) -> None:
    account.rent(account.theirs, *NAMES)
    account.rent(account.ours, *NAMES[:2])
    account.driver.terminate(NAMES[0], account.offers[0].zone)
    expected = account.of_theirs(*NAMES) | {marketplace_name(NAMES[1], account.ours)}
    assert account.there() == expected


async def test_a_reconciliation_names_and_ends_no_machine_of_the_other(
    account: Account, notified: list[str]
) -> None:
    account.rent(account.theirs, *NAMES)
    found = await reconciled(account)
    assert (found.released, found.unknown, found.failed) == ((), (), ())
    assert account.there() == account.of_theirs(*NAMES)
    account.rent(account.ours, NAMES[1])
    assert (await reconciled(account)).unknown == (NAMES[1],)
    assert notified == [f"provider/{account.ours}"]


async def test_a_person_who_ends_an_orphaned_machine_ends_no_machine_of_the_other(
    account: Account,
) -> None:
    account.rent(account.theirs, *NAMES)
    account.rent(account.ours, NAMES[0])
    for name in NAMES:
        command = TerminateOrphanedMachine(
            provider_id=account.ours,
            provider_kind=account.kind,
            machine_name=name,
            zone=account.offers[0].zone,
        )
        await ActivityEnvironment().run(terminate_orphaned_machine, command)
    assert account.there() == account.of_theirs(*NAMES)


@pytest.mark.parametrize(
    "name",
    [
        "baseload-lea-1.prv-11",
        "baseload-lea-1.prv-2.prv-1",
        "baseload-lea-1",
        "baseload-.prv-1",
        "Baseload-lea-1.prv-1",
        "mine.prv-1",
        ".prv-1",
    ],
)
def test_a_name_that_the_platform_does_not_make_is_of_none_of_its_machines(name: str) -> None:
    assert own_machine_name(name, "prv-1") is None
    assert own_machine_name("baseload-lea-1.prv-1", "prv-1") == "baseload-lea-1"


@pytest.fixture
def notified(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The workflows that a reconciliation has signalled."""
    found: list[str] = []

    async def note(workflow_id: str, signal: str, argument: object = None) -> bool:
        found.append(workflow_id)
        return True

    monkeypatch.setattr(reconciliation, "tell", note)
    return found
