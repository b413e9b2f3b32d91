"""The termination of all our machines at providers: leased machines and orphaned machines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from baseload.commands.lookup import UnknownNameError, find_id
from baseload.commands.session import Document, Session
from baseload.commands.waiting import state_line
from baseload.errors import BaseloadError

OWNED = ("physical", "colab")
"""Kinds of providers whose machines their owners end; they are left alone unless they are named."""


@dataclass(frozen=True)
class Listing:
    """The machines that a provider lists, or why the provider could not be asked."""

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
    def orphans(self) -> list[Document]:
        """The orphaned machines, which no lease holds."""
        return [each for each in self.machines if not each["held"]]


def kind_or_id(session: Session, provider: str) -> str:
    """The kind of providers, or the id of the one provider, that a person means.

    A word that is a kind is never a name. Raises: UnknownNameError, when nothing is meant by it;
    MistakeError, when several providers have the name.
    """
    from baseload.models import ProviderCreation  # All models take longer than most commands.

    if provider in get_args(ProviderCreation.model_fields["kind"].annotation):
        return provider
    try:
        return find_id(session, "providers", provider)
    except UnknownNameError as cause:
        raise UnknownNameError(
            f"no provider has the kind, the id or the name {provider!r}"
        ) from cause


def listings(session: Session, provider: str | None) -> list[Listing]:
    """The listings of all providers that create machines; a failure of one is in its listing."""
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
    """The termination of all machines, or of one provider's by kind or id; requested once each."""

    def __init__(self, session: Session, provider: str | None) -> None:
        self._session, self._provider = session, provider
        self.leases: list[str] = []
        """The leases whose machines are being terminated."""
        self.orphans: list[str] = []
        """The orphaned machines that are being terminated."""
        self.market: list[Listing] = []
        """The latest listings of the providers."""
        self.newcomers = False
        """Whether a lease has come after the first poll."""
        self._polls = 0

    def count(self) -> int:
        """The number of machines now; none is terminated."""
        market = listings(self._session, self._provider)
        return len(self._live()) + sum(len(each.orphans) for each in market)

    def poll(self) -> list[str]:
        """Terminate the machines that are new, and return a line for each that is still there."""
        self._polls += 1
        live = self._live()
        failures = [failure for each in live if (failure := self._ask(each))]
        left = [f"{each['id']}  {state_line(each)}" for each in live]
        if live and self.market:
            return left + failures
        self.market = listings(self._session, self._provider)
        for listing in self.market:
            left += [self._described(listing, each) for each in listing.machines]
            failures += [listing.why] if listing.failure else []
            ended = [self._end(listing, each) for each in listing.orphans]
            failures += [failure for failure in ended if failure]
        return left + failures

    def _live(self) -> list[Document]:
        found = self._session.items("/v1/leases", live=True)
        if self._provider is None:
            return [each for each in found if each.get("provider_kind") not in OWNED]
        of = ("provider_kind", "provider_id")
        return [each for each in found if self._provider in [each[name] for name in of]]

    def _ask(self, lease: Document) -> str:
        """Release a lease; why that failed, or empty text."""
        lease_id = str(lease["id"])
        if lease_id in self.leases:
            return ""
        try:
            self._session.delete(f"/v1/leases/{lease_id}")
        except BaseloadError as error:
            return f"{lease_id}: {error}"
        self.leases.append(lease_id)
        self.newcomers = self.newcomers or self._polls > 1
        return ""

    def _end(self, listing: Listing, machine: Document) -> str:
        """Terminate an orphaned machine; why that failed, or empty text."""
        name = self._described(listing, machine, state=False)
        if name in self.orphans:
            return ""
        path = f"/v1/providers/{listing.provider['id']}/machines/{machine['name']}"
        try:
            self._session.delete(path, zone=machine["zone"])
        except BaseloadError as error:
            return f"{name}: {error}"
        self.orphans.append(name)
        return ""

    @staticmethod
    def _described(listing: Listing, machine: Document, *, state: bool = True) -> str:
        is_it = f" is {machine['state']}" if state else ""
        return f"{listing.name}: {machine['name']} in {machine['zone']}{is_it}"
