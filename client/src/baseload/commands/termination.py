"""Everything of ours at providers, until nothing is left: leased machines, and those of nobody."""

from __future__ import annotations

from dataclasses import dataclass

from baseload.commands.session import Document, Session
from baseload.commands.waiting import state_line
from baseload.errors import BaseloadError

OWNED = ("physical", "local")
"""Kinds of providers whose machines nobody leases."""


@dataclass(frozen=True)
class Listing:
    """What a provider lists itself, or why it could not be asked."""

    provider: Document
    machines: list[Document]
    failure: str = ""

    @property
    def name(self) -> str:
        return f"{self.provider['name']} ({self.provider['id']})"

    @property
    def why(self) -> str:
        return f"{self.name}: cannot be asked: {self.failure}"

    @property
    def strays(self) -> list[Document]:
        """Those that no lease holds."""
        return [each for each in self.machines if not each["held"]]


def listings(session: Session, provider: str | None) -> list[Listing]:
    """Of every provider that makes machines. One that cannot be asked does not hide the others."""
    found = []
    for each in session.items("/v1/providers"):
        named = provider in (None, each["kind"], each["id"])
        if not named or each["kind"] in OWNED or each["status"] == "archived":
            continue
        try:
            listed = session.get(f"/v1/providers/{each['id']}/machines")["items"]
        except BaseloadError as error:
            found.append(Listing(each, [], str(error)))
        else:
            found.append(Listing(each, listed))
    return found


class Ending:
    """The end of all machines, or of those of one kind or id of provider: each is asked once."""

    def __init__(self, session: Session, provider: str | None) -> None:
        self._session, self._provider = session, provider
        self.leases: list[str] = []
        """Whose machines were asked to end."""
        self.strays: list[str] = []
        self.market: list[Listing] = []
        """As the providers have listed them last."""
        self.newcomers = False
        """Some have come after the others were asked to end."""
        self._looks = 0

    def count(self) -> int:
        """How many there are now; nothing is asked to end."""
        market = listings(self._session, self._provider)
        return len(self._live()) + sum(len(each.strays) for each in market)

    def look(self) -> list[str]:
        """Ask for the end of what has not been asked yet; a line for each that is there still."""
        self._looks += 1
        live = self._live()
        failures = [failure for each in live if (failure := self._ask(each))]
        left = [f"{each['id']}  {state_line(each)}" for each in live]
        if live and self.market:
            return left + failures
        self.market = listings(self._session, self._provider)
        for listing in self.market:
            left += [self._described(listing, each) for each in listing.machines]
            failures += [listing.why] if listing.failure else []
            ended = [self._end(listing, each) for each in listing.strays]
            failures += [failure for failure in ended if failure]
        return left + failures

    def _live(self) -> list[Document]:
        found = self._session.items("/v1/leases", live=True)
        if self._provider is None:
            return found
        of = ("provider_kind", "provider_id")
        return [each for each in found if self._provider in [each[name] for name in of]]

    def _ask(self, lease: Document) -> str:
        """Why it could not be asked for; empty: it was."""
        lease_id = str(lease["id"])
        if lease_id in self.leases:
            return ""
        try:
            self._session.delete(f"/v1/leases/{lease_id}")
        except BaseloadError as error:
            return f"{lease_id}: {error}"
        self.leases.append(lease_id)
        self.newcomers = self.newcomers or self._looks > 1
        return ""

    def _end(self, listing: Listing, machine: Document) -> str:
        """As `_ask`, of one that no lease holds."""
        name = self._described(listing, machine, state=False)
        if name in self.strays:
            return ""
        path = f"/v1/providers/{listing.provider['id']}/machines/{machine['name']}"
        try:
            self._session.delete(path, zone=machine["zone"])
        except BaseloadError as error:
            return f"{name}: {error}"
        self.strays.append(name)
        return ""

    @staticmethod
    def _described(listing: Listing, machine: Document, *, state: bool = True) -> str:
        is_it = f" is {machine['state']}" if state else ""
        return f"{listing.name}: {machine['name']} in {machine['zone']}{is_it}"
