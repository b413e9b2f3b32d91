"""Vast.ai's calls about instances, keys and the account; the rental is in `renting.py`."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from tests.doubles.http_double import Answer
from tests.doubles.rented.door import Call, as_json
from tests.doubles.vastai.accounts import USER_ID
from tests.doubles.vastai.errors import refused
from tests.doubles.vastai.instances import Instance
from tests.doubles.vastai.listing import listed, shown
from tests.doubles.vastai.renting import Renting

DONE = {"success": True}


@dataclass
class Calls:
    """missing_is_200: what is missing is destroyed with HTTP 200 and `success: false`;
    gone_lag_s: how long a destroyed instance, which costs nothing any more, is still listed."""

    renting: Renting
    missing_is_200: bool = False
    list_lag_s: float = 0.0
    gone_lag_s: float = 0.0
    ended: list[tuple[float, Instance]] = field(default_factory=list)
    """When each instance was destroyed."""

    def searched(self, call: Call) -> Answer:
        return as_json(200, {"offers": self.renting.market.search(call.body() or {})})

    def searched_new(self, call: Call) -> Answer:
        return as_json(200, {"offers": self.renting.market.search(call.body()["q"])})

    def listed(self, call: Call) -> Answer:
        seen = self._instances.clock.now() - self.list_lag_s
        found = [each for each in self._instances.by_id.values() if each.created_at <= seen]
        since = self._instances.clock.now() - self.gone_lag_s
        found += [each for at, each in self.ended if at > since]
        return as_json(200, listed(found, call.asked.query))

    def listed_as_before(self, call: Call) -> Answer:
        raise refused(410, "gone", "GET /api/v0/instances/ is gone: use /api/v1/instances/")

    def found(self, call: Call) -> Answer:
        instance = self._find(call)
        return as_json(200, {"instances": None if instance is None else shown(instance)})

    def destroyed(self, call: Call) -> Answer:
        instance = self._find(call)
        if instance is not None:
            self.ended.append((self._instances.clock.now(), instance))
            self._instances.destroy(instance)
            return as_json(200, DONE)
        if self.missing_is_200:
            raise refused(200, "no_such_instance", "Instance not found.")
        raise refused(404, "not_found", "Instance not found")

    def managed(self, call: Call) -> Answer:
        instance, asked = self._needed(call), call.body()
        if "label" in asked:
            instance.label = asked["label"]
        if asked.get("state") == "stopped" and instance.intended == "running":
            self._instances.stop(instance)
        if asked.get("state") == "running" and instance.intended == "stopped":
            if instance.offer.renter is None:
                self._instances.begin(instance)
            else:
                instance.intended = instance.following = "running"
                instance.message = "waits for its GPUs"
        return as_json(200, DONE)

    def attached(self, call: Call) -> Answer:
        key = call.body()["ssh_key"].strip()
        instance = self._needed(call)
        if key not in instance.let_in:
            instance.let_in.append(key)
        return as_json(200, {**DONE, "msg": "SSH key attached successfully"})

    def attached_listed(self, call: Call) -> Answer:
        keys = [
            {"id": number, "name": None, "public_key": key}
            for number, key in enumerate(self._needed(call).let_in)
        ]
        return as_json(200, {**DONE, "ssh_keys": json.dumps(keys)})

    def keys_listed(self, call: Call) -> Answer:
        keys = self._instances.account.keys
        if not keys:
            raise refused(404, "not_found", "No SSH keys found for the user.")
        return as_json(200, keys)

    def key_created(self, call: Call) -> Answer:
        now = self._instances.clock.now()
        row = self._instances.account.add_key(call.body()["ssh_key"], now)
        for instance in self._instances.by_id.values():
            instance.let_in.append(row["key"])
        made = {("public_key" if name == "key" else name): row[name] for name in row}
        return as_json(200, {**DONE, "key": made})

    def user(self, call: Call) -> Answer:
        keys = [each["key"] for each in self._instances.account.keys]
        body: dict[str, Any] = {
            "id": USER_ID, "key_id": 1, "email": "owner@example.com", "sid": "1",
            "balance": round(self.renting.left(), 6), "ssh_key": "\n".join(keys),
        }  # fmt: skip
        return as_json(200, body)

    @property
    def _instances(self) -> Any:
        return self.renting.instances

    def _find(self, call: Call) -> Instance | None:
        number = call.found["id"]
        if not number.isdigit():
            raise refused(400, "invalid_args", "invalid instance_id")
        found: Instance | None = self._instances.by_id.get(int(number))
        return found

    def _needed(self, call: Call) -> Instance:
        instance = self._find(call)
        if instance is None:
            raise refused(404, "no_such_instance", "Instance not found.")
        return instance
