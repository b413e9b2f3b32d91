"""What the campaign needs of a provider kind, whatever it is."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from tests.chaos.cloud.database import ReadRows
from tests.e2e.platform import Platform
from workers.runner.stack import Program

CREATE, RELEASE = "create", "release"
LOST = {CREATE: "create-reply-lost", RELEASE: "release-reply-lost"}
UNREACHABLE, PREEMPTED = "provider-unreachable", "preempted"
HOST_DIES, HOST_STANDS_STILL = "host-dies", "host-stands-still"
HOST_LIES, OFFER_GONE, PRICE_RISES = "host-lies", "offer-gone", "price-rises"
ANSWERS_BADLY = "answers-badly"
OF_A_MARKET = (HOST_LIES, OFFER_GONE, PRICE_RISES, ANSWERS_BADLY)
OF_THE_PROVIDER = (
    *(*LOST.values(), UNREACHABLE, PREEMPTED, HOST_DIES, HOST_STANDS_STILL),
    *OF_A_MARKET,
)
"""The kinds of faults that not every provider can have."""


@dataclass(frozen=True)
class Machine:
    """A machine that is at the provider now. name: that of its lease."""

    name: str
    id: str
    state: str


@dataclass(frozen=True)
class Charge:
    """A machine on its provider's own meter. Instants are seconds of the epoch.

    price: microcredits an hour for all that is charged; None: the meter cannot say.
    """

    name: str
    instance_id: str
    price: int | None
    started_at: float
    ended_at: float | None = None

    def seconds(self, now: float) -> float:
        return (now if self.ended_at is None else self.ended_at) - self.started_at


@dataclass
class Losses:
    """How often it has happened so far."""

    struck: int = 0


@dataclass(frozen=True)
class Enabled:
    """A provider and its region; storage: names of the machines that the region has for itself."""

    provider_id: str = ""
    region_id: str = ""
    storage: frozenset[str] = frozenset()


class Market:
    """One provider with its double, for as long as the campaign lasts."""

    kind: str
    kinds: tuple[str, ...] = ()
    """Which kinds of faults `OF_THE_PROVIDER` it can have."""
    says_when_it_ended: bool = False
    """Whether the provider tells when a machine has ended; else our own clock counts."""
    reads_offers: bool = True
    """Whether what it offers is read now and then, and not of a catalogue."""
    most_at_once: int = 100
    """How many machines can be had at the same time."""
    settings: dict[str, str]
    """Of the stack, by their names without prefix."""
    environment: dict[str, str]
    """Of the stack's programs: where the double is."""
    violations: list[str]
    """What was asked of the provider that its documents do not know."""

    def close(self) -> None:
        """End every machine there is."""
        raise NotImplementedError

    def adapted(self, program: Program) -> Program:
        """A program of the stack as it has to be for this market."""
        return program

    def watch(self, rows: ReadRows) -> None:
        """Take note of how the platform's rows are read, before machines can be had."""

    def enable(self, owner: Platform) -> Enabled:
        """What a user does until machines can be had. Raises: TimeoutError, AssertionError."""
        raise NotImplementedError

    def end(self, owner: Platform, enabled: Enabled) -> None:
        """What a user does to have it no more. Raises: TimeoutError, AssertionError."""
        path = f"/v1/providers/{enabled.provider_id}"
        owner.ask("DELETE", path)
        owner.until_status(path, "archived", limit_s=120)

    def job(self, enabled: Enabled) -> dict[str, Any]:
        """The parts of a job that needs a machine of this market."""
        raise NotImplementedError

    def machines(self) -> list[Machine]:
        """Whatever is there now."""
        raise NotImplementedError

    def charges(self) -> list[Charge]:
        """One for each machine that was ever made, in their order."""
        raise NotImplementedError

    def lose(self, name: str) -> bool:
        """The provider takes this machine back, or its host dies. False: it does not run."""
        raise NotImplementedError

    def stand_still(self, name: str) -> bool:
        """The host of this machine takes connections and does nothing. False: it does not run."""
        raise NotImplementedError

    def go_on(self, name: str) -> None:
        """It does everything again; silent when the machine is gone."""
        raise NotImplementedError

    def misbehaving(self, kind: str) -> AbstractContextManager[Losses]:
        """What hosts and the marketplace do, of the kinds `OF_A_MARKET`, while the block lasts."""
        raise NotImplementedError

    def neighbours(self) -> list[str]:
        """The names of the machines of another installation on the same account."""
        return []

    def losing_replies(self, verb: str, every: int) -> AbstractContextManager[Losses]:
        """Of every so-manieth creation or release: it is done, and its answer is lost."""
        raise NotImplementedError

    def be_away(self, seconds: float) -> None:
        """Nothing of it answers for so long."""
        raise NotImplementedError

    @property
    def turned_away(self) -> int:
        """The calls that were cut because it was away."""
        raise NotImplementedError
