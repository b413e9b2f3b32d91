"""The interface of a provider kind, and of the driver of its machines.

A machine in the calls of its driver:

    offers ─► find by name ─► create ─► find: making ─► running ─► terminate ─► find: None
                 └── exists already ─────────┘                        └─ repeated until then ─┘

Besides success, every call has four outcomes, one exception each:

    Unavailable          the outcome is unknown: retry, and look for the resource first
    CapacityExhausted    no capacity here and now: try another offer, and remember the scope
    RequestRefused       the provider refuses the request: a person reads its message
    NotYet               the operation still runs: retry later
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import ClassVar, Protocol, TypeVar

from workflows.contracts import errors
from workflows.contracts.machines import (
    MachineNotification,
    MachineObservation,
    MachineOffer,
    MachineSpec,
    RentalOffer,
)
from workflows.contracts.providers import Check, CloudResource
from workflows.contracts.quotas import Quota
from workflows.contracts.statuses import ProviderKind
from workflows.rules.catalogue.clouds import CloudCatalogue
from workflows.rules.catalogue.permanent_machines import StorageClasses
from workflows.rules.catalogue.price_lists import PriceList

Capability = TypeVar("Capability")


class ProviderError(Exception):
    """An answer of a provider other than success, with a message for people."""

    kind: ClassVar[str]
    """The error type that workflows know, see `workflows/contracts/errors.py`."""

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        """After how long the provider wants to be asked again; None: it has not said."""


class Unavailable(ProviderError):  # noqa: N818 - an answer, not a mistake
    """The provider did not answer, or its answer was lost: the request may have succeeded."""

    kind = errors.UNAVAILABLE


class CapacityExhausted(ProviderError):  # noqa: N818
    """The provider has no capacity there, or our quota is used up: nothing was created."""

    kind = errors.CAPACITY_EXHAUSTED


class RequestRefused(ProviderError):  # noqa: N818
    """The provider refuses the request, and will refuse a retry: nothing was created."""

    kind = errors.REQUEST_REFUSED


class NotYet(ProviderError):  # noqa: N818
    """The operation still runs; nothing is wrong."""

    kind = errors.NOT_YET


class KeyMistakeError(ValueError):
    """A mistake in a key: the field and the rule that it breaks, never the value."""

    def __init__(self, field_name: str, rule: str) -> None:
        super().__init__(f"{field_name}: {rule}")
        self.field = field_name
        self.rule = rule


class Credentials(Protocol):
    """A well-formed key of a provider; only the provider can say whether the key works."""

    @property
    def project_id(self) -> str:
        """The project to which the key gives access; an account enables a project once."""
        ...

    @property
    def shown(self) -> dict[str, str]:
        """The parts that are not secret: `project_id`, `service_account`, `key` (its id's end)."""
        ...


@dataclass(frozen=True)
class CredentialsReader:
    """The parser of the keys of one provider kind."""

    read: Callable[[str], Credentials]
    """Parse the content of a key file. Raises: KeyMistakeError, with the first mistake."""
    what: str
    """What a person has to give, such as `the JSON of a service-account key`."""
    field: str = "api_key"
    """The name of the key in the store, under its kind."""


class CloudProject(Protocol):
    """A provider's project, account or tenancy in a cloud. Its methods block and may be repeated.

    Raises: every method Unavailable, RequestRefused.
    """

    def make(self, resource: str) -> CloudResource: ...

    def remove(self, resource: str) -> CloudResource: ...


class CloudRegionDriver(Protocol):
    """One region of a cloud, used with a provider's key. Its methods block and may be repeated.

    Raises: every method Unavailable, RequestRefused.
    """

    def make(self, resource: str) -> CloudResource: ...

    def remove(self, resource: str) -> CloudResource: ...


class OwnedMachine(Protocol):
    """A machine at a provider that carries our ownership label."""

    @property
    def machine_name(self) -> str: ...

    @property
    def zone(self) -> str: ...

    @property
    def seen(self) -> MachineObservation:
        """The machine's observation from the list, without its host key."""
        ...


class Driver(Protocol):
    """The driver of one provider's machines. Every method blocks, has a timeout, may be repeated.

    Raises: every method any of the four exceptions of this module.
    """

    def find(self, name: str, zone: str) -> MachineObservation | None:
        """The machine with this name, None without one.

        The read is consistent: it finds a machine that was just created.
        """
        ...

    def create(self, name: str, offer: MachineOffer, spec: MachineSpec) -> MachineObservation:
        """Create a machine, after `find` found none. The machine may still be `making` on return.

        The machine carries the offer's label. A machine that has the name already is returned.
        """
        ...

    def terminate(self, name: str, zone: str) -> str:
        """Request the termination of a machine and all that was created with it.

        Silent when the machine does not exist. However late the provider acts on the request, a
        newer machine with the same name is not terminated.
        The answer is empty, or a remark on an unusual request, which an event shows to people.
        """
        ...

    def billed_period(self, name: str, zone: str, machine_id: str | None) -> MachineObservation:
        """The start and the end of billing of a machine that is gone, as far as they are known.

        machine_id: the provider's own; without it, the last machine there that had the name.
        """
        ...

    def list_owned(self) -> Sequence[OwnedMachine]:
        """Every machine that carries our ownership label, whatever state it is in."""
        ...


@dataclass(frozen=True)
class Notification:
    """One message of a provider about one of its machines.

    A message may arrive twice, late, and again until it is settled.
    receipt: settles the message; id: the same at each delivery; machine_name, content: None when
    the message is unreadable, or irrelevant for the machine's lease.
    """

    receipt: str
    id: str
    machine_name: str | None = None
    content: MachineNotification | None = None


class NotificationFeed(Protocol):
    """The feed of notifications that a provider sends about its machines.

    The feed is made, used and closed on one event loop. Every wait can be cancelled at once.
    Raises: every method Unavailable, RequestRefused.
    """

    async def next(self) -> Sequence[Notification]:
        """The notifications that have arrived; empty when none arrives for about a minute."""
        ...

    async def settle(self, receipts: Sequence[str]) -> None:
        """Acknowledge messages, so that the provider does not deliver them again."""
        ...

    async def close(self) -> None: ...


FROM_FILES = ("catalogue", "storage_classes")
"""The capabilities of a kind that need none of its modules."""


@dataclass(frozen=True)
class Bootstrap:
    """What a program needs by which a machine lets its region in and announces itself.

    api_url: where the platform's API answers; public_key: the line of an authorized_keys file;
    token: the one-time token of the announcement.
    """

    api_url: str
    public_key: str
    token: str = field(repr=False)


@dataclass(frozen=True)
class Kind:
    """A provider kind with its capabilities; None for each capability that the kind lacks.

    The kind's traits, for rules and workflows, are in `workflows/rules/catalogue/providers.py`.
    """

    kind: ProviderKind
    checks: Callable[[str], tuple[Check, ...]]
    """Runs the checks of a provider, by its id; each check says what was found and how to fix it.
    Blocking; changes nothing."""
    modules: tuple[str, ...] = ()
    """Modules of the extra with the kind's name; what uses them loads them on first use."""
    credentials: CredentialsReader | None = None
    project: Callable[[str], CloudProject] | None = None
    """The project of a provider, by the provider's id."""
    region: Callable[[str, str], CloudRegionDriver] | None = None
    """The driver of a region, by the provider's id and the cloud's name of the region."""
    driver: Callable[[str], Driver] | None = None
    """The driver of a provider's machines, by the provider's id."""
    notifications: Callable[[str], Callable[[], NotificationFeed]] | None = None
    """Prepares the feed of a provider; the function that it returns makes the feed, on the event
    loop that uses the feed. Blocking."""
    quotas: Callable[[str, str], tuple[Quota, ...]] | None = None
    """The quotas, by a provider's id and a cloud region. Blocking.
    Raises: Unavailable, RequestRefused."""
    catalogue: Callable[[], CloudCatalogue] | None = None
    """The catalogue, read from the kind's files."""
    storage_classes: Callable[[], StorageClasses] | None = None
    offers: Callable[[str], tuple[RentalOffer, ...]] | None = None
    """The rental offers of a marketplace at this moment, by a provider's id, in place of a
    catalogue. Blocking. Raises: Unavailable, RequestRefused."""
    offer: Callable[[str, MachineOffer], RentalOffer | None] | None = None
    """One of these offers as it is sold at this moment, by a provider's id and the offer as it was
    chosen; None: it is not sold any more. Without this capability a machine is rented by what was
    read before. Blocking. Raises: Unavailable, RequestRefused."""
    prices: Callable[[str], PriceList] | None = None
    """The cloud's current prices, read with a provider's key; without this capability the prices of
    the files count. Blocking. Raises: Unavailable, RequestRefused."""
    bootstrap: Callable[[Bootstrap], str] | None = None
    """The text of the program that its user runs on a machine, so that the machine announces
    itself."""

    def missing(self) -> list[str]:
        """The modules of the kind that are not installed here."""
        return [name for name in self.modules if not _is_installed(name)]

    def required(self, name: str, capability: Capability | None) -> Capability:
        """The capability.

        Raises: RequestRefused, when the kind lacks the capability, or what asks the provider lacks
        its packages.
        """
        if capability is None:
            raise RequestRefused(f"provider kind {self.kind}: asked {name}, has none")
        if name not in FROM_FILES and (missing := self.missing()):
            raise RequestRefused(
                f"provider kind {self.kind}: asked {name}, the server has not got "
                f"{', '.join(missing)}: install baseload[{self.kind}] there"
            )
        return capability


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # A package around it is missing.
        return False
