"""The machine offers of a lease: in which order they are tried, and which are not."""

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from workflows.contracts.billing import hourly
from workflows.contracts.leases import LeaseRequest
from workflows.contracts.machines import MachineObservation, MachineOffer, Shortage
from workflows.effects.machines import (
    FindShortages,
    RememberShortage,
    find_shortages,
    remember_shortage,
)
from workflows.leases.machine import Machine
from workflows.primitives.failures import cause_of


class Offers:
    """The machine offers of one lease, compared with the provider's shortages and the price cap."""

    def __init__(self, request: LeaseRequest, machine: Machine) -> None:
        self._request = request
        self._machine = machine
        self._shortages: dict[str, Shortage] = {}

    async def find_shortages(self) -> None:
        """Find what the provider did not have a short while ago, by its scopes."""
        command = FindShortages(provider_id=self._request.provider_id)
        found = await find_shortages.run_locally(command)
        self._shortages = {one.scope: one for one in found.shortages}

    def in_order(self) -> list[MachineOffer]:
        """The offers, the last tried one first, because its machine may exist."""
        tried = [] if self._machine.offer is None else [self._machine.offer]
        return tried + [offer for offer in self._request.offers if offer not in tried]

    def refusal_before(self, offer: MachineOffer) -> str | None:
        """Why the offer is not tried; None: it is."""
        if offer == self._machine.offer:
            return None
        known = [self._shortages[scope] for scope in offer.scopes if scope in self._shortages]
        if known:
            short = max(known, key=lambda each: each.until)
            return f"{short.reason}; not asked again before {short.until:%H:%M:%S} UTC"
        return self.over_cap(offer.microcredits_per_hour)

    def over_cap(self, microcredits_per_hour: int) -> str | None:
        """Why a machine at this price is refused; None: it is not."""
        cap = self._request.price_cap_microcredits_per_hour
        if cap is None or microcredits_per_hour <= cap:
            return None
        return f"costs {hourly(microcredits_per_hour)}, the cap is {hourly(cap)}"

    def over_cap_of(self, seen: MachineObservation) -> str | None:
        """Why a machine is refused for the price that its provider says; None: it is not."""
        price = seen.microcredits_per_hour
        return None if price is None else self.over_cap(price)

    async def remember_shortage(self, scope: str, reason: str) -> None:
        """Remember what the provider does not have, for the leases after this one."""
        short = RememberShortage(provider_id=self._request.provider_id, scope=scope, reason=reason)
        try:
            await remember_shortage(short)
        except ActivityError as failure:
            if is_cancelled_exception(failure):
                raise
            # The next lease tries the same offer in vain, which does no other harm.
            workflow.logger.warning("a shortage was not remembered: %s", cause_of(failure)[1])
