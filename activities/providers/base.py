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

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from workflows.contracts import errors
from workflows.contracts.machines import MachineNews, MachineObservation, MachineOffer, MachineSpec
from workflows.contracts.providers import Check


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


class Provider(Protocol):
    """A source of machines."""

    def check(self) -> tuple[Check, ...]:
        """Look at everything that it needs; each check says what was found and what to do.

        Blocking; changes nothing.
        """
        ...


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
