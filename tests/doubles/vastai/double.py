"""Vast.ai as one object: start it, point the product at its address."""

from __future__ import annotations

from typing import Any

from tests.doubles.rented.boot import Boot
from tests.doubles.rented.control import Control
from tests.doubles.rented.door import Call, Route
from tests.doubles.rented.double import RentedDouble
from tests.doubles.vastai.accounts import Account
from tests.doubles.vastai.calls import Calls
from tests.doubles.vastai.errors import VastRefusals, invalid, refused
from tests.doubles.vastai.instances import Instances
from tests.doubles.vastai.limits import Limits
from tests.doubles.vastai.listing import shown
from tests.doubles.vastai.market import Market
from tests.doubles.vastai.renting import Renting
from tests.doubles.vastai.settings import settle
from tests.doubles.vastai.specification import wrong_in_body, wrong_in_query

API_KEY = "d0ub1e0000000000000000000000000000000000000000000000000000000000"
"""The key that every double lets in from the start."""


class VastDouble(RentedDouble):
    """A Vast.ai of our own, for as long as the block lasts.

        with VastDouble(boot=PlainBoot()) as double:
            os.environ |= double.environment

    keys: the API keys that are let in.
    """

    def __init__(self, *, rate: float = 0.0, boot: Boot | None = None, port: int = 0) -> None:
        super().__init__(VastRefusals(), rate=rate, boot=boot, port=port)
        self.keys = {API_KEY}
        self.account = Account()
        self.market = Market(self.clock.now)
        self.instances = Instances(self.clock, self.boot, self.meter, self.faults, self.account)
        self.renting = Renting(self.market, self.instances)
        self.served = Calls(self.renting)
        self.limits = Limits(self.clock.now)
        self.control = Control(
            self.door,
            self.meter,
            machines=self._machines,
            happens=self.instances.happens,
            settle=lambda given: settle(self, given),
        )
        self.door.before = self._before
        self.door.name_of = self._name_of
        self.door.routes = self._routes()

    @property
    def environment(self) -> dict[str, str]:
        """The settings by which the product reaches this cloud, and a key that works."""
        return {"BASELOAD_VASTAI_ENDPOINT": self.url, "VAST_API_KEY": API_KEY}

    def _routes(self) -> list[Route]:
        calls = self.served
        one = "/api/v0/instances/{id}/"
        return [
            Route("POST", "/api/v0/bundles/", "asks.search", calls.searched),
            Route("PUT", "/api/v0/search/asks/", "asks.search_new", calls.searched_new),
            Route("PUT", "/api/v0/asks/{id}/", "asks.accept", self.renting.accept),
            Route("GET", "/api/v1/instances/", "instances.list", calls.listed),
            Route("GET", "/api/v0/instances/", "instances.list_v0", calls.listed_as_before),
            Route("GET", one, "instances.get", calls.found),
            Route("DELETE", one, "instances.destroy", calls.destroyed),
            Route("PUT", one, "instances.manage", calls.managed),
            Route("POST", f"{one}ssh/", "instances.attach", calls.attached),
            Route("GET", f"{one}ssh/", "instances.keys", calls.attached_listed),
            Route("GET", "/api/v0/ssh/", "keys.list", calls.keys_listed),
            Route("POST", "/api/v0/ssh/", "keys.create", calls.key_created),
            Route("GET", "/api/v0/users/current/", "users.current", calls.user),
        ]

    def _before(self, call: Call) -> None:
        """Authentication, limits, the contract: in this order. Raises: RefusedError."""
        kind, _, key = call.asked.headers.get("authorization", "").partition(" ")
        given = key if kind == "Bearer" else call.asked.query.get("api_key", "")
        if given not in self.keys:
            raise refused(401, "auth_error", "Invalid user key")
        self.limits.take(call.name, given)
        try:
            body = call.body()
        except ValueError as error:
            self.door.violated(call, "the body is no JSON")
            raise invalid("invalid json") from error
        wrong = [*wrong_in_query(call.name, call.asked.query), *wrong_in_body(call.name, body)]
        if call.name == "asks.accept" and not call.found["id"].isdigit():
            wrong.append("'id' is required and must be a valid offer ID")
        if wrong:
            self.door.violated(call, "; ".join(wrong))
            raise invalid("; ".join(wrong))

    def _name_of(self, call: Call) -> str:
        number = call.found.get("id", "")
        instance = self.instances.by_id.get(int(number)) if number.isdigit() else None
        if instance is not None and call.name.startswith("instances."):
            return instance.name
        try:
            return str((call.body() or {}).get("label") or "")
        except (ValueError, AttributeError):
            return ""

    def _machines(self) -> Any:
        return {
            "instances": [shown(each) for each in self.instances.by_id.values()],
            "made": self.instances.made,
            "rented": [each.id for each in self.market.offers.values() if each.renter],
        }
