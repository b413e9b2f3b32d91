"""RunPod as one object: start it, point the product at its address."""

from __future__ import annotations

from typing import Any

from tests.doubles.http_double import Answer
from tests.doubles.rented.boot import Boot
from tests.doubles.rented.control import Control
from tests.doubles.rented.door import Call, Route, as_json
from tests.doubles.rented.double import RentedDouble
from tests.doubles.runpod.billing import billed
from tests.doubles.runpod.catalogue import Catalogue
from tests.doubles.runpod.errors import RunPodRefusals, refused
from tests.doubles.runpod.limits import Limits
from tests.doubles.runpod.pods import Pods
from tests.doubles.runpod.renting import Renting
from tests.doubles.runpod.settings import settle
from tests.doubles.runpod.specification import wrong_in_body, wrong_in_query

API_KEY = "rpa_DOUBLE0000000000000000000000000000000000key"
"""The key that every double lets in from the start."""
READS_ONLY = frozenset({"pods.list", "pods.get", "gpus.list", "keys.list", "billing.pods"})


class RunPodDouble(RentedDouble):
    """A RunPod of our own, for as long as the block lasts.

        with RunPodDouble(boot=PlainBoot()) as double:
            os.environ |= double.environment

    keys: whether each API key may change things, by the key.
    """

    def __init__(self, *, rate: float = 0.0, boot: Boot | None = None, port: int = 0) -> None:
        super().__init__(RunPodRefusals(), rate=rate, boot=boot, port=port)
        self.keys: dict[str, bool] = {API_KEY: True}
        self.catalogue = Catalogue()
        self.pods = Pods(self.clock, self.boot, self.meter, self.catalogue, self.faults)
        self.renting = Renting(self.pods)
        self.limits = Limits(self.clock.now)
        self.control = Control(
            self.door, self.meter, machines=self._machines, happens=self.pods.happens,
            settle=lambda given: settle(self, given),
        )  # fmt: skip
        self.door.before = self._before
        self.door.dress = self._dressed
        self.door.name_of = self._name_of
        self.door.routes = self._routes()
        self._key = ""

    @property
    def environment(self) -> dict[str, str]:
        """The settings by which the product reaches this cloud, and a key that works."""
        return {"BASELOAD_RUNPOD_ENDPOINT": self.url, "RUNPOD_API_KEY": API_KEY}

    def _routes(self) -> list[Route]:
        renting = self.renting
        return [
            Route("GET", "/v2/pods", "pods.list", renting.listed),
            Route("POST", "/v2/pods", "pods.create", renting.create),
            Route("GET", "/v2/pods/{id}", "pods.get", renting.found),
            Route("DELETE", "/v2/pods/{id}", "pods.delete", renting.deleted),
            Route("POST", "/v2/pods/{id}/action", "pods.act", renting.acted),
            Route("GET", "/v2/account/ssh-keys", "keys.list", renting.keys_listed),
            Route("PUT", "/v2/account/ssh-keys", "keys.replace", renting.keys_replaced),
            Route("GET", "/v2/catalog/gpus", "gpus.list", self._gpus),
            Route("GET", "/v2/billing/pods", "billing.pods", lambda call: billed(self.meter, call)),
        ]

    def _gpus(self, call: Call) -> Answer:
        return as_json(200, self.catalogue.listed(call))

    def _before(self, call: Call) -> None:
        """Authentication, limits, permission, the contract: in this order. Raises: RefusedError."""
        self._key = ""
        kind, _, key = call.asked.headers.get("authorization", "").partition(" ")
        if kind != "Bearer" or not key:
            raise refused(401, "missing bearer token")
        if key not in self.keys:
            raise refused(401, "invalid bearer token")
        self._key = key
        self.limits.take(key)
        if call.name not in READS_ONLY and not self.keys[key]:
            raise refused(403, "access denied")
        try:
            body = call.body()
        except ValueError as error:
            self.door.violated(call, "the body is no JSON")
            raise refused(400, "request body is not valid JSON") from error
        wrong = [*wrong_in_query(call.name, call.asked.query), *wrong_in_body(call.name, body)]
        if body is not None and "json" not in call.asked.headers.get("content-type", ""):
            wrong.append("content-type: application/json is required")
        if wrong:
            self.door.violated(call, "; ".join(wrong))
            raise refused(422, "Request validation failed.", wrong)

    def _dressed(self, answer: Answer) -> Answer:
        """The heads of the limits, on every answer to a key that is known."""
        return self.limits.dressed(answer, self._key) if self._key else answer

    def _name_of(self, call: Call) -> str:
        pod = self.pods.by_id.get(call.found.get("id", ""))
        if pod is not None:
            return pod.name
        try:
            return str((call.body() or {}).get("name", ""))
        except (ValueError, AttributeError):
            return ""

    def _machines(self) -> Any:
        return {
            "pods": [self.pods.shown(each) for each in self.pods.by_id.values()],
            "made": self.pods.made,
        }
