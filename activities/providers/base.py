"""What the platform asks of every kind of provider, and of what drives its machines.

The life of a machine, by whoever drives it:

    offers ─► find by name ─► create ─► find: making ─► running ─► release ─► find: nothing
                 └── there already ──────────┘                        └── asked for until then ──┘

Whatever is asked, there are four answers beside success, one exception each:

    Unavailable          nobody knows what happened: the same is asked again, after a look
    CapacityExhausted    not here and not now: another offer, and the scope is remembered
    RequestRefused       the provider has understood and says no: a person is told its words
    NotYet               it is on its way: the same is asked again later
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeVar

from workflows.contracts import errors
from workflows.contracts.machines import MachineNews, MachineObservation, MachineOffer, MachineSpec
from workflows.contracts.providers import Check, CloudResource
from workflows.contracts.quotas import Quota
from workflows.contracts.statuses import ProviderKind
from workflows.rules.catalogue.clouds import CloudCatalogue
from workflows.rules.catalogue.permanent_machines import StorageClasses
from workflows.rules.catalogue.price_lists import PriceList

Capability = TypeVar("Capability")


class ProviderError(Exception):
    """A provider's answer that is not what was asked for, in words for people."""

    kind: ClassVar[str]
    """As the workflows know it, see `workflows/contracts/errors.py`."""


class Unavailable(ProviderError):  # noqa: N818 - an answer, not a mistake
    """It could not be asked, or its answer was lost: what was asked may have happened."""

    kind = errors.UNAVAILABLE


class CapacityExhausted(ProviderError):  # noqa: N818
    """It has none left there, or lets us have no more: nothing was made."""

    kind = errors.CAPACITY_EXHAUSTED


class RequestRefused(ProviderError):  # noqa: N818
    """It will not do this however often it is asked; nothing was made."""

    kind = errors.REQUEST_REFUSED


class NotYet(ProviderError):  # noqa: N818
    """It is not over; nothing is wrong."""

    kind = errors.NOT_YET


class KeyMistakeError(ValueError):
    """What is wrong with a key: the field and the rule, never the value."""

    def __init__(self, field_name: str, rule: str) -> None:
        super().__init__(f"{field_name}: {rule}")
        self.field = field_name
        self.rule = rule


class Credentials(Protocol):
    """A key that has the shape of one; whether it works, only its provider can say."""

    @property
    def project_id(self) -> str:
        """What the key opens: an account enables it once."""
        ...

    @property
    def shown(self) -> dict[str, str]:
        """What is no secret of it: `project_id`, `service_account` and `key`, the end of its id."""
        ...


@dataclass(frozen=True)
class CredentialsReader:
    """How a key of one kind is read."""

    read: Callable[[str], Credentials]
    """Out of a file's content. Raises: KeyMistakeError, with the first thing wrong."""
    what: str
    """What a person gives, such as `the JSON of a service-account key`."""


class CloudProject(Protocol):
    """A provider's project, account or tenancy in a cloud. Blocking, and safe to be done again."""

    def make(self, resource: str) -> CloudResource: ...

    def remove(self, resource: str) -> CloudResource: ...


class CloudRegionDriver(Protocol):
    """One region of a cloud, by the key of a provider; as `CloudProject`."""

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
        """As the list tells of it: without its host key."""
        ...


class Driver(Protocol):
    """The machines of one provider. Every method blocks, is limited in time and may be repeated.

    Raises: any of the four answers.
    """

    def find(self, name: str, zone: str) -> MachineObservation | None:
        """The machine of that name, by a read that sees what was just made; None: there is none."""
        ...

    def create(self, name: str, offer: MachineOffer, spec: MachineSpec) -> MachineObservation:
        """Ask for a machine, after `find` found none. It may still be `making` when this answers.

        It carries the offer's label. A name that exists already is found, not made again.
        """
        ...

    def terminate(self, name: str, zone: str) -> None:
        """Ask for its end, and of all that was made with it. Silent when there is none.

        However late the provider does what it was asked, no machine ends that has come since.
        """
        ...

    def billed_period(self, name: str, zone: str, machine_id: str | None) -> MachineObservation:
        """Of a machine that is gone: since when and until when it cost, as far as it is known.

        machine_id: the provider's own; without it, the last one there that had the name.
        """
        ...

    def list_owned(self) -> Sequence[OwnedMachine]:
        """Every machine that carries our ownership label, whatever state it is in."""
        ...


@dataclass(frozen=True)
class Notification:
    """One message of a provider about one of its machines; it may come twice, late, and for ever.

    receipt: what settles it; id: the same whenever it is delivered; machine_name, news: None where
    it says nothing of what a machine's workflow needs to know, or cannot be read.
    """

    receipt: str
    id: str
    machine_name: str | None = None
    news: MachineNews | None = None


class NotificationFeed(Protocol):
    """What a provider tells of its machines by itself. Raises: Unavailable, RequestRefused.

    Made, used and closed on one event loop; whatever waits can be cancelled at once.
    """

    async def next(self) -> Sequence[Notification]:
        """What has come; nothing, when nothing does for about a minute."""
        ...

    async def settle(self, receipts: Sequence[str]) -> None:
        """Those messages are done with: they do not come again."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True)
class Kind:
    """One kind of provider: all that it can do. A capability that it does not have is None.

    Its traits, which rules and workflows need, are in `workflows/rules/catalogue/providers.py`.
    """

    kind: ProviderKind
    checks: Callable[[str], tuple[Check, ...]]
    """Looks at everything that a provider needs, by its id; each check says what was found and what
    to do. Blocking; changes nothing."""
    credentials: CredentialsReader | None = None
    project: Callable[[str], CloudProject] | None = None
    """By a provider's id."""
    region: Callable[[str, str], CloudRegionDriver] | None = None
    """By a provider's id and what the cloud calls the region."""
    driver: Callable[[str], Driver] | None = None
    """By a provider's id."""
    notifications: Callable[[str], Callable[[], NotificationFeed]] | None = None
    """Prepares the feed of a provider, which is made on the loop that uses it. Blocking."""
    quotas: Callable[[str, str], tuple[Quota, ...]] | None = None
    """By a provider's id and a cloud region. Blocking. Raises: Unavailable, RequestRefused."""
    catalogue: Callable[[], CloudCatalogue] | None = None
    """Out of its files."""
    storage_classes: Callable[[], StorageClasses] | None = None
    prices: Callable[[str], PriceList] | None = None
    """As the cloud tells them with the key of a provider; without it those of the files count.
    Blocking. Raises: Unavailable, RequestRefused."""

    def required(self, name: str, capability: Capability | None) -> Capability:
        """Raises: RequestRefused, where the kind does not have it."""
        if capability is None:
            raise RequestRefused(f"provider kind {self.kind}: asked {name}, has none")
        return capability
