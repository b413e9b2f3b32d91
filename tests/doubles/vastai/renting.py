"""How an ask becomes an instance of Vast.ai, or a refusal that may have made one all the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.doubles.http_double import Answer
from tests.doubles.rented.door import Call, as_json
from tests.doubles.rented.faults import IN_THE_RENTAL, Fault, FaultKind
from tests.doubles.rented.meter import USD
from tests.doubles.vastai.errors import gone_ask, invalid, refused, unknown_ask
from tests.doubles.vastai.instances import Instance, Instances
from tests.doubles.vastai.market import Market, Offer
from tests.doubles.vastai.starts import Start, start_of

LEAST_DISK_GB = 8.0
LARGE_A100_MIB = 76_000
LONGEST_SCRIPT = 4096
"""Of `args`, `args_str` and `onstart` together."""
LONGEST_VARIABLE = 256
LONGEST_ENV = 32768
OTHER = ("RTX 3060", 1, 12288)
"""What comes instead of what was offered."""


@dataclass
class Renting:
    """Accepts asks."""

    market: Market
    instances: Instances

    def accept(self, call: Call) -> Answer:
        ask, asked = int(call.found["id"]), call.body()
        start = self._start(asked)
        self._rules(asked, start)
        offer = self.market.offers.get(ask)
        if offer is None:
            raise unknown_ask(ask)
        if self.left() <= 0:
            raise refused(400, "insufficient_credit", "Your account lacks credit.", ask_id=ask)
        if float(asked.get("disk", LEAST_DISK_GB)) > offer.disk_space:
            raise invalid(f"disk: offer {ask} has {offer.disk_space} GB")
        fault = self.instances.faults.take(IN_THE_RENTAL, call.name, str(asked.get("label") or ""))
        kind = fault.kind if fault is not None else None
        if kind is FaultKind.FAILED_WITH_200:
            answer = {"success": False, "error": "invalid_args", "msg": "no machine could be had"}
            return as_json(200, answer)
        if kind is FaultKind.FAILED_BUT_MADE:
            made = self._make(offer, asked, start, fault, is_started=False)
            raise refused(400, "invalid_price", "bid is too low", ask_id=ask, new_contract=made.id)
        if kind in (FaultKind.NO_CAPACITY, FaultKind.SCHEDULED) or not _is_free(offer):
            return self._gone(offer, asked, start, is_scheduled=kind is FaultKind.SCHEDULED)
        stopped = asked.get("target_state") == "stopped"
        made = self._make(offer, asked, start, fault, is_started=not stopped)
        return as_json(200, {"success": True, "new_contract": made.id})

    def left(self) -> float:
        """USD of the balance that nothing has used up."""
        return self.instances.account.balance - self.instances.meter.microcredits() / USD

    def _gone(
        self, offer: Offer, asked: dict[str, Any], start: Start, *, is_scheduled: bool
    ) -> Answer:
        """The ask is taken: a refusal, or a stopped instance that waits for it."""
        if asked.get("cancel_unavail", True) and not is_scheduled:
            raise gone_ask(offer.id)
        made = self._make(offer, asked, start, None, is_started=False)
        return as_json(200, {"success": True, "new_contract": made.id})

    def _make(
        self,
        offer: Offer,
        asked: dict[str, Any],
        start: Start,
        fault: Fault | None,
        *,
        is_started: bool,
    ) -> Instance:
        gpu, usd = (_driver_name(offer), offer.num_gpus, offer.gpu_ram), offer.dph_base
        if fault is not None and fault.kind is FaultKind.OTHER_MACHINE:
            gpu = OTHER
        if fault is not None and fault.kind is FaultKind.DEARER:
            usd = round(usd * fault.factor, 6)
        instance = Instance(
            id=self.instances.new_id(),
            offer=offer,
            start=start,
            label=asked.get("label"),
            shown_gpu=gpu,
            usd=usd,
            disk_gb=float(asked.get("disk", LEAST_DISK_GB)),
            created_at=self.instances.clock.now(),
        )
        self.instances.add(instance, is_started=is_started)
        return instance

    def _start(self, asked: dict[str, Any]) -> Start:
        try:
            return start_of(asked)
        except ValueError as error:
            raise invalid(str(error)) from error

    def _rules(self, asked: dict[str, Any], start: Start) -> None:
        """What the contract lets through and Vast.ai refuses all the same. Raises: RefusedError."""
        for unserved in ("template_hash_id", "vm", "volume_info"):
            if asked.get(unserved):
                raise invalid(f"{unserved}: this double has none")
        if asked.get("price") is not None:
            raise refused(400, "invalid_price", "this double takes no bids")
        if float(asked.get("disk", LEAST_DISK_GB)) < LEAST_DISK_GB:
            raise invalid(f"disk: the least is {LEAST_DISK_GB}")
        if len(start.args) + len(start.onstart) > LONGEST_SCRIPT:
            raise invalid(f"args and onstart: {LONGEST_SCRIPT} characters at most")
        sizes = {name: len(name) + len(value) for name, value in start.env.items()}
        if any(len(each) > LONGEST_VARIABLE for pair in start.env.items() for each in pair):
            raise invalid(f"env: {LONGEST_VARIABLE} characters at most in a name or a value")
        if sum(sizes.values()) > LONGEST_ENV:
            raise invalid(f"env: {LONGEST_ENV} characters at most")


def _is_free(offer: Offer) -> bool:
    return offer.is_listed and offer.renter is None


def _driver_name(offer: Offer) -> str:
    """The name that the driver prints: that of a large A100 says its memory, Vast.ai's does not."""
    is_large = offer.gpu_name.startswith("A100") and offer.gpu_ram > LARGE_A100_MIB
    return f"{offer.gpu_name}-80GB" if is_large else offer.gpu_name
